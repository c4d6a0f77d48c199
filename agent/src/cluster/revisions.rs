//! Controller revisions: which one a `StatefulSet` or `DaemonSet` is on its way to, and its number.
//!
//! A `DaemonSet`'s status does not name its newest revision; its newest `ControllerRevision` does.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use serde_json::Value;

use super::object::Facts;
use crate::model::WorkloadFacts;

/// One `ControllerRevision` without the template that it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RevisionFacts {
    /// Its name: what a `StatefulSet` calls its revision.
    pub(super) name: Arc<str>,
    /// UID of the workload.
    pub(super) owner_uid: Arc<str>,
    /// Label `controller-revision-hash`: what the pods of a `DaemonSet` carry.
    pub(super) hash: Arc<str>,
    /// Its number; a rollback gives the old one a new number.
    pub(super) revision: i64,
}

impl Facts for RevisionFacts {
    const KIND: &'static str = "ControllerRevision";

    fn trim(raw: Value, _: &mut Vec<String>) -> Result<Self, serde_json::Error> {
        let revision: ControllerRevision = serde_json::from_value(raw)?;
        let metadata = revision.metadata;
        let owner = metadata.owner_references.unwrap_or_default();
        let owner = owner.into_iter().find(|owner| owner.controller == Some(true));
        let hash = metadata.labels.and_then(|mut l| l.remove("controller-revision-hash"));
        Ok(Self {
            name: metadata.name.unwrap_or_default().into(),
            owner_uid: owner.map(|owner| owner.uid).unwrap_or_default().into(),
            hash: hash.unwrap_or_default().into(),
            revision: revision.revision,
        })
    }
}

/// Writes the revision that a workload is on its way to into its status.
pub(super) fn complete<'a>(
    facts: &mut WorkloadFacts,
    revisions: impl IntoIterator<Item = &'a RevisionFacts>,
) {
    let own = revisions.into_iter().filter(|r| r.owner_uid == facts.object.uid);
    let current = if &*facts.object.kind == "DaemonSet" {
        own.max_by_key(|revision| revision.revision)
    } else {
        let target = facts.status.update_revision.clone();
        own.into_iter().find(|revision| revision.name == target)
    };
    if let Some(current) = current {
        if &*facts.object.kind == "DaemonSet" {
            facts.status.update_revision = current.hash.clone();
        }
        facts.status.revision = u64::try_from(current.revision).ok();
    }
}

/// Whether the kind keeps its history in `ControllerRevision`s.
pub(super) fn kept_by(kind: &str) -> bool {
    matches!(kind, "DaemonSet" | "StatefulSet")
}
