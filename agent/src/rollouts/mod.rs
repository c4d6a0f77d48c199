//! Rollouts as they are observed: which began, which is complete, whose old pods are gone.
//!
//! # Layout
//! - `complete`: when one is complete
//! - `recall`: what of them outlives the agent

mod complete;
mod recall;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use complete::is_complete;
pub use recall::KeptRollouts;
use serde::{Deserialize, Serialize};

use crate::{
    model::{Clock, EventState, Mono, Revision, Rollout, RolloutId, WorkloadKey},
    owners::{MAX_OWNERS, Owners, Place, remembered::Remembered, revision},
};

/// The most rollouts remembered; the first started go first.
pub const MAX_ROLLOUTS: usize = 1_000;

/// The most targets of one workload of which it is known how often each was one.
const MAX_TARGETS: usize = 64;

/// A revision made at most this long before it was first observed is a rollout that was missed, not
/// the state of things.
const RECENT_NANOS: u64 = 600 * 1_000_000_000;

/// How much later than a departure the begin of its rollout may be seen: two watches deliver in any
/// order.
const REORDER_NANOS: u64 = 1_000_000_000;

/// How long after completion it is waited for old pods of which nothing was ever seen.
const UNSEEN_NANOS: u64 = 120 * 1_000_000_000;

/// How long after a rollout was turned back its controller may still act for it.
const TURNED_BACK_NANOS: u64 = 5_000_000_000;

/// Resolution of the API's times.
const RESOLUTION_NANOS: u64 = 1_000_000_000;

/// So long after a workload was first looked at, what is seen of it is news.
const LISTED_NANOS: u64 = 10_000_000_000;

/// How long before it was first observed a rollout may have begun: the longest that the API server
/// may be away, and then some.
const LATE_NANOS: u64 = 120 * 1_000_000_000;

/// All rollouts observed.
#[derive(Clone, Debug)]
pub struct Rollouts {
    by_id: BTreeMap<RolloutId, Rollout>,
    /// Oldest first.
    order: Vec<RolloutId>,
    /// Those that were complete when they were first observed: when they were is known from the
    /// endpoints only.
    found_complete: BTreeSet<RolloutId>,
    /// Per workload UID: the target last seen, and how often each target was.
    seen: Remembered<Seen>,
    /// Rollouts forgotten for want of room.
    pub forgotten: u64,
    /// Of these, those whose Kubernetes Event was not written yet.
    pub forgotten_events: u64,
    /// Targets of a workload forgotten for want of room.
    pub forgotten_targets: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Seen {
    target: Revision,
    /// The workload's generation when the target was noted or last seen complete.
    generation: i64,
    /// When the workload was first looked at.
    noted: Mono,
    times: BTreeMap<Arc<str>, u32>,
}

/// When a rollout began.
#[derive(Clone, Copy)]
struct Begun {
    started: Mono,
    not_before: Option<Mono>,
}

impl Default for Rollouts {
    fn default() -> Self {
        Self {
            by_id: BTreeMap::new(),
            order: Vec::new(),
            found_complete: BTreeSet::new(),
            seen: Remembered::new(MAX_OWNERS),
            forgotten: 0,
            forgotten_events: 0,
            forgotten_targets: 0,
        }
    }
}

impl Rollouts {
    /// Looks at a workload again after something of it changed.
    pub fn observe(&mut self, workload_uid: &str, owners: &Owners, clock: &Clock, at: Mono) {
        let (Some(key), Some(target)) = (owners.key_of(workload_uid), owners.target(workload_uid))
        else {
            return;
        };
        let is_first = match self.seen.get(workload_uid).map(|seen| seen.target.clone()) {
            None => {
                self.first_look(&key, &target, owners, clock, at);
                true
            }
            Some(before) if before.hash != target.hash => {
                let noted = self.seen.get(workload_uid).map_or(at, |seen| seen.noted);
                let made = created(&target, owners, &key.uid, clock, at);
                // Just after the first look lists are still coming in: this may be the state of
                // things, of a rollout that began before. Not so where it goes back to the older of two
                // ReplicaSets, whose age tells nothing.
                let older = created(&before, owners, &key.uid, clock, at);
                let made = made.filter(|made| older.is_none_or(|older| older < *made));
                let begun = match made {
                    _ if at.since(noted) >= LISTED_NANOS => {
                        Begun { started: at, not_before: Some(at) }
                    }
                    Some(made) if noted.since(made) >= RESOLUTION_NANOS => {
                        Begun { started: made, not_before: made.into() }
                    }
                    made => Begun { started: at, not_before: made },
                };
                self.begin(&key, Some(before), target, begun);
                false
            }
            Some(_) => false,
        };
        self.look_for_completion(workload_uid, owners, at, is_first);
        self.look_for_old_pods(workload_uid, owners);
    }

