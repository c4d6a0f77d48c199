//! Pods as they were seen, also long after they are gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{is_older, remembered::Remembered, version};
use crate::{
    endpoints::WATCH_LAG_NANOS,
    model::{Clock, Mono, PodFacts, Wall},
};

/// The most pods remembered.
pub const MAX_PODS: usize = 20_000;

/// What is known of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Last content.
    pub facts: Arc<PodFacts>,
    /// The earliest deletion time of all its contents: the kubelet's last delete moves it.
    pub deleted_at: Option<Wall>,
    /// The same on this node's clock, as that stood when it was seen; `None` if the two clocks do
    /// not agree so far that it can be believed.
    pub deleted: Option<Mono>,
    /// When this agent first saw that it was being deleted.
    pub deletion_seen: Option<Mono>,
    /// The earliest version in which it is being deleted.
    pub deletion_version: Option<u64>,
    /// The earliest version seen.
    pub first_version: Option<u64>,
    /// When its restart count last rose.
    pub restarted: Option<Mono>,
    /// When it was gone.
    pub gone: Option<Mono>,
}

impl Pod {
    fn new(facts: Arc<PodFacts>) -> Self {
        Self {
            facts,
            deleted_at: None,
            deleted: None,
            deletion_seen: None,
            deletion_version: None,
            first_version: None,
            restarted: None,
            gone: None,
        }
    }

    /// Whether it is known to be on its way out.
    pub fn is_leaving(&self) -> bool {
        self.deletion_seen.is_some() || self.gone.is_some()
    }

    /// Whether it was there at a version and not being deleted; `None` if that is not known: it
    /// vanished, and nobody saw how.
    pub(super) fn was_there(&self, at: u64) -> Option<bool> {
        match self.deletion_version {
            // A pod that is being deleted ends as a finished one.
            Some(deleted) => Some(deleted >= at),
            None if self.facts.finished => Some(false),
            None if !self.is_leaving() => Some(true),
            None => (version(&self.facts.resource_version)? >= at).then_some(true),
        }
    }

    fn observe(&mut self, facts: Arc<PodFacts>, clock: &Clock, at: Mono) {
        let seen = version(&facts.resource_version);
        self.first_version = min(self.first_version, seen);
        if let Some(deleted_at) = facts.deleted_at() {
            self.deletion_seen.get_or_insert(at);
            self.deletion_version = min(self.deletion_version, seen);
            if self.deleted_at.is_none_or(|known| deleted_at < known) {
                self.deleted_at = Some(deleted_at);
                self.deleted = Some(clock.mono(deleted_at)).filter(|deleted| *deleted <= at);
            }
        }
        let is_past = is_older(&facts.resource_version, &self.facts.resource_version);
        // What a look-up brought may be newer than what a watch from the past brings after it.
        if is_past && facts.restarts < self.facts.restarts {
            self.restarted.get_or_insert(at);
        }
        if !is_past && facts.restarts > self.facts.restarts {
            self.restarted = Some(at);
        }
        if !is_past {
            self.facts = facts;
        }
    }

    /// The time of its deletion, if the clocks can be believed: it is no later than it was first
    /// seen here or in a slice, and no earlier than `not_before`.
    pub fn deletion(&self, seen_in_slice: Option<Mono>, not_before: Mono) -> Option<Mono> {
        let seen = self.deletion_seen.into_iter().chain(seen_in_slice).min()?;
        let earliest = not_before.min(Mono(seen.0.saturating_sub(WATCH_LAG_NANOS)));
        self.deleted.filter(|deleted| (earliest..=seen).contains(deleted))
    }
}

fn min(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// Pods by UID.
#[derive(Clone, Debug)]
pub(super) struct Pods {
    by_uid: Remembered<Pod>,
    /// By the UID of their direct owner.
    of_owner: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl Default for Pods {
    fn default() -> Self {
        Self { by_uid: Remembered::new(MAX_PODS), of_owner: BTreeMap::new() }
    }
}

impl Pods {
    pub(super) fn exists(&mut self, facts: Arc<PodFacts>, clock: &Clock, at: Mono) {
        let uid = facts.uid.clone();
        if let Some(owner) = &facts.owner {
            self.of_owner.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        let mut pod = self.by_uid.get(&uid).cloned().unwrap_or_else(|| Pod::new(facts.clone()));
        pod.observe(facts, clock, at);
        self.put(uid, pod);
    }

    /// Takes up a pod as an earlier agent knew it.
    pub(super) fn recall(&mut self, pod: Pod) {
        let (uid, is_gone) = (pod.facts.uid.clone(), pod.gone.is_some());
        if let Some(owner) = &pod.facts.owner {
            self.of_owner.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        self.put(uid.clone(), pod);
        if is_gone {
            self.by_uid.retire(&uid);
        }
    }

    fn put(&mut self, uid: Arc<str>, pod: Pod) {
        if let Some((_, dropped)) = self.by_uid.insert(uid, pod) {
            self.unlist(&dropped);
        }
    }

    pub(super) fn gone(&mut self, facts: Arc<PodFacts>, clock: &Clock, at: Mono) {
        let uid = facts.uid.clone();
        self.exists(facts, clock, at);
        if let Some(pod) = self.by_uid.get_mut(&uid) {
            pod.gone.get_or_insert(at);
            self.by_uid.retire(&uid);
        }
    }

    /// Versions have begun anew; a pod that is known to be gone stays so, whatever is said of it.
    pub(super) fn versions_restarted(&mut self) {
        self.by_uid.for_each_mut(|pod| {
            Arc::make_mut(&mut pod.facts).resource_version = "".into();
            (pod.first_version, pod.deletion_version) = (None, None);
        });
    }

    /// Forgets a pod altogether.
    pub(super) fn forget(&mut self, uid: &str) {
        if let Some(pod) = self.by_uid.remove(uid) {
            self.unlist(&pod);
        }
    }

    fn unlist(&mut self, pod: &Pod) {
        let Some(owner) = &pod.facts.owner else { return };
        if let Some(uids) = self.of_owner.get_mut(&owner.uid) {
            uids.remove(&pod.facts.uid);
            if uids.is_empty() {
                self.of_owner.remove(&owner.uid);
            }
        }
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Pod> {
        self.by_uid.get(uid)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Pod> {
        self.by_uid.values()
    }

    pub(super) fn of_owner(&self, uid: &str) -> impl Iterator<Item = &Pod> {
        self.of_owner.get(uid).into_iter().flatten().filter_map(|uid| self.by_uid.get(uid))
    }

    pub(super) fn forgotten(&self) -> u64 {
        self.by_uid.forgotten()
    }

    pub(super) fn len(&self) -> usize {
        self.by_uid.len()
    }
}
