//! One object off the wire, trimmed while it is decoded: the whole object is never kept.
//!
//! The API's types are strict: one odd field in one object makes a whole list undecodable. So each
//! object is decoded by itself, and one that makes no sense keeps its identity and a complaint.

use std::{borrow::Cow, fmt, sync::Arc};

use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope, ObjectMeta},
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// What is kept of the objects of one kind.
pub trait Facts: Clone + fmt::Debug + Send + Sync + 'static {
    /// The kind, for complaints.
    const KIND: &'static str;

    /// Takes the facts out of one object. A value that makes no sense is left out and told in
    /// `complaints`; an error means that the object as a whole cannot be read.
    fn trim(raw: Value, complaints: &mut Vec<String>) -> Result<Self, serde_json::Error>;
}

/// Who an object is: readable even where its content is not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Namespace; empty for a cluster-wide object.
    pub namespace: Arc<str>,
    /// Name; empty if the object has none that can be read.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
}

impl Identity {
    fn read(raw: &Value) -> Self {
        let field = |name: &str| -> Arc<str> {
            raw.get("metadata")
                .and_then(|m| m.get(name))
                .and_then(Value::as_str)
                .unwrap_or("")
                .into()
        };
        Self {
            namespace: field("namespace"),
            name: field("name"),
            uid: field("uid"),
            resource_version: field("resourceVersion"),
        }
    }
}

/// Something in an object that made no sense and was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Kind of the object.
    pub kind: &'static str,
    /// Its namespace and name.
    pub object: String,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.kind, self.object, self.what)
    }
}

/// One object as the watches hand it on.
#[derive(Clone, Debug)]
pub struct Object<F> {
    /// Who it is.
    pub identity: Identity,
    /// What is kept of it; `None` if it could not be read.
    pub facts: Option<Arc<F>>,
    /// What was left out.
    pub complaints: Vec<Complaint>,
    /// Always empty: `kube` asks for one.
    metadata: ObjectMeta,
}

impl<F: Facts> Object<F> {
    /// Trims one object.
    pub fn from_value(raw: Value) -> Self {
        let identity = Identity::read(&raw);
        let mut whats = Vec::new();
        let facts = match F::trim(raw, &mut whats) {
            Ok(_) if identity.name.is_empty() => {
                whats.push("has no metadata.name: the object is skipped".into());
                None
            }
            Ok(facts) => Some(Arc::new(facts)),
            Err(error) => {
                whats.push(format!("cannot be read, the object is skipped: {error}"));
                None
            }
        };
        let complaints = whats
            .into_iter()
            .map(|what| Complaint {
                kind: F::KIND,
                object: format!("{}/{}", identity.namespace, identity.name),
                what,
            })
            .collect();
        Self { identity, facts, complaints, metadata: ObjectMeta::default() }
    }
}

impl<'de, F: Facts> Deserialize<'de> for Object<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from_value)
    }
}

/// Resolves the address of a kind at run time, as `DynamicObject` does.
impl<F: Facts> Resource for Object<F> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
