//! One input, one step.

use std::{net::SocketAddr, sync::Arc};

use super::{
    AttemptCounts, ClusterChange, Input, Outputs, Request, State, Watch, What,
    converge,
    state::{FailureLabels, Held},
};
use crate::{
    attempts::{Failed, Outcome},
    attribute::{self, Blame, Decision, Known, service_of},
    endpoints::{Change, Name},
    model::{Cause, Failure, Mono, Phase, PodFacts, RolloutId, Sighting},
};

/// Attempts are counted to a rollout until this long after its last old pod is gone.
const TAIL_NANOS: u64 = 120_000_000_000;

/// Folds one input into the state.
pub fn step(state: &mut State, input: Input) -> Outputs {
    let mut out = Outputs::default();
    // The sources are not ordered among each other: time never goes back.
    state.now = state.now.max(input.at);
    let now = state.now;
    match input.what {
        What::Tick(clock) => {
            state.clock = clock;
            tick(state, &mut out);
        }
        What::Saw(sighting) => saw(state, &sighting, &mut out),
        What::Fresh(fresh) => converge::fresh(state, &fresh),
        What::Attempts(counts) => attempts(state, counts),
        // Not for the kernel: there a client of the node is told by its namespace.
        What::NodeAddresses(addresses) => state.node_addresses = addresses.into_iter().collect(),
        What::Lost(count) => state.lost += count,
        What::Cluster(change) => cluster(state, change, now, &mut out),
    }
    decide_held(state, &mut out);
    out
}

fn tick(state: &mut State, out: &mut Outputs) {
    let now = state.now;
    let endpoints = &state.endpoints;
    for failed in state.attempts.overdue(now, |address| endpoints.service_at(address).is_some()) {
        hold(state, failed, out);
    }
    if now.since(state.swept) >= 60_000_000_000 {
        state.swept = now;
        for change in state.endpoints.forget(now) {
            if let Change::Forgotten(endpoint) = change {
                out.watch.push(Watch::Forget(endpoint));
            }
        }
        unfollow_settled(state, out);
    }
}

/// Workloads with nothing in flight for a minute are followed no longer.
fn unfollow_settled(state: &mut State, out: &mut Outputs) {
    let now = state.now;
    let settled: Vec<Arc<str>> = state
        .followed
        .iter()
        .filter(|(uid, since)| now.since(**since) >= 60_000_000_000 && state.rollouts.is_settled(uid))
        .map(|(uid, _)| uid.clone())
        .collect();
    for uid in settled {
        state.followed.remove(&uid);
        if let Some(workload) = state.owners.key_of(&uid) {
            out.requests.push(Request::Unfollow { workload });
        }
    }
}

fn saw(state: &mut State, sighting: &Sighting, out: &mut Outputs) {
    let client = sighting.attempt().key.client.ip();
    let is_local = state.local.contains(&client) || state.node_addresses.contains(&client);
    let endpoints = &state.endpoints;
    let outcome =
        state.attempts.saw(sighting, |address| endpoints.service_at(address).is_some(), is_local);
    if let Outcome::Failed(failed) = outcome {
        hold(state, *failed, out);
    }
}

/// Takes a failure in, unless another node accounts for it or it concerns no Service at all.
fn hold(state: &mut State, failed: Failed, out: &mut Outputs) {
    let attempt = &failed.attempt;
    let client = attempt.key.client.ip();
    let local = state.local.contains(&client) || state.node_addresses.contains(&client);
    if !attempt.dnat && !local {
        return;
    }
    let service = service_of(attempt.key.original, attempt.backend, &state.endpoints);
    let known = attempt.backend.is_some_and(|backend| !state.endpoints.at(backend).is_empty());
    // While the watches are out of step, nothing says yet that it is no Service.
    if service.is_none() && !known && state.synced {
        return;
    }
    if let Some(backend) = attempt.backend {
        ask_about(state, backend, out);
    }
    let held = Held { failed, service };
    if state.held.len() >= state.config.max_held {
        state.overflowed += 1;
        let blame = Blame::overflow();
        conclude(state, &held, blame, out);
        return;
    }
    state.held.push(held);
}

