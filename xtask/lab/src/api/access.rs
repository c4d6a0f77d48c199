//! Who may do what: everybody everything, but for those who were granted certain things alone.

use serde_json::{Value, json};

use super::dials::Dials;

/// Something that a Role grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Where.
    pub namespace: String,
    /// The verb.
    pub verb: String,
    /// The resource's plural, with a subresource after a slash.
    pub resource: String,
}

/// Answers a `SelfSubjectAccessReview`.
pub fn review(dials: &Dials, user: &str, body: &Value) -> Value {
    let asked = &body["spec"]["resourceAttributes"];
    let text = |field: &str| asked[field].as_str().unwrap_or_default();
    let resource = match text("subresource") {
        "" => text("resource").to_owned(),
        subresource => format!("{}/{subresource}", text("resource")),
    };
    let allowed = dials.allows(user, text("verb"), text("namespace"), &resource);
    json!({
        "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "metadata": {"creationTimestamp": null}, "spec": body["spec"],
        "status": {"allowed": allowed, "reason": if allowed { "RBAC: allowed" } else { "" }},
    })
}
