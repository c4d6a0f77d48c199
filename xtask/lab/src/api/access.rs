//! Who may do what.

use serde_json::{Value, json};

use super::dials::Dials;

/// What somebody asks for, beside the verb.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The namespace; empty for all of them.
    pub namespace: &'a str,
    /// The API group.
    pub group: &'a str,
    /// The plural, a subresource behind a slash.
    pub resource: &'a str,
}

/// Answers a `SelfSubjectAccessReview`.
pub fn review(dials: &Dials, user: &str, body: &Value) -> Value {
    let asked = &body["spec"]["resourceAttributes"];
    let text = |field: &str| asked[field].as_str().unwrap_or_default();
    let resource = match text("subresource") {
        "" => text("resource").to_owned(),
        subresource => format!("{}/{subresource}", text("resource")),
    };
    let (namespace, group) = (text("namespace"), text("group"));
    let covered =
        dials.role_covers(user, text("verb"), &Asked { namespace, group, resource: &resource });
    let allowed = covered && dials.allows(user, text("verb"), text("resource"));
    json!({
        "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "metadata": {"creationTimestamp": null}, "spec": body["spec"],
        "status": {"allowed": allowed, "reason": if allowed { "RBAC: allowed" } else { "" }},
    })
}