fn attempts(state: &mut State, counts: AttemptCounts) {
    let before = state.counts.insert(counts.original, counts);
    let more = counts.attempts.saturating_sub(before.map_or(0, |before| before.attempts));
    if more == 0 {
        return;
    }
    let Some(name) = state.endpoints.service_at(counts.original).cloned() else { return };
    let now = state.now;
    let open: Vec<RolloutId> = state
        .rollouts
        .all()
        .filter(|rollout| rollout.workload.namespace == name.0)
        .filter(|rollout| rollout.last_old_pod_gone.is_none_or(|gone| now.since(gone) < TAIL_NANOS))
        .map(|rollout| rollout.id.clone())
        .collect();
    for id in open {
        let backs = state.endpoints.all().any(|life| {
            life.services.contains(&name.1)
                && life.namespace == name.0
                && life.pod.as_ref().is_some_and(|pod| {
                    state.owners.place(&pod.uid).is_some_and(|place| place.workload.uid == id.workload_uid)
                })
        });
        if backs && let Some(rollout) = state.rollouts.get_mut(&id) {
            rollout.attempts += more;
        }
    }
}

fn cluster(state: &mut State, change: ClusterChange, at: Mono, out: &mut Outputs) {
    match change {
        ClusterChange::Slice(slice) => {
            let before = state.endpoints.slice_version(&slice.namespace, &slice.service);
            let version = slice.resource_version.clone();
            let changes = state.endpoints.slice(slice, at);
            endpoints_changed(state, &changes, before.as_ref(), Some(&version), out);
        }
        ClusterChange::SliceGone { namespace, name } => {
            let changes = state.endpoints.slice_gone(&(namespace, name), at);
            endpoints_changed(state, &changes, None, None, out);
        }
        ClusterChange::SlicesListed(names) => {
            let changes = state.endpoints.slices_listed(&names, at);
            endpoints_changed(state, &changes, None, None, out);
        }
        ClusterChange::Service(service) => {
            let addresses = state.endpoints.service(service);
            out.watch.extend(addresses.into_iter().map(Watch::Service));
        }
        ClusterChange::ServiceGone { namespace, name } => state.endpoints.service_gone(&(namespace, name)),
        ClusterChange::ServicesListed(names) => state.endpoints.services_listed(&names),
        ClusterChange::Pod(pod) => {
            local_pod(state, &pod, true, out);
            let uid = pod.uid.clone();
            state.owners.pod(pod, at);
            observe_pod(state, &uid, at);
        }
        ClusterChange::PodGone(pod) => {
            local_pod(state, &pod, false, out);
            let uid = pod.uid.clone();
            state.owners.pod_gone(pod, at);
            observe_pod(state, &uid, at);
        }
        ClusterChange::NodePodsListed(uids) => {
            let node = state.config.node.clone();
            state.owners.node_pods_listed(&node, &uids, at);
        }
        ClusterChange::ReplicaSet(set) => {
            let workload = set.owner.as_ref().map(|owner| owner.uid.clone());
            state.owners.replica_set(set);
            if let Some(uid) = workload {
                state.rollouts.observe(&uid, &state.owners, &state.clock, at);
            }
        }
        // A deleted ReplicaSet still explains the pods it had.
        ClusterChange::ReplicaSetGone(_) | ClusterChange::WorkloadGone(_) => {}
        ClusterChange::Workload(workload) => {
            let uid = workload.object.uid.clone();
            state.owners.workload(workload, at);
            state.rollouts.observe(&uid, &state.owners, &state.clock, at);
        }
        ClusterChange::Owner { pod: _, namespace: _, uid, owner, how } => {
            state.owners.looked_up(uid.clone(), owner, how);
            follow(state, &uid, out);
        }
        ClusterChange::Synced(synced) => {
            state.synced = synced;
            state.unsynced = at;
        }
    }
}

