//! How long after a pod's deletion this node still sent fresh connections to it.

use std::{net::SocketAddr, sync::Arc};

use super::{FreshSyns, State};
use crate::{
    endpoints::Lifetime,
    model::{Convergence, Mono, Rollout, RolloutId},
};

/// Resolution of the API's times.
const SECOND: u64 = 1_000_000_000;

/// The most endpoints of one rollout whose convergence is kept.
const MAX_ENDPOINTS: usize = 1_000;

/// Takes the kernel's counts for one backend.
pub(super) fn fresh(state: &mut State, fresh: &FreshSyns) {
    // Addresses are reused: the counts are of whose time the last SYN fell into.
    let lives = state.endpoints.at(fresh.endpoint);
    let last = fresh.last.max(fresh.first_answer.unwrap_or_default());
    let life = lives.iter().rev().find(|life| life.first_seen <= last).or(lives.first());
    let Some(uid) = life.and_then(|life| life.pod.as_ref()).map(|pod| pod.uid.clone()) else {
        return;
    };
    if fresh.first_answer.is_some() || !fresh.answers_forgotten {
        state.endpoints.answered(fresh.endpoint, &uid, fresh.first_answer);
    }
    update(state, fresh.endpoint, &uid, Some(fresh));
}

/// An endpoint left: its convergence is measured from now on.
pub(super) fn endpoint_left(state: &mut State, endpoint: SocketAddr) {
    let now = state.now;
    let lives = state.endpoints.at(endpoint).iter().rev();
    let left = lives.filter(|life| life.left == Some(now)).filter_map(|life| life.pod.as_ref());
    let uids: Vec<Arc<str>> = left.map(|pod| pod.uid.clone()).collect();
    for uid in uids {
        update(state, endpoint, &uid, None);
    }
}

/// A pod's deletion became known, or better known.
pub(super) fn pod_changed(state: &mut State, uid: &str) {
    if state.owners.pod_by_uid(uid).is_none_or(|pod| pod.deleted_at.is_none()) {
        return;
    }
    let lives = state.endpoints.of_pod(uid);
    let endpoints: Vec<SocketAddr> = lives.map(|life| life.endpoint).collect();
    for endpoint in endpoints {
        update(state, endpoint, uid, None);
    }
}

/// A SYN to a leaving pod was answered by a RST: its listener is closed.
pub(super) fn refused(rollout: &mut Rollout, endpoint: SocketAddr, pod: &str, at: Mono) {
    let mut known = rollout.convergence.iter_mut();
    if let Some(known) = known.find(|known| known.endpoint == endpoint && &*known.pod == pod) {
        known.first_refused = Some(known.first_refused.map_or(at, |first| first.min(at)));
    }
}

fn update(state: &mut State, endpoint: SocketAddr, uid: &str, fresh: Option<&FreshSyns>) {
    let Some((id, deletion, mut measured)) = measure(state, endpoint, uid, fresh) else { return };
    let Some(rollout) = state.rollouts.get_mut(&id) else { return };
    let same = |known: &&mut Convergence| known.endpoint == endpoint && known.pod == measured.pod;
    let is_full = rollout.convergence.len() >= MAX_ENDPOINTS;
    match rollout.convergence.iter_mut().find(same) {
        Some(known) => {
            // The deletion may be better known than when the last SYN was.
            let last = measured.last_fresh_syn.max(known.last_fresh_syn);
            measured.last_fresh_syn = last.filter(|last| *last > deletion);
            measured.nanos = measured.last_fresh_syn.map(|last| last.since(deletion));
            measured.fresh_syns_after = measured.fresh_syns_after.max(known.fresh_syns_after);
            measured.first_refused = known.first_refused;
            *known = measured;
        }
        None if is_full => state.unmeasured += 1,
        None => rollout.convergence.push(measured),
    }
}

fn measure(
    state: &State,
    endpoint: SocketAddr,
    uid: &str,
    fresh: Option<&FreshSyns>,
) -> Option<(RolloutId, Mono, Convergence)> {
    let life = state.endpoints.at(endpoint).iter().rev().find(|life| life.is_pod(uid))?;
    let left = life.left?;
    let pod = state.owners.pod_by_uid(uid)?;
    let deleted = pod.deleted_at?;
    let place = state.owners.place(uid)?;
    let rollout = state.rollouts.removing(&place.workload.uid, &place.hash, left)?;
    // Falling back to terminating endpoints is by design, and so is publishing them.
    let excluded = life.services.iter().any(|service| {
        let name = (life.namespace.clone(), service.clone());
        state.endpoints.service_facts(&name).is_some_and(|facts| facts.publish_not_ready)
            || state.endpoints.ready_of(&name) == 0
    });
    // Without a deletion time that can be believed it is not measured: this agent's own sighting is
    // as late as its watch.
    let deletion = pod.deletion(life.terminating, life.left_after.unwrap_or(left))?;
    let seen = life.terminating.into_iter().chain(pod.deletion_seen).min();
    let precision = seen.map_or(SECOND, |seen| seen.since(deletion).min(SECOND));
    // What was in flight when the probes came is seen by its retransmits: they look fresh.
    let was_seen = state.coverage.attached_at().is_none_or(|attached| attached <= deletion);
    let after = fresh.filter(|fresh| !excluded && was_seen && fresh.last > deletion);
    let measured = Convergence {
        endpoint,
        pod: Arc::clone(&pod.facts.name),
        deleted,
        precision_nanos: precision,
        last_fresh_syn: after.map(|fresh| fresh.last),
        nanos: after.map(|fresh| fresh.last.since(deletion)),
        fresh_syns_after: after.map_or(0, |fresh| count_after(fresh, deletion.plus(precision))),
        first_refused: None,
        lag_nanos: told(life, deletion).filter(|_| was_seen).map(|told| told.since(deletion)),
    };
    Some((rollout.id.clone(), deletion, measured))
}

/// When this node was told that a pod's endpoint leaves for its deletion: not when it was merely not
/// ready before.
fn told(life: &Lifetime, deletion: Mono) -> Option<Mono> {
    let told = life.left.into_iter().chain(life.terminating).chain(life.gone);
    told.filter(|told| *told >= deletion).min()
}

/// Fresh SYNs that certainly came after a point in time: those of later seconds, and the last one.
fn count_after(fresh: &FreshSyns, after: Mono) -> u64 {
    let second = after.0 / SECOND;
    let later: u64 = fresh
        .by_second
        .iter()
        .filter(|(at, _)| *at > second)
        .map(|(_, count)| u64::from(*count))
        .sum();
    later.max(u64::from(fresh.last > after))
}