    /// What a workload looks like when it is first observed: at rest, or in a rollout.
    fn first_look(
        &mut self,
        key: &WorkloadKey,
        target: &Revision,
        owners: &Owners,
        clock: &Clock,
        at: Mono,
    ) {
        // A StatefulSet says itself whether it is under way.
        if let Some(workload) = owners.workload_by_uid(&key.uid)
            && !workload.status.current_revision.is_empty()
            && workload.status.current_revision != target.hash
        {
            let from = owners.revision_of(&key.uid, &workload.status.current_revision);
            self.begin(key, Some(from), target.clone(), Begun { started: at, not_before: None });
            return;
        }
        let sets = || owners.replica_sets_of(&key.uid);
        let older = sets()
            .filter(|set| set.template_hash != target.hash)
            .max_by_key(|set| (set.replicas > 0 || set.wanted > 0, set.revision));
        let newest = sets().find(|set| set.template_hash == target.hash);
        let Some((older, _)) = older.zip(newest) else {
            self.note(key, target, at);
            return;
        };
        let recent = created(target, owners, &key.uid, clock, at);
        if older.replicas > 0 || older.wanted > 0 || recent.is_some() {
            // Of a rollback the ReplicaSet is old: then the first observation is all there is.
            let begun = Begun { started: recent.unwrap_or(at), not_before: recent };
            self.begin(key, Some(revision(older)), target.clone(), begun);
        } else {
            self.note(key, target, at);
        }
    }

    /// A pod of this place left: if no rollout explains that one of a revision which is not current
    /// was there, one was missed, or it began before it was first observed.
    pub fn departed(
        &mut self,
        place: &Place,
        owners: &Owners,
        clock: &Clock,
        left: Mono,
        at: Mono,
    ) {
        let uid = &place.workload.uid;
        let Some(target) = owners.target(uid).filter(|target| target.hash != place.hash) else {
            return;
        };
        let first = self.order.iter().find(|id| id.workload_uid == *uid).cloned();
        match first {
            // A rollback observed late: the ReplicaSet's age says nothing, the departure does.
            None if self.seen.get(uid).is_some() => {
                let from = owners.revision_of(uid, &place.hash);
                // It was noted as the state of things: this is the same time, not another.
                if let Some(seen) = self.seen.get_mut(uid) {
                    seen.times.remove(&target.hash);
                    seen.generation = 0;
                }
                let not_before = created(&target, owners, uid, clock, at);
                self.begin(
                    &place.workload,
                    Some(from),
                    target,
                    Begun { started: left, not_before },
                );
                self.look_for_completion(uid, owners, at, true);
            }
            Some(id) => {
                if let Some(first) = self.by_id.get_mut(&id)
                    && first.to.hash != place.hash
                    && first.from.as_ref().is_some_and(|from| from.hash == place.hash)
                    && first.started.since(left) < LATE_NANOS
                {
                    first.started = first.started.min(left);
                    first.not_before = first.not_before.map(|begun| begun.min(left));
                }
            }
            None => {}
        }
    }

    fn note(&mut self, key: &WorkloadKey, target: &Revision, at: Mono) -> u32 {
        let mut seen = self.seen.get(&key.uid).cloned().unwrap_or_else(|| Seen {
            target: target.clone(),
            generation: 0,
            noted: at,
            times: BTreeMap::new(),
        });
        seen.target = target.clone();
        if seen.times.len() >= MAX_TARGETS && !seen.times.contains_key(&target.hash) {
            seen.times.pop_first();
            self.forgotten_targets += 1;
        }
        let times = seen.times.entry(target.hash.clone()).or_insert(0);
        *times += 1;
        let times = *times;
        self.seen.insert(key.uid.clone(), seen);
        times
    }