/// Keeps the set of addresses that are this node's pods.
fn local_pod(state: &mut State, pod: &PodFacts, exists: bool, out: &mut Outputs) {
    if pod.node.as_deref() != Some(&*state.config.node) || pod.host_network {
        return;
    }
    for ip in &pod.ips {
        if exists && !pod.finished {
            if state.local.insert(*ip) {
                out.watch.push(Watch::Local(*ip));
            }
        } else if !exists && state.local.remove(ip) {
            out.watch.push(Watch::NotLocal(*ip));
        }
    }
}

fn observe_pod(state: &mut State, uid: &str, at: Mono) {
    if let Some(place) = state.owners.place(uid) {
        state.rollouts.observe(&place.workload.uid, &state.owners, &state.clock, at);
    }
    converge::pod_changed(state, uid);
}

/// Watches new endpoints, and asks about those that show a rollout of a Service dialled here.
fn endpoints_changed(
    state: &mut State,
    changes: &[Change],
    before: Option<&Arc<str>>,
    version: Option<&Arc<str>>,
    out: &mut Outputs,
) {
    for change in changes {
        match *change {
            Change::Appeared(endpoint) => {
                out.watch.push(Watch::Endpoint(endpoint));
                let baseline = state.endpoints.at(endpoint).last().is_none_or(|life| life.baseline);
                if !baseline && is_dialled(state, endpoint) {
                    ask(state, endpoint, version, out);
                }
            }
            Change::Left(endpoint) => {
                if is_dialled(state, endpoint) {
                    // The deletion came before the slice said so.
                    ask(state, endpoint, before.or(version), out);
                }
                converge::endpoint_left(state, endpoint);
            }
            Change::Forgotten(endpoint) => out.watch.push(Watch::Forget(endpoint)),
        }
    }
}

/// Whether this node's clients have dialled a Service of that endpoint.
fn is_dialled(state: &State, endpoint: SocketAddr) -> bool {
    let Some(life) = state.endpoints.at(endpoint).last() else { return false };
    life.services.iter().any(|service| {
        let name: Name = (life.namespace.clone(), service.clone());
        state.counts.iter().any(|(original, counts)| {
            counts.attempts > 0
                && (*original == endpoint || state.endpoints.service_at(*original) == Some(&name))
        })
    })
}

/// Asks who owns the pod that was last at an address.
fn ask_about(state: &mut State, backend: SocketAddr, out: &mut Outputs) {
    let Some(life) = state.endpoints.at(backend).last() else { return };
    let version = life
        .services
        .first()
        .and_then(|service| state.endpoints.slice_version(&life.namespace, service));
    ask(state, backend, version.as_ref(), out);
}

fn ask(state: &mut State, endpoint: SocketAddr, since: Option<&Arc<str>>, out: &mut Outputs) {
    let Some(life) = state.endpoints.at(endpoint).last() else { return };
    let Some(pod) = life.pod.clone() else { return };
    if state.asked.contains_key(&pod.uid) {
        return;
    }
    let namespace = life.namespace.clone();
    state.asked.insert(pod.uid.clone(), since.cloned().unwrap_or_else(|| "".into()));
    if state.asked.len() > 20_000 {
        state.asked.pop_first();
    }
    let resolve = Request::Resolve { namespace, pod: pod.name, uid: pod.uid };
    out.requests.push(resolve);
}

