//! Who owns a pod, which revision it is of, and which revision is current.
//!
//! # Layout
//! - `pods`: pods as they were seen
//! - `scale`: how many pods an owner wanted, and so who removed one
//! - `remembered`: the bound of it all
//! - `recall`: what of it outlives the agent

mod pods;
mod recall;
pub mod remembered;
mod scale;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use pods::Pods;
pub use pods::{MAX_PODS, Pod};
pub use recall::KeptOwners;
use remembered::Remembered;
pub use scale::Remover;
use scale::{Counts, Wanted};
use serde::{Deserialize, Serialize};

use crate::model::{
    Clock, Mono, ObjectRef, PodFacts, ReplicaSetFacts, Revision, WorkloadFacts, WorkloadKey,
};

/// The most `ReplicaSet`s remembered, and the most workloads: as many as pods, if each had but one.
pub const MAX_OWNERS: usize = 20_000;

/// A pod that vanished unseen, at least this long before another was seen to be deleted, was not
/// there any more: the longest that the API server may be away.
const UNSEEN_NANOS: u64 = 120_000_000_000;

/// A pod's place: its workload and the revision of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Workload.
    pub workload: WorkloadKey,
    /// Template hash or controller revision.
    pub hash: Arc<str>,
    /// Name of what directly owns the pod.
    pub owner: ObjectRef,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ReplicaSet {
    facts: Arc<ReplicaSetFacts>,
    wanted: Wanted,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Workload {
    facts: Arc<WorkloadFacts>,
    wanted: Wanted,
    /// When the wanted count last fell.
    fell: Option<Mono>,
    gone: Option<Mono>,
}

/// What the API server said about owners.
#[derive(Clone, Debug)]
pub struct Owners {
    pods: Pods,
    /// Answers to look-ups, by pod UID.
    looked_up: Remembered<(Option<ObjectRef>, String)>,
    replica_sets: Remembered<ReplicaSet>,
    workloads: Remembered<Workload>,
    /// `ReplicaSet`s by the UID of their workload.
    sets_of: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl Default for Owners {
    fn default() -> Self {
        Self {
            pods: Pods::default(),
            looked_up: Remembered::new(MAX_PODS),
            replica_sets: Remembered::new(MAX_OWNERS),
            workloads: Remembered::new(MAX_OWNERS),
            sets_of: BTreeMap::new(),
        }
    }
}

/// A resource version as a number: versions of one API server compare as such (KEP-5504).
fn version(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// Whether `new` is older than `old`.
fn is_older(new: &str, old: &str) -> bool {
    version(new).zip(version(old)).is_some_and(|(new, old)| new < old)
}

impl Owners {
    /// A pod exists with this content.
    pub fn pod(&mut self, facts: Arc<PodFacts>, clock: &Clock, at: Mono) {
        self.pods.exists(facts, clock, at);
    }

    /// A pod is gone; its last content.
    pub fn pod_gone(&mut self, facts: Arc<PodFacts>, clock: &Clock, at: Mono) {
        self.pods.gone(facts, clock, at);
    }

    /// Versions have begun anew: those known compare with none that come.
    pub fn versions_restarted(&mut self) {
        self.pods.versions_restarted();
        self.replica_sets.for_each_mut(|set| {
            Arc::make_mut(&mut set.facts).resource_version = "".into();
            set.wanted = Wanted::default();
        });
        self.workloads.for_each_mut(|workload| {
            Arc::make_mut(&mut workload.facts).resource_version = "".into();
            workload.wanted = Wanted::default();
        });
    }

    /// Pods of this node that a complete list of its pods lacks.
    pub fn missing_on(&self, node: &str, listed: &[Arc<str>]) -> Vec<Arc<PodFacts>> {
        let listed: BTreeSet<&Arc<str>> = listed.iter().collect();
        let here = self.pods.all().filter(|pod| pod.facts.node.as_deref() == Some(node));
        let missing = here.filter(|pod| pod.gone.is_none() && !listed.contains(&pod.facts.uid));
        missing.map(|pod| pod.facts.clone()).collect()
    }

    /// Nobody tells any more what becomes of this workload's pods on other nodes: forgets those
    /// that live, and returns their UIDs.
    pub fn unwatch(&mut self, workload_uid: &str, node: &str) -> Vec<Arc<str>> {
        let elsewhere = |pod: &&Pod| pod.gone.is_none() && pod.facts.node.as_deref() != Some(node);
        let living: Vec<Arc<str>> =
            self.pods_of(workload_uid).filter(elsewhere).map(|pod| pod.facts.uid.clone()).collect();
        for uid in &living {
            self.pods.forget(uid);
            self.looked_up.remove(uid);
        }
        living
    }

    /// A look-up was answered.
    pub fn looked_up(&mut self, uid: Arc<str>, owner: Option<ObjectRef>, how: String) {
        self.looked_up.insert(uid, (owner, how));
    }

    /// The answer to a look-up: the owner if there is one, and how it was found.
    pub fn answer(&self, uid: &str) -> Option<&(Option<ObjectRef>, String)> {
        self.looked_up.get(uid)
    }

    /// A `ReplicaSet` exists with this content.
    pub fn replica_set(&mut self, facts: Arc<ReplicaSetFacts>) {
        let known = self.replica_sets.get(&facts.uid);
        let mut wanted = known.map(|known| known.wanted.clone()).unwrap_or_default();
        wanted.observe(version(&facts.resource_version), facts.wanted, facts.replicas);
        let older =
            known.filter(|known| is_older(&facts.resource_version, &known.facts.resource_version));
        let facts = older.map_or(facts, |known| known.facts.clone());
        self.put_replica_set(ReplicaSet { facts, wanted });
    }

    fn put_replica_set(&mut self, set: ReplicaSet) {
        let facts = &set.facts;
        if let Some(owner) = &facts.owner {
            self.sets_of.entry(owner.uid.clone()).or_default().insert(facts.uid.clone());
        }
        let uid = facts.uid.clone();
        let dropped = self.replica_sets.insert(uid, set);
        if let Some(owner) = dropped.as_ref().and_then(|(_, set)| set.facts.owner.as_ref())
            && let Some(sets) = self.sets_of.get_mut(&owner.uid)
        {
            sets.retain(|uid| self.replica_sets.get(uid).is_some());
            if sets.is_empty() {
                self.sets_of.remove(&owner.uid);
            }
        }
    }

    /// A `ReplicaSet` is gone: it still explains the pods it had, but is among the first to be
    /// forgotten.
    pub fn replica_set_gone(&mut self, facts: Arc<ReplicaSetFacts>) {
        let uid = facts.uid.clone();
        self.replica_set(facts);
        self.replica_sets.retire(&uid);
    }

    /// A workload exists with this content.
    pub fn workload(&mut self, facts: Arc<WorkloadFacts>, at: Mono) {
        let known = self.workloads.get(&facts.object.uid);
        let mut wanted = known.map(|known| known.wanted.clone()).unwrap_or_default();
        wanted.observe(version(&facts.resource_version), facts.wanted, facts.status.replicas);
        let mut workload = Workload {
            fell: known.and_then(|known| known.fell),
            gone: known.and_then(|known| known.gone),
            facts,
            wanted,
        };
        if let Some(known) = known {
            let old = &known.facts;
            if is_older(&workload.facts.resource_version, &old.resource_version) {
                workload.facts = old.clone();
            } else if workload.facts.wanted < old.wanted {
                workload.fell = Some(at);
            }
        }
        self.workloads.insert(workload.facts.object.uid.clone(), workload);
    }

    /// A workload is gone.
    pub fn workload_gone(&mut self, facts: Arc<WorkloadFacts>, at: Mono) {
        let uid = facts.object.uid.clone();
        self.workload(facts, at);
        if let Some(workload) = self.workloads.get_mut(&uid) {
            workload.gone.get_or_insert(at);
            self.workloads.retire(&uid);
        }
    }

    /// When the workload's wanted count last fell.
    pub fn wanted_fell(&self, workload_uid: &str) -> Option<Mono> {
        self.workloads.get(workload_uid).and_then(|workload| workload.fell)
    }

    /// When the workload itself was deleted.
    pub fn workload_deleted(&self, workload_uid: &str) -> Option<Mono> {
        self.workloads.get(workload_uid).and_then(|workload| workload.gone)
    }

    /// A pod by UID.
    pub fn pod_by_uid(&self, uid: &str) -> Option<&Pod> {
        self.pods.get(uid)
    }

    /// All pods known.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.all()
    }

    /// Pods of a workload.
    pub fn pods_of<'a>(&'a self, workload_uid: &str) -> impl Iterator<Item = &'a Pod> {
        let sets = self.sets_of.get(workload_uid).into_iter().flatten();
        sets.flat_map(|set| self.pods.of_owner(set)).chain(self.pods.of_owner(workload_uid))
    }

    /// A workload by UID.
    pub fn workload_by_uid(&self, uid: &str) -> Option<&Arc<WorkloadFacts>> {
        self.workloads.get(uid).map(|workload| &workload.facts)
    }

    /// What directly owns a pod: as the pod itself says, else as a look-up did.
    fn owner_of(&self, uid: &str) -> Option<&ObjectRef> {
        let said = self.pods.get(uid).and_then(|pod| pod.facts.owner.as_ref());
        said.or_else(|| self.looked_up.get(uid).and_then(|(owner, _)| owner.as_ref()))
    }

    /// The workload of a pod, though its revision may be unknown.
    pub fn workload_of(&self, uid: &str) -> Option<WorkloadKey> {
        let owner = self.owner_of(uid)?;
        if let Some(ReplicaSet { facts: set, .. }) = self.replica_sets.get(&owner.uid) {
            return Some(key(&set.namespace, set.owner.as_ref()?));
        }
        let workload = &self.workloads.get(&owner.uid)?.facts;
        Some(key(&workload.namespace, &workload.object))
    }

    /// The workload and revision of a pod: through the pod itself, else through a look-up.
    pub fn place(&self, uid: &str) -> Option<Place> {
        let owner = self.owner_of(uid)?;
        let workload = self.workload_of(uid)?;
        let hash = match self.replica_sets.get(&owner.uid) {
            Some(set) => set.facts.template_hash.clone(),
            None => self.pods.get(uid).map(|pod| pod.facts.revision_hash.clone())?,
        };
        (!hash.is_empty()).then(|| Place { workload, hash, owner: owner.clone() })
    }

    /// Who removed a pod: its owner, if that wanted fewer than there were. `existed` tells whether
    /// another pod of the owner was there before this one left.
    pub fn remover(&self, uid: &str, existed: impl Fn(&Pod) -> bool) -> Remover {
        let (Some(pod), Some(owner)) = (self.pods.get(uid), self.owner_of(uid)) else {
            return Remover::Unclear;
        };
        let (wanted, replicas) = match self.replica_sets.get(&owner.uid) {
            Some(set) => (&set.wanted, set.facts.replicas),
            None => match self.workloads.get(&owner.uid) {
                Some(workload) => (&workload.wanted, workload.facts.status.replicas),
                None => return Remover::Unclear,
            },
        };
        let Some(deleted) = pod.deletion_version else { return Remover::Unclear };
        let (seen_before, seen_after) = wanted.around(deleted);
        let siblings =
            || self.pods.of_owner(&owner.uid).filter(|other| other.facts.uid != pod.facts.uid);
        let begun = |other: &&Pod| {
            other.first_version.is_some_and(|first| first <= deleted) || existed(other)
        };
        let before = siblings().filter(|other| other.was_there(deleted) == Some(true));
        let long_gone = |other: &Pod| {
            let (gone, seen) = (other.gone, pod.deletion_seen);
            gone.zip(seen).is_some_and(|(gone, seen)| seen.since(gone) >= UNSEEN_NANOS)
        };
        let perhaps =
            siblings().filter(|other| other.was_there(deleted).is_none() && !long_gone(other));
        let were = 1 + count(before.filter(begun));
        let at_most = were + count(perhaps.filter(begun));
        let fits = |counts: Counts| match (were > counts.wanted, at_most > counts.wanted) {
            (true, _) => Fits::Owner,
            (false, false) => Fits::Other,
            (false, true) => Fits::Either,
        };
        match (seen_before.map(fits), seen_after.map(fits)) {
            (Some(Fits::Owner), Some(Fits::Owner) | None) | (None, Some(Fits::Owner)) => {
                return Remover::Owner;
            }
            (Some(Fits::Other), Some(Fits::Other)) => {}
            // It changed around the deletion, or may have: either fits.
            _ => return Remover::Unclear,
        }
        // Fewer than there were, or fewer than are known? By what it had then, and by what it has.
        let had = seen_before.into_iter().chain(seen_after).map(|counts| counts.had).max();
        if had.is_none_or(|had| were < had) {
            return Remover::Unclear;
        }
        let living = siblings().filter(|other| !other.is_leaving() && !other.facts.finished);
        if count(living) >= replicas { Remover::Other } else { Remover::Unclear }
    }

    /// `ReplicaSet`s of a workload.
    pub fn replica_sets_of<'a>(
        &'a self,
        workload_uid: &str,
    ) -> impl Iterator<Item = &'a Arc<ReplicaSetFacts>> {
        let sets = self.sets_of.get(workload_uid).into_iter().flatten();
        sets.filter_map(|uid| self.replica_sets.get(uid)).map(|set| &set.facts)
    }

    /// The revision that a workload is going to: of `ReplicaSet`s the one with the highest revision
    /// annotation (the Deployment's own can lag behind), of the others what their status says.
    pub fn target(&self, workload_uid: &str) -> Option<Revision> {
        let sets = self.replica_sets_of(workload_uid).filter(|set| !set.template_hash.is_empty());
        if let Some(set) = sets.max_by_key(|set| (set.revision, set.created)) {
            return Some(revision(set));
        }
        let workload = self.workload_by_uid(workload_uid)?;
        let hash = workload.status.update_revision.clone();
        (!hash.is_empty()).then(|| Revision {
            revision: workload.status.revision,
            hash,
            images: workload.images.clone(),
            template: workload.template.clone(),
        })
    }

    /// The workload's revision of this hash, as far as it is known.
    pub fn revision_of(&self, workload_uid: &str, hash: &Arc<str>) -> Revision {
        let set = self.replica_sets_of(workload_uid).find(|set| set.template_hash == *hash);
        set.map_or_else(
            || Revision { hash: hash.clone(), ..Revision::default() },
            |set| revision(set),
        )
    }

    /// The workload's key, if anything of it is known.
    pub fn key_of(&self, workload_uid: &str) -> Option<WorkloadKey> {
        if let Some(workload) = self.workload_by_uid(workload_uid) {
            return Some(key(&workload.namespace, &workload.object));
        }
        let set = self.replica_sets_of(workload_uid).next()?;
        Some(key(&set.namespace, set.owner.as_ref()?))
    }

    /// How many of each had to go for want of room.
    pub fn forgotten(&self) -> [u64; 4] {
        [
            self.pods.forgotten(),
            self.looked_up.forgotten(),
            self.replica_sets.forgotten(),
            self.workloads.forgotten(),
        ]
    }

    /// How many pods, look-ups, `ReplicaSet`s and workloads are remembered.
    pub fn sizes(&self) -> [usize; 4] {
        [self.pods.len(), self.looked_up.len(), self.replica_sets.len(), self.workloads.len()]
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}

/// Who may have removed a pod, by one wanted count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fits {
    Owner,
    Other,
    Either,
}

/// A `ReplicaSet`'s revision.
pub fn revision(set: &ReplicaSetFacts) -> Revision {
    Revision {
        revision: set.revision,
        hash: set.template_hash.clone(),
        images: set.images.clone(),
        template: set.template.clone(),
    }
}

fn key(namespace: &Arc<str>, object: &ObjectRef) -> WorkloadKey {
    WorkloadKey {
        namespace: namespace.clone(),
        kind: object.kind.clone(),
        name: object.name.clone(),
        uid: object.uid.clone(),
    }
}
