//! Rollouts as they are observed: which began, which is complete, whose old pods are gone.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    model::{Clock, Mono, Revision, Rollout, RolloutId, WorkloadFacts, WorkloadKey},
    owners::{Owners, revision},
};

/// The most rollouts remembered; the first started go first.
const MAX_ROLLOUTS: usize = 1_000;

/// A revision made at most this long before it was first observed is a rollout that was missed, not
/// the state of things.
const RECENT_NANOS: u64 = 600 * 1_000_000_000;

/// All rollouts observed.
#[derive(Clone, Debug, Default)]
pub struct Rollouts {
    by_id: BTreeMap<RolloutId, Rollout>,
    /// Oldest first.
    order: Vec<RolloutId>,
    /// Per workload UID: the target last seen, and how often each target was.
    seen: BTreeMap<Arc<str>, Seen>,
}

#[derive(Clone, Debug)]
struct Seen {
    target: Revision,
    times: BTreeMap<Arc<str>, u32>,
}

impl Rollouts {
    /// Looks at a workload again after something of it changed.
    pub fn observe(&mut self, workload_uid: &str, owners: &Owners, clock: &Clock, at: Mono) {
        let (Some(key), Some(target)) = (owners.key_of(workload_uid), owners.target(workload_uid)) else {
            return;
        };
        match self.seen.get(workload_uid).map(|seen| seen.target.clone()) {
            Some(before) if before.hash != target.hash => {
                self.begin(&key, Some(before), target, at);
            }
            // The ReplicaSets of a workload arrive one by one: a rollout under way shows only when
            // the older one is there too.
            _ if self.of(workload_uid).next().is_none() => {
                self.first_look(&key, &target, owners, clock, at);
            }
            _ => {}
        }
        if let Some(facts) = owners.workload_by_uid(workload_uid)
            && let Some(rollout) = self.latest_mut(workload_uid)
            && rollout.completed.is_none()
            && is_complete(facts, &rollout.to)
        {
            rollout.completed = Some(at);
        }
        self.look_for_old_pods(workload_uid, owners);
    }

    /// What a workload looks like when it is first observed: at rest, or in a rollout.
    fn first_look(&mut self, key: &WorkloadKey, target: &Revision, owners: &Owners, clock: &Clock, at: Mono) {
        let older = owners
            .replica_sets_of(&key.uid)
            .filter(|set| set.template_hash != target.hash)
            .max_by_key(|set| (set.replicas > 0, set.revision));
        let newest = owners.replica_sets_of(&key.uid).find(|set| set.template_hash == target.hash);
        self.seen.remove(&key.uid);
        let Some((older, newest)) = older.zip(newest) else {
            self.note(key, target);
            return;
        };
        let created = newest.created.map(|wall| clock.mono(wall));
        let recent = created.is_some_and(|created| at.since(created) < RECENT_NANOS);
        if older.replicas > 0 || older.wanted > 0 || recent {
            // Of a rollback the ReplicaSet is old: then the first observation is all there is.
            let start = created.filter(|created| recent && *created < at).unwrap_or(at);
            self.begin(key, Some(revision(older)), target.clone(), start);
        } else {
            self.note(key, target);
        }
    }

    fn note(&mut self, key: &WorkloadKey, target: &Revision) -> u32 {
        let seen = self
            .seen
            .entry(key.uid.clone())
            .or_insert_with(|| Seen { target: target.clone(), times: BTreeMap::new() });
        seen.target = target.clone();
        let times = seen.times.entry(target.hash.clone()).or_insert(0);
        *times += 1;
        *times
    }

