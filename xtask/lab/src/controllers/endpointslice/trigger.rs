//! When the change happened that a slice's update carries to the proxies.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::controllers::pods;

const ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Of each Service by UID, the times of change that its last turn saw (`TriggerTimeTracker`). An
/// entry stays when its Service goes: a lab has few.
#[derive(Default)]
pub struct Triggers(Mutex<HashMap<String, Seen>>);

#[derive(Default)]
struct Seen {
    service: Option<Timestamp>,
    pods: BTreeMap<String, Timestamp>,
}

impl Triggers {
    /// The earliest change since the last turn that carries a time, which is what the annotation
    /// tells; none when nothing did, as for a deletion.
    pub fn time(&self, service: &Service, pods: &[Pod]) -> Option<Timestamp> {
        let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let times: BTreeMap<String, Timestamp> =
            pods.iter().filter_map(|pod| Some((pod.name_any(), pods::ready_since(pod)?))).collect();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = service.uid().unwrap_or_default();
        let known = all.contains_key(&uid);
        let last = all.entry(uid).or_default();
        let changed = times
            .iter()
            .filter(|(pod, time)| last.pods.get(*pod).is_none_or(|before| *time > before))
            .map(|(_, time)| *time)
            .chain(created.filter(|time| last.service.is_none_or(|before| *time > before)))
            .min();
        *last = Seen { service: created, pods: times };
        if known { changed } else { created }
    }
}

/// Writes the time; without one the annotation goes, as it does when an endpoint terminates.
pub fn annotate(metadata: &mut ObjectMeta, trigger: Option<Timestamp>) {
    let annotations = metadata.annotations.get_or_insert_default();
    match trigger {
        Some(time) => {
            annotations.insert(ANNOTATION.into(), time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        }
        None => annotations.remove(ANNOTATION),
    };
    if annotations.is_empty() {
        metadata.annotations = None;
    }
}