    fn begin(&mut self, key: &WorkloadKey, from: Option<Revision>, to: Revision, begun: Begun) {
        let Begun { started, not_before } = begun;
        if let Some(before) = self.latest_mut(&key.uid)
            && before.completed.is_none()
        {
            before.superseded = true;
        }
        let ordinal = self.note(key, &to, started);
        let id = RolloutId { workload_uid: key.uid.clone(), target: to.hash.clone(), ordinal };
        let rollout = Rollout {
            id,
            workload: key.clone(),
            from,
            to,
            started,
            not_before,
            completed: None,
            superseded: false,
            last_old_pod_gone: None,
            failures_by_phase: BTreeMap::new(),
            failures_by_side: BTreeMap::new(),
            failures_by_client: BTreeMap::new(),
            attempts: 0,
            first_failure: None,
            last_failure: None,
            convergence: Vec::new(),
            event: EventState::None,
        };
        self.put(rollout);
    }

    /// Adds it as the newest.
    fn put(&mut self, rollout: Rollout) {
        let id = rollout.id.clone();
        if self.by_id.insert(id.clone(), rollout).is_some() {
            self.order.retain(|known| *known != id);
        }
        self.order.push(id);
        if self.order.len() > MAX_ROLLOUTS {
            let oldest = self.order.remove(0);
            self.forgotten += 1;
            let removed = self.by_id.remove(&oldest);
            let was_told = removed.is_none_or(|rollout| !rollout.event.is_open());
            self.forgotten_events += u64::from(!was_told);
            self.found_complete.remove(&oldest);
        }
    }

    fn look_for_completion(
        &mut self,
        workload_uid: &str,
        owners: &Owners,
        at: Mono,
        is_first: bool,
    ) {
        let Some(facts) = owners.workload_by_uid(workload_uid) else { return };
        let Some(seen) = self.seen.get_mut(workload_uid) else { return };
        if !is_complete(facts, &seen.target) {
            return;
        }
        // A DaemonSet's status does not say which revision it is about; a new one comes with a new
        // generation.
        let is_news = &*facts.object.kind != "DaemonSet" || facts.generation > seen.generation;
        let target = seen.target.hash.clone();
        let open = self
            .latest_mut(workload_uid)
            .filter(|rollout| rollout.completed.is_none() && rollout.to.hash == target);
        match open {
            Some(rollout) if is_news => {
                rollout.completed = Some(at);
                let id = rollout.id.clone();
                if is_first {
                    self.found_complete.insert(id);
                }
            }
            Some(_) => return,
            None => {}
        }
        if let Some(seen) = self.seen.get_mut(workload_uid) {
            seen.generation = facts.generation;
        }
    }

    /// The last old pod is gone when the rollout is complete, no `ReplicaSet` of another revision
    /// has pods, and every pod of another revision that was seen is gone.
    fn look_for_old_pods(&mut self, workload_uid: &str, owners: &Owners) {
        let Some(rollout) = self.latest_mut(workload_uid) else { return };
        if rollout.completed.is_none() || rollout.last_old_pod_gone.is_some() {
            return;
        }
        if let OldPods::Gone(last) = old_pods(workload_uid, &rollout.to.hash, owners) {
            rollout.last_old_pod_gone = Some(last);
        }
    }

    /// Dates the completion of a rollout that was complete when first observed by what it must have
    /// come after: `last_step` tells it, the last new pod's readiness or old pod's departure.
    pub fn date_completion(
        &mut self,
        workload_uid: &str,
        last_step: impl FnOnce(&Rollout) -> Option<Mono>,
    ) {
        let found_complete = &self.found_complete;
        let id = self.order.iter().rev().find(|id| &*id.workload_uid == workload_uid);
        let Some(id) = id.filter(|id| found_complete.contains(*id)) else { return };
        if let Some(rollout) = self.by_id.get_mut(id)
            && let Some(step) = last_step(rollout)
        {
            rollout.completed = rollout.completed.min(Some(step.max(rollout.started)));
        }
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

    /// All of them, to change them.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Rollout> {
        self.by_id.values_mut()
    }

