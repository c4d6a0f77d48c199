//! The endpoint left: why?

use super::{Blame, Known, words};
use crate::{
    attempts::Failed,
    endpoints::{Lifetime, WATCH_LAG_NANOS},
    model::{Cause, Mono, Rollout, Side},
    owners::{Place, Pod, Remover},
};

/// How much earlier than its pod's deletion an attempt may have begun and still be due to it: the
/// clocks of two machines agree no better.
const BEFORE_DELETION_NANOS: u64 = 100_000_000;

/// A replica count that fell this long before a departure explains it.
const SCALE_DOWN_NANOS: u64 = 60_000_000_000;

/// How long a departure's circumstances are waited for where they could still change the verdict:
/// a replacement, a falling count, the begin of a rollout, each by a watch of its own.
const SETTLE_NANOS: u64 = 5_000_000_000;

/// How long the pod's own last content is waited for, which may tell of an eviction.
const FACTS_NANOS: u64 = 3_000_000_000;

/// How far apart a restart and a failure may be seen and still belong together: the kubelet
/// restarts at once, then after 10 s, 20 s and so on.
pub(super) const RESTART_NANOS: u64 = 30_000_000_000;

/// When the endpoint left, if that explains the failure: not if it was only deleted later.
pub(super) fn explains(failed: &Failed, life: &Lifetime, pod: Option<&Pod>) -> Option<Mono> {
    let left = life.left?;
    let not_before = life.left_after.unwrap_or(left);
    // The API's times have a resolution of 1 s, and are truncated. Without one: what is seen of a
    // departure is seen late, never early.
    let deletion = pod.and_then(|pod| pod.deletion(life.terminating, not_before));
    // It may have been not ready before it was deleted.
    let earliest = deletion.map_or(not_before, |deletion| deletion.min(left));
    (failed.moment().plus(BEFORE_DELETION_NANOS) >= earliest).then_some(left)
}

/// Whether a restart belongs to what happened then.
pub(super) fn restart(pod: Option<&Pod>, moment: Mono) -> Option<Mono> {
    let restarted = pod?.restarted?;
    let apart = restarted.since(moment).max(moment.since(restarted));
    (apart < RESTART_NANOS).then_some(restarted)
}

/// Names the cause of a departure, if that is known by now.
pub(super) fn blame(
    blame: &mut Blame,
    failed: &Failed,
    life: &Lifetime,
    left: Mono,
    place: Option<&Place>,
    known: &Known<'_>,
) -> bool {
    blame.because(format!("{} left {}", words::name(life), words::apart(left, failed)));
    let pod = life.pod.as_ref().and_then(|pod| known.owners.pod_by_uid(&pod.uid));
    if let Some(reason) = pod.and_then(|pod| pod.facts.disruption.as_ref()) {
        blame.because(format!("its DisruptionTarget condition says {reason}"));
        return blame.is(Cause::Eviction);
    }
    let is_leaving = pod.is_some_and(Pod::is_leaving);
    if !is_leaving && !life.was_removed() {
        if let Some(restarted) = restart(pod, failed.moment()) {
            blame.because(format!(
                "a container of it restarted {}",
                words::apart(restarted, failed)
            ));
            return blame.is(Cause::Restart);
        }
        blame.because("it was not ready, but nobody removed it".to_owned());
        return false;
    }
    if !is_leaving && known.now.since(failed.ended) < FACTS_NANOS {
        return false;
    }
    let Some(place) = place else { return false };
    if known.owners.workload_deleted(&place.workload.uid).is_some() {
        blame.because(format!("{} {} was deleted", place.workload.kind, place.workload.name));
        return blame.is(Cause::Deleted);
    }
    let departure = Departure {
        place,
        left,
        settled: known.now.since(left) >= SETTLE_NANOS,
        remover: remover(life, left, known),
    };
    let workload = &place.workload.uid;
    if let Some(rollout) = known.rollouts.removing(workload, &place.hash, left) {
        return departure.of_old(blame, rollout);
    }
    let current = known.rollouts.current_at(workload, left);
    current.is_some_and(|current| current.hash == place.hash) && departure.of_current(blame, known)
}

