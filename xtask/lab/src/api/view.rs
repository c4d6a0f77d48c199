//! How objects are written out: whole, or their metadata only (`PartialObjectMetadata`).

use std::borrow::Cow;

use serde_json::{Value, json};

use super::resource::Resource;

/// What the client asked to see of each object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// The object.
    Whole,
    /// Its metadata, as `PartialObjectMetadata`.
    Metadata,
}

impl View {
    /// From the `Accept` header.
    pub fn from_accept(accept: &str) -> Self {
        let asked = accept.split(',').next().unwrap_or("");
        if asked.contains("as=PartialObjectMetadata") { Self::Metadata } else { Self::Whole }
    }

    /// One object.
    pub fn object(self, object: &Value) -> Cow<'_, Value> {
        match self {
            Self::Whole => Cow::Borrowed(object),
            Self::Metadata => Cow::Owned(json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
            })),
        }
    }

    /// One item of a list: a built-in type's carries no kind there, as real servers answer.
    pub fn item(self, resource: &Resource, object: &Value) -> Value {
        let mut item = self.object(object).into_owned();
        if self == Self::Whole
            && !resource.custom
            && let Some(fields) = item.as_object_mut()
        {
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        item
    }

    /// The kind and API version of a list.
    pub fn list_type(self, resource: &Resource) -> (String, String) {
        match self {
            Self::Whole => (format!("{}List", resource.kind), resource.api_version()),
            Self::Metadata => ("PartialObjectMetadataList".into(), "meta.k8s.io/v1".into()),
        }
    }

    /// A bookmark at a revision; `initial_events_end` marks the one that ends a streamed list.
    pub fn bookmark(self, resource: &Resource, revision: u64, initial_events_end: bool) -> Value {
        let mut metadata =
            json!({ "resourceVersion": revision.to_string(), "creationTimestamp": null });
        if initial_events_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let (kind, api_version) = match self {
            Self::Whole => (resource.kind.to_owned(), resource.api_version()),
            Self::Metadata => ("PartialObjectMetadata".into(), "meta.k8s.io/v1".into()),
        };
        json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata })
    }
}
