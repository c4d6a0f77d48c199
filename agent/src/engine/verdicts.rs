//! Failures held until they can be decided, and the verdicts written down.

use std::{collections::BTreeSet, net::SocketAddr};

use super::{Outputs, State, announce, ask, clients, converge, stale};
use crate::{
    attempts::Failed,
    attribute::{self, Blame, Decision, Known, service_dialled},
    endpoints::Name,
    model::{Class, Failure, Mono, Phase, Side},
};

/// How long it is waited whether a client turns out to be a pod of this node.
const CLAIM_NANOS: u64 = 5_000_000_000;

/// The most failures of clients that are not known to be this node's.
pub(super) const MAX_UNCLAIMED: usize = 1_000;

/// The most waits kept for whoever measures them.
pub(super) const MAX_DELAYS: usize = 65_536;

/// A failure that waits for its verdict.
#[derive(Clone, Debug)]
pub(super) struct Held {
    failed: Failed,
    service: Option<Name>,
}

/// Takes a failure in, unless another node accounts for it or it concerns no Service at all.
pub(super) fn hold(state: &mut State, failed: Failed, out: &mut Outputs) {
    let attempt = &failed.attempt;
    let service = service_dialled(attempt.key.original, attempt.dnat, &state.endpoints);
    let backend = attempt.backend;
    let is_known = backend.is_some_and(|backend| !state.endpoints.at(backend).is_empty());
    // Without a DNAT, and while the watches are in step, nothing will say that it is a Service's.
    if service.is_none() && !is_known && !attempt.dnat && state.synced {
        return;
    }
    if !accounts_for(state, &failed) {
        // Its client's node accounts for it; this one may not have heard of the client yet.
        state.unclaimed.push_back(failed);
        if state.unclaimed.len() > MAX_UNCLAIMED {
            state.unclaimed.pop_front();
            state.overflowed += 1;
        }
        return;
    }
    note_failing(state, &failed);
    if matches!(failed.class, Class::Timeout | Class::Unreachable) {
        // It leaves an entry that may be stale.
        stale::look(state);
    }
    let held = Held { failed, service };
    let Some(held) = decide(state, held, out) else { return };
    if state.held.len() >= state.config.max_held {
        if held.failed.early {
            state.cancelled += 1;
        } else if held.failed.class == Class::Misdelivered {
            // Most of these turn out to have been delivered well.
            state.overflowed += 1;
        } else if held.failed.doubtful {
            state.doubtful.count(held.service.as_ref());
        } else {
            state.overflowed += 1;
            let mut blame = Blame::unknown(&held.failed);
            blame.because("too many failures waited for a verdict at once".to_owned());
            conclude(state, &held, blame, out);
        }
        return;
    }
    let asks = asks(state, &held);
    state.held.push(held);
    if let Some(backend) = backend.filter(|_| asks) {
        ask::about(state, backend, out);
    }
}

/// Whether this node accounts for it: the one that made a Service's choice; else the client's; else, for a
/// client outside the cluster, the endpoint's.
fn accounts_for(state: &State, failed: &Failed) -> bool {
    let attempt = &failed.attempt;
    let client = attempt.key.client.ip();
    if attempt.dnat || state.is_local(client) {
        return true;
    }
    let lives = attempt.backend.map_or(&[][..], |backend| state.endpoints.at(backend));
    let is_here = lives.iter().any(|life| life.node.as_deref() == Some(&*state.config.node));
    is_here && state.is_outside(client)
}

/// Whether the API server is to be asked about its backend. What was answered is of interest only where
/// somebody has left.
fn asks(state: &State, held: &Held) -> bool {
    let has_left = |backend| state.endpoints.at(backend).iter().any(|life| life.left.is_some());
    held.failed.class != Class::Misdelivered || held.backend().is_some_and(has_left)
}

/// Counts the failure to its pod, should that turn out to be a bad one.
fn note_failing(state: &mut State, failed: &Failed) {
    let is_refusal = failed.class != Class::Misdelivered && !failed.was_answered();
    let counts = !failed.early && is_refusal;
    let Some(backend) = failed.attempt.backend.filter(|_| counts) else { return };
    let Some(life) = state.endpoints.at(backend).last().filter(|life| life.left.is_none()) else {
        return;
    };
    let Some(pod) = &life.pod else { return };
    let dialled = state.counts.get(&failed.attempt.key.original);
    let answered = dialled.map_or(0, |counts| counts.answered);
    state.failing.failed(&pod.uid, failed.first_syn(), answered);
}

/// Takes in the failures that turned out to be this node's.
pub(super) fn claim(state: &mut State, out: &mut Outputs) {
    for failed in std::mem::take(&mut state.unclaimed) {
        if accounts_for(state, &failed) {
            hold(state, failed, out);
        } else {
            state.unclaimed.push_back(failed);
        }
    }
}

