//! What the API server is asked, and whose workloads it is asked to follow: only for what this
//! node's clients dial, and only when it leaves, appears or fails.

use std::{net::SocketAddr, sync::Arc};

use super::{Outputs, Request, State, cluster};
use crate::{
    endpoints::Lifetime,
    model::{Mono, WorkloadKey},
};

/// The most workloads followed at a time: each costs the API server three watches.
pub(super) const MAX_FOLLOWED: usize = 64;

/// A workload is followed at least this long.
const FOLLOW_NANOS: u64 = 60_000_000_000;

/// A question without a useful answer is asked again after this long, if it still matters.
const ASK_AGAIN_NANOS: u64 = 10_000_000_000;

/// The most workloads of which it is remembered that there was no room to follow them.
pub(super) const MAX_NOT_FOLLOWED: usize = 20_000;

/// The most pods of which it is remembered that they were asked about.
pub(super) const MAX_ASKED: usize = 20_000;

/// A pod that was asked about.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    at: Mono,
    /// Version from which its workload is to be followed.
    since: Arc<str>,
}

/// A workload that is followed.
#[derive(Clone, Debug)]
pub(super) struct Followed {
    since: Mono,
    workload: WorkloadKey,
}

/// Asks about the pods at the address of a failure.
pub(super) fn about(state: &mut State, backend: SocketAddr, out: &mut Outputs) {
    // The last two: the address may just have passed from one to the other.
    for index in (0..state.endpoints.at(backend).len()).rev().take(2) {
        let life = &state.endpoints.at(backend)[index];
        let service = life.services.first();
        let version =
            service.and_then(|service| state.endpoints.slice_version(&life.namespace, service));
        let life = life.clone();
        ask(state, &life, version.as_ref(), out);
        // A pod that nobody removes fails with its node.
        if let Some(node) = life.node.as_ref().filter(|_| !life.was_removed())
            && state.nodes.ask(node, state.now)
        {
            out.requests.push(Request::Node { name: node.clone() });
        }
    }
}

/// Asks who owns a pod, unless that is known; either way its workload is followed.
pub(super) fn ask(state: &mut State, life: &Lifetime, since: Option<&Arc<str>>, out: &mut Outputs) {
    let Some(pod) = &life.pod else { return };
    let since = since.cloned().unwrap_or_else(|| "".into());
    if let Some(asked) = state.asked.get(&pod.uid) {
        if state.owners.answer(&pod.uid).is_some_and(|(owner, _)| owner.is_some()) {
            return follow(state, &pod.uid, &since, out);
        }
        if state.now.since(asked.at) < ASK_AGAIN_NANOS {
            return;
        }
    }
    state.asked.insert(pod.uid.clone(), Asked { at: state.now, since });
    out.requests.push(Request::Resolve {
        namespace: life.namespace.clone(),
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
    });
}

/// A question was answered.
pub(super) fn answered(state: &mut State, uid: &str, out: &mut Outputs) {
    let since = state.asked.get(uid).map_or_else(|| "".into(), |asked| asked.since.clone());
    follow(state, uid, &since, out);
}

/// Follows the workload of a pod.
fn follow(state: &mut State, pod_uid: &str, since: &Arc<str>, out: &mut Outputs) {
    if let Some(workload) = state.owners.workload_of(pod_uid) {
        follow_workload(state, workload, since, out);
    }
}

/// Follows again whose rollouts were in flight when an earlier agent stopped.
pub(super) fn follow_unsettled(state: &mut State, out: &mut Outputs) {
    let mut workloads: Vec<WorkloadKey> =
        state.rollouts.all().map(|rollout| rollout.workload.clone()).collect();
    workloads.sort_unstable();
    workloads.dedup();
    for workload in workloads {
        if !state.rollouts.is_settled(&workload.uid, &state.owners, state.now) {
            follow_workload(state, workload, &"".into(), out);
        }
    }
}

/// The API version of a workload's kind.
pub(super) fn api_version(state: &State, workload_uid: &str) -> Arc<str> {
    let known = state.owners.workload_by_uid(workload_uid);
    let known = known.map(|facts| facts.object.api_version.clone());
    let said_by_set = || {
        let set = state.owners.replica_sets_of(workload_uid).next()?;
        set.owner.as_ref().map(|owner| owner.api_version.clone())
    };
    known.or_else(said_by_set).unwrap_or_else(|| "apps/v1".into())
}

fn follow_workload(state: &mut State, workload: WorkloadKey, since: &Arc<str>, out: &mut Outputs) {
    let uid = workload.uid.clone();
    if state.followed.contains_key(&uid) {
        return;
    }
    if state.followed.len() >= MAX_FOLLOWED {
        if state.not_followed.get(&uid).is_none() {
            state.follow_refused += 1;
            state.not_followed.insert(uid, ());
        }
        return;
    }
    state.not_followed.remove(&uid);
    let api_version = api_version(state, &uid);
    let followed = Followed { since: state.now, workload: workload.clone() };
    state.followed.insert(uid, followed);
    out.requests.push(Request::Follow { workload, api_version, since: since.clone() });
}

/// Workloads with nothing in flight for a minute are followed no longer.
pub(super) fn unfollow_settled(state: &mut State, out: &mut Outputs) {
    let now = state.now;
    let settled: Vec<Arc<str>> = state
        .followed
        .iter()
        .filter(|(uid, followed)| {
            now.since(followed.since) >= FOLLOW_NANOS
                && state.rollouts.is_settled(uid, &state.owners, now)
        })
        .map(|(uid, _)| uid.clone())
        .collect();
    for uid in settled {
        let Some(Followed { workload, .. }) = state.followed.remove(&uid) else { continue };
        out.requests.push(Request::Unfollow { workload });
        cluster::observe(state, &uid);
        for pod in state.owners.unwatch(&uid, &state.config.node) {
            state.asked.remove(&pod);
        }
    }
}