    fn begin(&mut self, key: &WorkloadKey, from: Option<Revision>, to: Revision, at: Mono) {
        if let Some(before) = self.latest_mut(&key.uid)
            && before.completed.is_none()
        {
            before.superseded = true;
        }
        let ordinal = self.note(key, &to);
        let id = RolloutId { workload_uid: key.uid.clone(), target: to.hash.clone(), ordinal };
        let rollout = Rollout {
            id: id.clone(),
            workload: key.clone(),
            from,
            to,
            started: at,
            completed: None,
            superseded: false,
            last_old_pod_gone: None,
            failures_by_phase: BTreeMap::new(),
            attempts: 0,
            first_failure: None,
            last_failure: None,
            convergence: Vec::new(),
        };
        self.by_id.insert(id.clone(), rollout);
        self.order.push(id);
        if self.order.len() > MAX_ROLLOUTS {
            let oldest = self.order.remove(0);
            self.by_id.remove(&oldest);
        }
    }

    /// The last old pod is gone when the rollout is complete, no `ReplicaSet` of another revision
    /// has pods, and every pod of another revision that was seen is gone.
    fn look_for_old_pods(&mut self, workload_uid: &str, owners: &Owners) {
        let Some(rollout) = self.latest_mut(workload_uid) else { return };
        if rollout.completed.is_none() || rollout.last_old_pod_gone.is_some() {
            return;
        }
        let target = rollout.to.hash.clone();
        if owners
            .replica_sets_of(workload_uid)
            .any(|set| set.template_hash != target && (set.replicas > 0 || set.wanted > 0))
        {
            return;
        }
        let mut last = None;
        for pod in owners.pods() {
            let Some(place) = owners.place(&pod.facts.uid) else { continue };
            if &*place.workload.uid != workload_uid || place.hash == target {
                continue;
            }
            match pod.gone {
                None => return,
                gone => last = last.max(gone),
            }
        }
        rollout.last_old_pod_gone = last;
    }

    /// A rollout.
    pub fn get(&self, id: &RolloutId) -> Option<&Rollout> {
        self.by_id.get(id)
    }

    /// A rollout, to add to it.
    pub fn get_mut(&mut self, id: &RolloutId) -> Option<&mut Rollout> {
        self.by_id.get_mut(id)
    }

    /// All of them, oldest first.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Rollout> {
        self.order.iter().filter_map(|id| self.by_id.get(id))
    }

    /// Rollouts of a workload, oldest first.
    pub fn of<'a>(&'a self, workload_uid: &'a str) -> impl DoubleEndedIterator<Item = &'a Rollout> {
        self.all().filter(move |rollout| &*rollout.workload.uid == workload_uid)
    }

    fn latest_mut(&mut self, workload_uid: &str) -> Option<&mut Rollout> {
        let id = self.order.iter().rev().find(|id| &*id.workload_uid == workload_uid)?;
        self.by_id.get_mut(id)
    }

    /// Whether a workload needs to be followed no longer: nothing of it is in flight.
    pub fn is_settled(&self, workload_uid: &str) -> bool {
        self.of(workload_uid).next_back().is_none_or(|rollout| rollout.last_old_pod_gone.is_some())
    }
}

/// Whether `kubectl rollout status` would return (polymorphichelpers/rollout_status.go).
fn is_complete(workload: &WorkloadFacts, target: &Revision) -> bool {
    let status = &workload.status;
    if workload.held || status.observed_generation < workload.generation {
        return false;
    }
    // The watches of the workload and of its ReplicaSets are not ordered among each other: a status
    // from before the target's ReplicaSet speaks of the rollout before.
    if status.revision < target.revision {
        return false;
    }
    match &*workload.object.kind {
        "StatefulSet" => {
            let share = workload.wanted - status.partition;
            status.update_revision == target.hash
                && if status.partition > 0 {
                    status.updated >= share
                } else {
                    status.current_revision == status.update_revision
                        && status.available >= workload.wanted
                }
        }
        "DaemonSet" => status.updated >= workload.wanted && status.available >= workload.wanted,
        _ => {
            status.updated >= workload.wanted
                && status.replicas <= status.updated
                && status.available >= status.updated
        }
    }
}