/// Tries every failure that waits.
pub(super) fn decide_held(state: &mut State, out: &mut Outputs) {
    let now = state.now;
    if !state.config.cluster_cidrs.is_empty() {
        // Their endpoint may have become known meanwhile.
        claim(state, out);
    }
    state.unclaimed.retain(|failed| now.since(failed.ended) < CLAIM_NANOS);
    let waiting = std::mem::take(&mut state.held);
    let waiting: Vec<Held> =
        waiting.into_iter().filter_map(|held| decide(state, held, out)).collect();
    let backends: BTreeSet<SocketAddr> =
        waiting.iter().filter(|held| asks(state, held)).filter_map(Held::backend).collect();
    state.held = waiting;
    for backend in backends {
        ask::about(state, backend, out);
    }
}

/// Decides one, or hands it back.
fn decide(state: &mut State, mut held: Held, out: &mut Outputs) -> Option<Held> {
    if !state.synced {
        return Some(held);
    }
    let Failed { attempt, ended, .. } = &held.failed;
    if held.service.is_none() {
        held.service = service_dialled(attempt.key.original, attempt.dnat, &state.endpoints);
    }
    let from_node = state.node_addresses.contains(&attempt.key.client.ip());
    let probing_node = from_node.then_some(&*state.config.node);
    let known = Known { probing_node, ..known(state, *ended, state.now) };
    match attribute::decide(&held.failed, held.service.as_ref(), &known) {
        Decision::NotYet => return Some(held),
        Decision::Cancelled => state.cancelled += 1,
        Decision::Undirected => state.undirected += 1,
        Decision::Stayed => state.stayed += 1,
        Decision::Blame(_) if held.failed.doubtful => {
            state.doubtful.count(held.service.as_ref());
        }
        Decision::Foreign | Decision::Delivered => {}
        Decision::Blame(blame) => conclude(state, &held, *blame, out),
    }
    None
}

/// What a verdict on something that ended then rests on.
pub(super) fn known(state: &State, ended: Mono, now: Mono) -> Known<'_> {
    // Evidence is waited for from when the watches were in step.
    let waits_since = state.unsynced.max(ended);
    Known {
        endpoints: &state.endpoints,
        owners: &state.owners,
        rollouts: &state.rollouts,
        counts: &state.counts,
        never_answered: &state.never_answered,
        nodes: &state.nodes,
        failing: &state.failing,
        node: &state.config.node,
        not_followed: &state.not_followed,
        bad_backend_after: state.config.bad_backend_after_nanos,
        now: ended.plus(now.since(waits_since)),
        probing_node: None,
    }
}

/// Writes a verdict down.
fn conclude(state: &mut State, held: &Held, blame: Blame, out: &mut Outputs) {
    let Failed { attempt, began, ended, .. } = held.failed;
    let class = blame.class;
    let mut phase = Phase::None;
    let client = clients::client_of(state, attempt.key.client.ip());
    if let Some(rollout) = blame.rollout.as_ref().and_then(|id| state.rollouts.get_mut(id)) {
        let after = rollout.completed.is_some_and(|at| held.failed.judged_from() >= at);
        phase = if after { Phase::After } else { Phase::During };
        *rollout.failures_by_phase.entry(class).or_default().entry(phase).or_insert(0) += 1;
        let since = held.failed.failing_since();
        let first = rollout.first_failure.map_or(since, |first| first.min(since));
        rollout.first_failure = Some(first);
        rollout.last_failure = rollout.last_failure.max(Some(since));
        if let Some(side) = blame.side {
            *rollout.failures_by_side.entry(side).or_insert(0) += 1;
        }
        if let Some(backend) = attempt.backend
            && (class, blame.side) == (Class::Refused, Some(Side::Old))
        {
            converge::refused(rollout, backend, &blame.pod, ended);
        }
        clients::count(rollout, client.clone());
        if state.config.events {
            announce::failed(rollout, &state.config.node, state.now);
        }
    }
    let (namespace, service) = held.service.clone().unwrap_or((blame.namespace, blame.service));
    let failure = Failure {
        class,
        client: attempt.key.client,
        client_workload: client,
        original: attempt.key.original,
        backend: attempt.backend,
        isn: attempt.key.isn,
        first_syn: began,
        syns: attempt.syns,
        ended,
        decided: state.now,
        namespace,
        service,
        pod: blame.pod,
        workload: blame.workload,
        cause: blame.cause,
        side: blame.side,
        phase,
        rollout: blame.rollout,
        evidence: blame.evidence,
    };
    if state.delays.len() < MAX_DELAYS {
        state.delays.push(state.now.since(ended));
    } else {
        state.untimed += 1;
    }
    if state.failures.len() >= state.config.max_failures {
        state.failures.pop_front();
        state.unlisted += 1;
    }
    if state.config.max_failures > 0 {
        state.failures.push_back(failure.clone());
    }
    out.failures.push(failure);
}

impl Held {
    /// When it began.
    pub(super) fn began(&self) -> Mono {
        self.failed.began
    }

    /// Where its last SYN went.
    pub(super) fn backend(&self) -> Option<SocketAddr> {
        self.failed.attempt.backend
    }
}
