//! Refusals, as the `Status` objects that Kubernetes answers with.

use serde_json::{Value, json};

use super::resource::Resource;

/// A request that was refused.
#[derive(Debug, Clone)]
pub struct Failure {
    /// HTTP status.
    pub code: u16,
    reason: &'static str,
    message: String,
    details: Value,
}

impl Failure {
    /// A refusal without an object.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        self.details = json!({ "name": name, "group": resource.group, "kind": resource.plural });
        self
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 403: the caller may not do this.
    pub fn forbidden(user: &str, verb: &str, resource: &Resource) -> Self {
        let message = format!(
            "{resource} is forbidden: User \"{user}\" cannot {verb} resource \"{}\" in API group \"{}\"",
            resource.plural, resource.group
        );
        Self::new(403, "Forbidden", message).about(resource, "")
    }

    /// 404 of an object.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found")).about(resource, name)
    }

    /// 404 of a path.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// 409 of a creation.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{resource} \"{name}\" already exists"))
            .about(resource, name)
    }

    /// 409 of a write that carries an old resource version.
    pub fn conflict(resource: &Resource, name: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {resource} \"{name}\": the object has been modified; please apply your \
             changes to the latest version and try again"
        );
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// 409 of a write whose precondition does not hold.
    pub fn precondition(resource: &Resource, name: &str, what: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {resource} \"{name}\": Precondition failed: {what}"
        );
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// 410: the history no longer reaches back to this resource version.
    pub fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    /// 422.
    pub fn invalid(resource: &Resource, name: &str, what: &str) -> Self {
        Self::new(422, "Invalid", format!("{} \"{name}\" is invalid: {what}", resource.kind))
            .about(resource, name)
    }

    /// 504: the server has not reached this resource version, as one restored from an older state.
    pub fn too_large_revision(asked: u64, current: u64) -> Self {
        let mut failure = Self::new(
            504,
            "Timeout",
            format!("Too large resource version: {asked}, current: {current}"),
        );
        failure.details = json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        });
        failure
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}
