//! What a request asks for, read from its path, query and headers.

use std::collections::BTreeMap;

use axum::extract::Query;
use axum::http::{HeaderMap, Uri, header};

use super::failure::Failure;
use super::resource::{self, Resource};

/// The user of a request without a token.
const ANONYMOUS: &str = "system:anonymous";

/// The query of a request.
#[derive(Debug, Clone, Default)]
pub struct Params(BTreeMap<String, String>);

impl Params {
    /// From the request's URI.
    pub fn parse(uri: &Uri) -> Result<Self, Failure> {
        Query::try_from_uri(uri)
            .map(|Query(params)| Self(params))
            .map_err(|error| Failure::bad_request(format!("the query cannot be read: {error}")))
    }

    /// A parameter that is not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// A boolean parameter; `watch` alone counts as true, as in Kubernetes.
    pub fn flag(&self, name: &str) -> bool {
        self.0
            .get(name)
            .is_some_and(|text| matches!(text.as_str(), "" | "1" | "t" | "true" | "True"))
    }

    /// A numeric parameter.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        self.get(name)
            .map(|text| {
                text.parse().map_err(|_| {
                    Failure::bad_request(format!("{name} is \"{text}\", expected a number"))
                })
            })
            .transpose()
    }
}

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Group, version and plural as written.
    pub resource: (String, String, String),
    /// The namespace, if the path has one.
    pub namespace: Option<String>,
    /// The object, if the path names one.
    pub name: Option<String>,
    /// The subresource, if the path names one.
    pub subresource: Option<String>,
}

impl Target {
    /// Reads the part of a path after `/api/VERSION` or `/apis/GROUP/VERSION`.
    pub fn parse(group: &str, version: &str, rest: &[&str]) -> Option<Self> {
        let (namespace, rest) = match rest {
            // `/namespaces/NAME` and its two subresources are the namespace itself.
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] | ["namespaces"] => {
                (None, rest)
            }
            ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
            _ => (None, rest),
        };
        let owned = |text: &&str| (*text).to_owned();
        let (plural, name, subresource) = match rest {
            [plural] => (plural, None, None),
            [plural, name] => (plural, Some(owned(name)), None),
            [plural, name, subresource] => (plural, Some(owned(name)), Some(owned(subresource))),
            _ => return None,
        };
        Some(Self {
            resource: (group.into(), version.into(), owned(plural)),
            namespace,
            name,
            subresource,
        })
    }

    /// The resource in the table.
    pub fn find(&self) -> Result<&'static Resource, Failure> {
        let (group, version, plural) = &self.resource;
        let found = resource::find(group, version, plural).ok_or_else(Failure::no_such_path)?;
        let misplaced = if found.namespaced {
            self.namespace.is_none() && self.name.is_some()
        } else {
            self.namespace.is_some()
        };
        if misplaced { Err(Failure::no_such_path()) } else { Ok(found) }
    }
}

/// The caller's name: its bearer token.
pub fn user(headers: &HeaderMap) -> String {
    headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .map_or_else(|| ANONYMOUS.to_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(rest: &[&str]) -> (Option<String>, String, Option<String>, Option<String>) {
        let target = Target::parse("", "v1", rest).expect("a target");
        (target.namespace, target.resource.2, target.name, target.subresource)
    }

    #[test]
    fn a_path_names_a_collection_an_object_or_a_subresource() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(parsed(&["pods"]), (None, "pods".into(), None, None));
        assert_eq!(
            parsed(&["namespaces", "shop", "pods"]),
            (some("shop"), "pods".into(), None, None)
        );
        assert_eq!(
            parsed(&["namespaces", "shop", "pods", "a", "status"]),
            (some("shop"), "pods".into(), some("a"), some("status"))
        );
        assert_eq!(
            parsed(&["namespaces", "shop"]),
            (None, "namespaces".into(), some("shop"), None)
        );
        assert_eq!(
            parsed(&["nodes", "n1", "status"]),
            (None, "nodes".into(), some("n1"), some("status"))
        );
    }
}
