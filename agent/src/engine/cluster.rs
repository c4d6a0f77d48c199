//! What the API server said.

use std::{net::SocketAddr, sync::Arc};

use super::{ClusterChange, Outputs, State, Watch, announce, ask, converge, dialled, local, stale};
use crate::{
    endpoints::{Change, Lifetime},
    model::{Mono, Rollout},
};

pub(super) fn changed(state: &mut State, change: ClusterChange, out: &mut Outputs) {
    let at = state.now;
    match change {
        ClusterChange::Slice(slice) => {
            let before = state.endpoints.slice_version(&slice.namespace, &slice.service);
            let changes = state.endpoints.slice(&slice, at);
            let version = &slice.resource_version;
            endpoints_changed(state, &changes, before.as_ref(), Some(version), out);
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
            let name = (service.namespace.clone(), service.name.clone());
            let addresses = state.endpoints.service(service, at);
            dialled::service_appeared(state, &name, &addresses);
            out.watch.extend(addresses.into_iter().map(Watch::Service));
        }
        ClusterChange::ServiceGone { namespace, name } => {
            state.endpoints.service_gone(&(namespace, name), at);
        }
        ClusterChange::ServicesListed(names) => state.endpoints.services_listed(&names, at),
        ClusterChange::Pod(pod) => {
            let uid = pod.uid.clone();
            state.owners.pod(pod, &state.clock, at);
            pod_changed(state, &uid, out);
        }
        ClusterChange::PodGone(pod) => {
            let uid = pod.uid.clone();
            state.owners.pod_gone(pod, &state.clock, at);
            pod_changed(state, &uid, out);
        }
        ClusterChange::NodePodsListed(uids) => {
            for pod in state.owners.missing_on(&state.config.node, &uids) {
                let uid = pod.uid.clone();
                state.owners.pod_gone(pod, &state.clock, at);
                pod_changed(state, &uid, out);
            }
        }
        ClusterChange::ReplicaSet(set) => {
            let workload = set.owner.as_ref().map(|owner| owner.uid.clone());
            state.owners.replica_set(set);
            if let Some(uid) = workload {
                observe(state, &uid);
            }
        }
        ClusterChange::ReplicaSetGone(set) => state.owners.replica_set_gone(set),
        ClusterChange::Workload(workload) => {
            let uid = workload.object.uid.clone();
            state.owners.workload(workload, at);
            observe(state, &uid);
        }
        ClusterChange::WorkloadGone(workload) => state.owners.workload_gone(workload, at),
        ClusterChange::Owner { pod: _, namespace: _, uid, owner, how } => {
            state.owners.looked_up(uid.clone(), owner, how);
            if let Some(workload) = state.owners.workload_of(&uid) {
                observe(state, &workload.uid);
            }
            departed(state, &uid);
            ask::answered(state, &uid, out);
        }
        ClusterChange::Node { name, facts } => state.nodes.answered(&name, facts, at),
        ClusterChange::Version(version) => state.kubernetes = Some(version),
        ClusterChange::EventWritten { rollout, result } => {
            announce::answered(state, &rollout, result);
        }
        ClusterChange::VersionsRestarted => state.owners.versions_restarted(),
        ClusterChange::Synced(synced) => {
            if state.synced != synced {
                state.synced = synced;
                state.unsynced = at;
            }
            if synced {
                state.coverage.in_step(at);
                state.past.close(state.clock.wall(at));
            }
            state.endpoints.in_step(synced, at);
        }
    }
}

fn pod_changed(state: &mut State, uid: &str, out: &mut Outputs) {
    local::observe(state, uid, out);
    if let Some(workload) = state.owners.workload_of(uid) {
        observe(state, &workload.uid);
    }
    departed(state, uid);
    converge::pod_changed(state, uid);
}

/// Looks at a workload again after something of it changed.
pub(super) fn observe(state: &mut State, workload_uid: &str) {
    let State { rollouts, owners, endpoints, clock, now, .. } = state;
    rollouts.observe(workload_uid, owners, clock, *now);
    rollouts.date_completion(workload_uid, |rollout: &Rollout| {
        let pods = owners.pods_of(workload_uid);
        let steps = pods.flat_map(|pod| {
            let place = owners.place(&pod.facts.uid);
            let is_new = place.is_some_and(|place| place.hash == rollout.to.hash);
            let step = move |life: &Lifetime| if is_new { life.ready } else { life.left };
            endpoints.of_pod(&pod.facts.uid).filter_map(step)
        });
        steps.max()
    });
}

/// A pod that left may show a rollout that was not seen to begin.
fn departed(state: &mut State, pod_uid: &str) {
    let lives = state.endpoints.of_pod(pod_uid).filter(|life| life.was_removed());
    let Some(left) = lives.filter_map(|life| life.left).min() else { return };
    let Some(place) = state.owners.place(pod_uid) else { return };
    state.rollouts.departed(&place, &state.owners, &state.clock, left, state.now);
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
                if let Some(life) = last(state, endpoint)
                    && !life.baseline
                    && dialled::is_dialled(state, &life)
                {
                    ask::ask(state, &life, version, out);
                }
            }
            Change::Left(endpoint) => {
                if let Some(life) = left(state, endpoint, state.now)
                    && dialled::is_dialled(state, &life)
                {
                    // The deletion came before the slice said so.
                    ask::ask(state, &life, before.or(version), out);
                    if let Some(pod) = &life.pod {
                        departed(state, &pod.uid);
                    }
                }
                converge::endpoint_left(state, endpoint);
                stale::endpoint_ended(state, endpoint);
            }
            Change::Gone(endpoint) => {
                out.watch.push(Watch::Anew(endpoint, state.now));
                stale::endpoint_ended(state, endpoint);
            }
            Change::Forgotten(endpoint) => out.watch.push(Watch::Forget(endpoint)),
        }
    }
}

fn last(state: &State, endpoint: SocketAddr) -> Option<Lifetime> {
    state.endpoints.at(endpoint).last().cloned()
}

/// The one that left just then: another may have taken the address over already.
fn left(state: &State, endpoint: SocketAddr, at: Mono) -> Option<Lifetime> {
    let lives = state.endpoints.at(endpoint);
    lives.iter().rev().find(|life| life.left == Some(at)).cloned()
}