/// Follows the workload of a pod that was asked about.
fn follow(state: &mut State, pod_uid: &str, out: &mut Outputs) {
    let Some(place) = state.owners.place(pod_uid) else { return };
    let uid = place.workload.uid.clone();
    let now = state.now;
    state.rollouts.observe(&uid, &state.owners, &state.clock, now);
    if state.followed.contains_key(&uid) {
        return;
    }
    state.followed.insert(uid.clone(), now);
    let api_version = state
        .owners
        .workload_by_uid(&uid)
        .map(|workload| workload.object.api_version.clone())
        .or_else(|| {
            let set = state.owners.replica_sets_of(&uid).next()?;
            set.owner.as_ref().map(|owner| owner.api_version.clone())
        })
        .unwrap_or_else(|| "apps/v1".into());
    let since = state.asked.get(pod_uid).cloned().unwrap_or_else(|| "".into());
    out.requests.push(Request::Follow { workload: place.workload, api_version, since });
}

/// Tries every failure that waits.
fn decide_held(state: &mut State, out: &mut Outputs) {
    if state.held.is_empty() || !state.synced {
        return;
    }
    let mut waiting = Vec::new();
    for mut held in std::mem::take(&mut state.held) {
        if held.service.is_none() {
            let attempt = &held.failed.attempt;
            held.service = service_of(attempt.key.original, attempt.backend, &state.endpoints);
        }
        let from_node = state.node_addresses.contains(&held.failed.attempt.key.client.ip());
        let known = Known {
            probing_node: from_node.then_some(&*state.config.node),
            endpoints: &state.endpoints,
            owners: &state.owners,
            rollouts: &state.rollouts,
            clock: state.clock,
            // Evidence is waited for from when the watches were in step.
            now: if state.unsynced > held.failed.ended {
                Mono(state.now.0 - (state.unsynced.0 - held.failed.ended.0).min(state.now.0))
            } else {
                state.now
            },
        };
        match attribute::decide(&held.failed, held.service.as_ref(), &known) {
            Decision::NotYet => waiting.push(held),
            Decision::Cancelled => state.cancelled += 1,
            Decision::Undirected => state.undirected += 1,
            Decision::Blame(blame) => conclude(state, &held, *blame, out),
        }
    }
    state.held = waiting;
    let backends: Vec<SocketAddr> =
        state.held.iter().filter_map(|held| held.failed.attempt.backend).collect();
    for backend in backends {
        ask_about(state, backend, out);
    }
}

/// Writes a verdict down.
fn conclude(state: &mut State, held: &Held, blame: Blame, out: &mut Outputs) {
    let Failed { attempt, began, ended, class, .. } = held.failed;
    let mut phase = Phase::None;
    if let Some(rollout) = blame.rollout.as_ref().and_then(|id| state.rollouts.get_mut(id)) {
        phase = match rollout.completed {
            Some(completed) if attempt.first_syn >= completed => Phase::After,
            _ => Phase::During,
        };
        *rollout.failures_by_phase.entry(class).or_default().entry(phase).or_insert(0) += 1;
        rollout.first_failure = rollout.first_failure.map_or(Some(began), |first| Some(first.min(began)));
        rollout.last_failure = rollout.last_failure.max(Some(began));
    }
    let (namespace, service) =
        held.service.clone().unwrap_or_else(|| (blame.namespace.clone(), "".into()));
    let failure = Failure {
        class,
        client: attempt.key.client,
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
    state.delays.push(state.now.since(ended));
    let workload = failure.workload.as_ref();
    let labels = FailureLabels {
        namespace: failure.namespace.clone(),
        service: failure.service.clone(),
        workload_kind: workload.map_or_else(|| "".into(), |workload| workload.kind.clone()),
        workload: workload.map_or_else(|| "".into(), |workload| workload.name.clone()),
        class,
        cause: failure.cause,
        phase,
    };
    *state.totals.entry(labels).or_insert(0) += 1;
    if state.failures.len() >= state.config.max_failures {
        state.failures.pop_front();
    }
    state.failures.push_back(failure.clone());
    out.failures.push(failure);
}

impl Blame {
    fn overflow() -> Self {
        Self {
            cause: Cause::Unknown,
            side: None,
            rollout: None,
            namespace: "".into(),
            pod: "".into(),
            workload: None,
            evidence: vec!["too many failures waited for a verdict at once".to_owned()],
        }
    }
}
