//! API objects → the facts of [`crate::model`]. One file a kind.
//!
//! What makes no sense is left out and complained about; what is merely absent is normal
//! (`EndpointSlice`s come without target, ports or conditions).

mod node;
mod pod;
mod replica_set;
mod service;
mod slice;
mod template;
mod workload;

use std::{fmt::Display, net::IpAddr, str::FromStr, sync::Arc};

use k8s_openapi::{
    api::core::v1::PodSpec,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

pub use workload::{Unknown, Workload};

use crate::model::ObjectRef;

fn text(value: Option<String>) -> Arc<str> {
    value.unwrap_or_default().into()
}

/// The value of the first of these labels that is there; empty if none is.
fn first_label(metadata: &ObjectMeta, labels: &[&str]) -> Arc<str> {
    let Some(map) = &metadata.labels else { return "".into() };
    labels.iter().find_map(|label| map.get(*label)).map_or("", String::as_str).into()
}

fn controller(metadata: &mut ObjectMeta) -> Option<ObjectRef> {
    let owners = metadata.owner_references.take()?;
    owners.into_iter().find(|owner| owner.controller == Some(true)).map(reference)
}

fn reference(owner: OwnerReference) -> ObjectRef {
    ObjectRef {
        kind: owner.kind.into(),
        api_version: owner.api_version.into(),
        name: owner.name.into(),
        uid: owner.uid.into(),
    }
}

/// Parses a value, or complains and leaves it out.
fn parsed<T>(field: &str, value: &str, complaints: &mut Vec<String>) -> Option<T>
where
    T: FromStr,
    T::Err: Display,
{
    value
        .parse()
        .inspect_err(|error| complaints.push(format!("{field} {value:?} is left out: {error}")))
        .ok()
}

fn address(field: &str, value: &str, complaints: &mut Vec<String>) -> Option<IpAddr> {
    parsed(field, value, complaints)
}

/// A port number, or a complaint.
fn port(field: &str, value: i32, complaints: &mut Vec<String>) -> Option<u16> {
    match u16::try_from(value) {
        Ok(port) if port > 0 => Some(port),
        _ => {
            complaints.push(format!("{field} {value} is left out: not a port number"));
            None
        }
    }
}

fn protocol(value: Option<String>) -> Arc<str> {
    value.map_or_else(|| "TCP".into(), Into::into)
}

/// Revision annotations: the Deployment controller's, Argo's, and what others name alike.
fn revision(metadata: &ObjectMeta, complaints: &mut Vec<String>) -> Option<u64> {
    let annotations = metadata.annotations.as_ref()?;
    let known = ["deployment.kubernetes.io/revision", "rollout.argoproj.io/revision"];
    let (key, value) = known
        .iter()
        .find_map(|key| annotations.get_key_value(*key))
        .or_else(|| annotations.iter().find(|(key, _)| key.ends_with("/revision")))?;
    parsed(&format!("annotation {key}"), value, complaints)
}

fn images(template: Option<PodSpec>) -> Vec<Arc<str>> {
    let containers = template.map(|spec| spec.containers).unwrap_or_default();
    containers.into_iter().filter_map(|container| container.image).map(Into::into).collect()
}