fn remover(life: &Lifetime, left: Mono, known: &Known<'_>) -> Remover {
    let Some(pod) = &life.pod else { return Remover::Unclear };
    known.owners.remover(&pod.uid, |other| {
        let mut lives = known.endpoints.of_pod(&other.facts.uid);
        lives.any(|life| life.first_seen <= left && life.gone.is_none_or(|gone| gone >= left))
    })
}

struct Departure<'a> {
    place: &'a Place,
    left: Mono,
    settled: bool,
    remover: Remover,
}

impl Departure<'_> {
    /// A pod of a revision that was not current: its controller removed it, unless its `ReplicaSet`
    /// wanted it to stay.
    fn of_old(&self, blame: &mut Blame, rollout: &Rollout) -> bool {
        match self.remover {
            Remover::Other if self.counts() && self.settled => {
                blame.because(format!("{} wanted it to stay", self.owner()));
                blame.is(Cause::Deleted)
            }
            Remover::Other | Remover::Unclear if self.counts() && !self.settled => false,
            _ => self.by_rollout(blame, rollout),
        }
    }

    /// A pod of the revision that was current, as far as was known then.
    fn of_current(&self, blame: &mut Blame, known: &Known<'_>) -> bool {
        let Place { workload, hash, .. } = self.place;
        let fell = known.owners.wanted_fell(&workload.uid).is_some_and(|fell| {
            self.left.plus(SETTLE_NANOS) >= fell && self.left.since(fell) < SCALE_DOWN_NANOS
        });
        let is_scaled_down = fell && self.remover == Remover::Owner;
        if !(self.settled || is_scaled_down) {
            return false;
        }
        // The rollout's begin may have come by a slower watch than the departure.
        let next = known.rollouts.following(&workload.uid, hash, self.left);
        let next = next.filter(|next| next.started.since(self.left) < WATCH_LAG_NANOS);
        let by_rollout = self.remover == Remover::Owner || !self.counts();
        let turned_back =
            known.rollouts.turned_back(&workload.uid, hash, self.left).filter(|_| self.counts());
        match (self.remover, next) {
            (_, Some(next)) if by_rollout && !fell => self.by_rollout(blame, next),
            // Its owner wanted fewer, the workload did not: only a rollout away from it does that.
            (Remover::Owner, None) if !fell && turned_back.is_some() => {
                turned_back.is_some_and(|before| self.by_rollout(blame, before))
            }
            (remover, _) if remover == Remover::Owner || fell && remover == Remover::Unclear => {
                blame.because(format!("the replica count of {} fell", workload.name));
                blame.is(Cause::ScaleDown)
            }
            (Remover::Other, _) => {
                blame.because(format!(
                    "it was of the current revision, and {} wanted it to stay",
                    self.owner()
                ));
                blame.is(Cause::Deleted)
            }
            _ => false,
        }
    }

    /// Whether a rollout shows in the owner's count: a `StatefulSet` and a `DaemonSet` want as many
    /// pods throughout.
    fn counts(&self) -> bool {
        self.place.owner.uid != self.place.workload.uid
    }

    fn by_rollout(&self, blame: &mut Blame, rollout: &Rollout) -> bool {
        let Place { workload, hash, .. } = self.place;
        blame.because(format!(
            "it was of {} ({hash}); {} {}/{} went to {}",
            self.owner(),
            workload.kind,
            workload.namespace,
            workload.name,
            words::revision(&rollout.to),
        ));
        blame.is_rollout(rollout.id.clone(), Side::Old)
    }

    fn owner(&self) -> String {
        format!("{} {}", self.place.owner.kind, self.place.owner.name)
    }
}