    /// Rollouts of a workload, oldest first.
    pub fn of<'a>(&'a self, workload_uid: &str) -> impl DoubleEndedIterator<Item = &'a Rollout> {
        self.all().filter(move |rollout| &*rollout.workload.uid == workload_uid)
    }

    /// The rollout by which a pod of this revision had to go when it left: the last that had begun,
    /// if that goes elsewhere, or one that was seen to begin just after.
    pub fn removing(&self, workload_uid: &str, hash: &str, left: Mono) -> Option<&Rollout> {
        let in_force = self.in_force(workload_uid, left);
        in_force.filter(|rollout| &*rollout.to.hash != hash).or_else(|| {
            self.following(workload_uid, hash, left)
                .filter(|next| next.started.since(left) < REORDER_NANOS)
        })
    }

    /// The first rollout away from this revision that began after something left.
    pub fn following(&self, workload_uid: &str, hash: &str, left: Mono) -> Option<&Rollout> {
        let mut later = self.of(workload_uid).filter(|rollout| rollout.started > left);
        later.find(|rollout| rollout.from.as_ref().is_some_and(|from| &*from.hash == hash))
    }

    /// The rollout away from this revision that one back to it has just replaced: what the controller
    /// does first, it may still do for that one.
    pub fn turned_back(&self, workload_uid: &str, hash: &str, left: Mono) -> Option<&Rollout> {
        let mut begun = self.of(workload_uid).rev().skip_while(|rollout| rollout.started > left);
        let back = begun.next().filter(|back| &*back.to.hash == hash)?;
        let before = begun.next()?;
        let leads_away = before.superseded && &*before.to.hash != hash;
        (leads_away && left.since(back.started) < TURNED_BACK_NANOS).then_some(before)
    }

    fn in_force(&self, workload_uid: &str, left: Mono) -> Option<&Rollout> {
        self.of(workload_uid).rev().find(|rollout| rollout.started <= left)
    }

    /// The revision that was current when something left.
    pub fn current_at(&self, workload_uid: &str, left: Mono) -> Option<&Revision> {
        if let Some(rollout) = self.in_force(workload_uid, left) {
            return Some(&rollout.to);
        }
        // Before the first rollout: where that came from; without any, what there is.
        match self.of(workload_uid).next() {
            Some(first) => first.from.as_ref(),
            None => self.seen.get(workload_uid).map(|seen| &seen.target),
        }
    }

    fn latest_mut(&mut self, workload_uid: &str) -> Option<&mut Rollout> {
        let id = self.order.iter().rev().find(|id| &*id.workload_uid == workload_uid)?;
        self.by_id.get_mut(id)
    }

    /// Whether a workload needs to be followed no longer: nothing of it is in flight.
    pub fn is_settled(&self, workload_uid: &str, owners: &Owners, now: Mono) -> bool {
        let Some(latest) = self.of(workload_uid).next_back() else { return true };
        let Some(completed) = latest.completed else { return false };
        latest.last_old_pod_gone.is_some()
            || now.since(completed) >= UNSEEN_NANOS
                && matches!(old_pods(workload_uid, &latest.to.hash, owners), OldPods::NeverSeen)
    }

    /// Workloads forgotten for want of room.
    pub fn forgotten_workloads(&self) -> u64 {
        self.seen.forgotten()
    }

    /// How many workloads are known.
    pub fn workloads(&self) -> usize {
        self.seen.len()
    }
}

/// When the `ReplicaSet` of a revision was made, if that was of late. Of a rollback it is old, and a
/// time in the future is a clock that was stepped.
fn created(
    target: &Revision,
    owners: &Owners,
    workload_uid: &str,
    clock: &Clock,
    at: Mono,
) -> Option<Mono> {
    let mut sets = owners.replica_sets_of(workload_uid);
    let wall = sets.find(|set| set.template_hash == target.hash)?.created?;
    let created = clock.mono(wall);
    (created <= at && at.since(created) < RECENT_NANOS).then_some(created)
}

/// Pods of revisions that are not the target.
enum OldPods {
    Living,
    NeverSeen,
    Gone(Mono),
}

fn old_pods(workload_uid: &str, target: &Arc<str>, owners: &Owners) -> OldPods {
    let old_sets = owners.replica_sets_of(workload_uid).filter(|set| set.template_hash != *target);
    if old_sets.into_iter().any(|set| set.replicas > 0 || set.wanted > 0) {
        return OldPods::Living;
    }
    let mut last = None;
    for pod in owners.pods_of(workload_uid) {
        let place = owners.place(&pod.facts.uid);
        if place.is_none_or(|place| place.hash == *target) {
            continue;
        }
        match pod.gone {
            // One that ended by itself may stay for ever; one that is being deleted goes soon.
            None if pod.facts.finished && pod.deletion_seen.is_none() => {}
            None => return OldPods::Living,
            gone => last = last.max(gone),
        }
    }
    last.map_or(OldPods::NeverSeen, OldPods::Gone)
}
