//! How long after a pod's deletion this node still sent fresh connections to it.

use std::{net::SocketAddr, sync::Arc};

use super::{FreshSyns, State};
use crate::model::{Convergence, Mono, RolloutId};

/// Resolution of the API's times.
const SECOND: u64 = 1_000_000_000;

/// Takes the kernel's counts for one backend.
pub(super) fn fresh(state: &mut State, fresh: &FreshSyns) {
    let uid = {
        let Some(life) = state.endpoints.at(fresh.endpoint).last() else { return };
        // A count that is older than this lifetime belongs to the address's earlier owner.
        let Some(pod) = &life.pod else { return };
        pod.uid.clone()
    };
    if let Some(life) = state.endpoints.find_mut(fresh.endpoint, &uid)
        && let Some(first) = fresh.first_answer
    {
        life.first_answer = Some(life.first_answer.map_or(first, |known| known.min(first)));
    }
    update(state, fresh.endpoint, &uid, Some(fresh));
}

/// An endpoint left: its convergence is measured from now on.
pub(super) fn endpoint_left(state: &mut State, endpoint: SocketAddr) {
    let Some(uid) = state
        .endpoints
        .at(endpoint)
        .last()
        .and_then(|life| life.pod.as_ref())
        .map(|pod| pod.uid.clone())
    else {
        return;
    };
    update(state, endpoint, &uid, None);
}

/// A pod's deletion became known, or better known.
pub(super) fn pod_changed(state: &mut State, uid: &str) {
    let Some(pod) = state.owners.pod_by_uid(uid).filter(|pod| pod.deleted_at.is_some()) else { return };
    let endpoints: Vec<SocketAddr> = pod
        .facts
        .ips
        .iter()
        .flat_map(|ip| state.endpoints.on(*ip))
        .filter(|life| life.is_pod(uid))
        .map(|life| life.endpoint)
        .collect();
    for endpoint in endpoints {
        update(state, endpoint, uid, None);
    }
}

fn update(state: &mut State, endpoint: SocketAddr, uid: &str, fresh: Option<&FreshSyns>) {
    let Some((id, convergence)) = measure(state, endpoint, uid, fresh) else { return };
    let Some(rollout) = state.rollouts.get_mut(&id) else { return };
    let known = rollout
        .convergence
        .iter_mut()
        .find(|known| known.endpoint == endpoint && known.pod == convergence.pod);
    match known {
        Some(known) => {
            let (last, nanos, count) = (known.last_fresh_syn, known.nanos, known.fresh_syns_after);
            *known = convergence;
            if known.last_fresh_syn.is_none() {
                (known.last_fresh_syn, known.nanos) = (last, nanos);
            }
            known.fresh_syns_after = known.fresh_syns_after.max(count);
        }
        None => rollout.convergence.push(convergence),
    }
}

fn measure(
    state: &State,
    endpoint: SocketAddr,
    uid: &str,
    fresh: Option<&FreshSyns>,
) -> Option<(RolloutId, Convergence)> {
    let life = state.endpoints.at(endpoint).iter().rev().find(|life| life.is_pod(uid))?;
    let left = life.left?;
    let pod = state.owners.pod_by_uid(uid)?;
    let deleted = pod.deleted_at?;
    let place = state.owners.place(uid)?;
    let rollout = state
        .rollouts
        .of(&place.workload.uid)
        .rev()
        .find(|rollout| rollout.started <= left.plus(SECOND))
        .filter(|rollout| rollout.to.hash != place.hash)?;
    // Falling back to terminating endpoints is by design, and so is publishing them.
    let excluded = life.services.iter().any(|service| {
        let name = (life.namespace.clone(), service.clone());
        state.endpoints.service_facts(&name).is_some_and(|facts| facts.publish_not_ready)
            || state.endpoints.ready_of(&name) == 0
    });
    let deletion = state.clock.mono(deleted);
    let seen = life.terminating.into_iter().chain(pod.deletion_seen).min();
    let precision = seen.map_or(SECOND, |seen| seen.since(deletion).min(SECOND));
    let after = fresh.filter(|fresh| !excluded && fresh.last > deletion);
    Some((
        rollout.id.clone(),
        Convergence {
            endpoint,
            pod: Arc::clone(&pod.facts.name),
            deleted,
            precision_nanos: precision,
            last_fresh_syn: after.map(|fresh| fresh.last),
            nanos: after.map(|fresh| fresh.last.since(deletion)),
            fresh_syns_after: after.map_or(0, |fresh| count_after(fresh, deletion.plus(precision))),
        },
    ))
}

/// Fresh SYNs that certainly came after a point in time: those of later seconds, and the last one.
fn count_after(fresh: &FreshSyns, after: Mono) -> u64 {
    let second = after.0 / SECOND;
    let later: u64 =
        fresh.by_second.iter().filter(|(at, _)| *at > second).map(|(_, count)| u64::from(*count)).sum();
    later.max(u64::from(fresh.last > after))
}
