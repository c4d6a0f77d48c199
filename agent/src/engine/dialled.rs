//! Which Services this node's clients dial, and how often: the denominators.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use super::{AttemptCounts, State};
use crate::{
    endpoints::{Lifetime, Name},
    model::{Mono, Rollout, RolloutId},
};

/// Attempts are counted to a rollout until this long after its last old pod is gone.
const TAIL_NANOS: u64 = 120_000_000_000;

/// The same where it is not known when that was: counted from completion, with the time that old
/// pods may take to go.
const UNSEEN_TAIL_NANOS: u64 = 600_000_000_000;

/// The most dialled addresses counted; the kernel's own map holds fewer.
pub(super) const MAX_COUNTS: usize = 65_536;

/// Takes the kernel's cumulative counts for one dialled address.
pub(super) fn count(state: &mut State, counts: AttemptCounts) {
    if state.counts.len() >= MAX_COUNTS && !state.counts.contains_key(&counts.original) {
        state.overflowed += 1;
        return;
    }
    if counts.answered > 0 {
        state.never_answered.remove(&counts.original);
    } else if counts.refused > 0 {
        state.never_answered.entry(counts.original).or_insert(state.now);
    }
    let before = state.counts.insert(counts.original, counts);
    let before = before.map_or(0, |before| before.attempts);
    // Counts that fell began anew, with the probes.
    let more = counts.attempts.checked_sub(before).unwrap_or(counts.attempts);
    let Some(name) = service(state, counts.original).filter(|_| more > 0) else { return };
    add(state, &name, more);
    state.dialled.insert(name);
}

fn service(state: &State, original: SocketAddr) -> Option<Name> {
    let endpoints = &state.endpoints;
    let virtual_address = endpoints.service_at(original);
    let node_port = || {
        let of_node = state.node_addresses.contains(&original.ip());
        endpoints.service_at_node_port(original.port()).filter(|_| of_node)
    };
    virtual_address.or_else(node_port).cloned()
}

/// A Service's addresses became known: they may have been dialled before.
pub(super) fn service_appeared(state: &mut State, name: &Name, addresses: &[SocketAddr]) {
    let was_dialled = addresses.iter().any(|address| has_attempts(state, *address));
    if was_dialled {
        state.dialled.insert(name.clone());
    }
}

fn has_attempts(state: &State, original: SocketAddr) -> bool {
    state.counts.get(&original).is_some_and(|counts| counts.attempts > 0)
}

/// Forgets Services that are no more.
pub(super) fn forget(state: &mut State) {
    let endpoints = &state.endpoints;
    state.dialled.retain(|name| endpoints.service_facts(name).is_some());
}

/// Whether this node's clients have dialled an endpoint, or a Service that it is behind.
pub(super) fn is_dialled(state: &State, life: &Lifetime) -> bool {
    let dialled =
        |service: &Arc<str>| state.dialled.contains(&(life.namespace.clone(), service.clone()));
    has_attempts(state, life.endpoint) || life.services.iter().any(dialled)
}

/// Adds to the rollouts under way of the workloads behind a Service.
fn add(state: &mut State, name: &Name, more: u64) {
    let now = state.now;
    let open: Vec<RolloutId> = state
        .rollouts
        .all()
        .filter(|rollout| rollout.workload.namespace == name.0 && counts_attempts(rollout, now))
        .map(|rollout| rollout.id.clone())
        .collect();
    if open.is_empty() {
        return;
    }
    let pods = state.endpoints.of_service(name).filter_map(|life| life.pod.as_ref());
    let workloads: BTreeSet<Arc<str>> = pods
        .filter_map(|pod| state.owners.workload_of(&pod.uid))
        .map(|workload| workload.uid)
        .collect();
    for id in open.iter().filter(|id| workloads.contains(&id.workload_uid)) {
        if let Some(rollout) = state.rollouts.get_mut(id) {
            rollout.attempts += more;
        }
    }
}

fn counts_attempts(rollout: &Rollout, now: Mono) -> bool {
    counts_until(rollout).map_or(!rollout.superseded, |until| now < until)
}

/// Until when a rollout's attempts are counted; `None` while it runs, or if it was never completed.
pub(super) fn counts_until(rollout: &Rollout) -> Option<Mono> {
    match (rollout.last_old_pod_gone, rollout.completed) {
        (Some(gone), _) => Some(gone.plus(TAIL_NANOS)),
        (None, Some(completed)) => Some(completed.plus(UNSEEN_TAIL_NANOS)),
        (None, None) => None,
    }
}
