//! The documents by which a client learns what is served.

use serde_json::{Value, json};

use super::resource::{RESOURCES, Resource};

/// The version of the recordings that the server imitates.
pub const VERSION: &str = "v1.36.2";

/// The version that the server says it is, e.g. `v1.36.2`.
pub fn version(version: &str) -> Value {
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    json!({
        "major": major, "minor": minor, "gitVersion": version, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
    })
}

/// Answers `/api`, `/apis` and what is below them short of a resource.
pub fn document(path: &[&str]) -> Option<Value> {
    match path {
        ["api"] => Some(
            json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] }),
        ),
        ["apis"] => {
            let mut groups: Vec<Value> = Vec::new();
            for resource in RESOURCES.iter().filter(|resource| !resource.group.is_empty()) {
                if !groups.iter().any(|group| group["name"] == resource.group) {
                    groups.push(group(resource));
                }
            }
            Some(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
        }
        ["api", version] => resources("", version),
        ["apis", name] => {
            RESOURCES.iter().find(|resource| resource.group == *name).map(|resource| {
                let mut group = group(resource);
                group["kind"] = "APIGroup".into();
                group["apiVersion"] = "v1".into();
                group
            })
        }
        ["apis", group, version] => resources(group, version),
        _ => None,
    }
}

fn group(resource: &Resource) -> Value {
    let version = json!({ "groupVersion": resource.api_version(), "version": resource.version });
    json!({ "name": resource.group, "versions": [version], "preferredVersion": version })
}

fn resources(group: &str, version: &str) -> Option<Value> {
    let mut entries = Vec::new();
    let mut api_version = String::new();
    for resource in RESOURCES.iter().filter(|r| r.group == group && r.version == version) {
        api_version = resource.api_version();
        entries.push(json!({
            "name": resource.plural, "singularName": resource.kind.to_lowercase(), "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        }));
        if resource.status {
            entries.push(json!({
                "name": format!("{}/status", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "kind": resource.kind, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    (!entries.is_empty()).then(|| {
        json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": entries })
    })
}
