//! Whose connections failed: the workload that a client's pod is of.

use std::{net::IpAddr, sync::Arc};

use super::State;
use crate::model::{MAX_CLIENTS, PodFacts, Rollout};

/// Clients past [`MAX_CLIENTS`] share this name.
const OTHER: &str = "_other";

/// `NAMESPACE/NAME` of the workload that a client on this node is of; `node NAME` for the node
/// itself and what shares its network; `outside` for who is neither.
pub(super) fn client_of(state: &State, client: IpAddr) -> Arc<str> {
    if let Some(uid) = state.local.get(&client)
        && let Some(pod) = state.owners.pod_by_uid(uid)
    {
        return workload_of(&pod.facts);
    }
    if state.node_addresses.contains(&client) {
        return format!("node {}", state.config.node).into();
    }
    "outside".into()
}

/// By the owner's name: a `ReplicaSet`'s is its workload's and the template's hash.
fn workload_of(pod: &PodFacts) -> Arc<str> {
    let Some(owner) = &pod.owner else {
        return format!("{}/{}", pod.namespace, pod.name).into();
    };
    let hash = format!("-{}", pod.revision_hash);
    let name = match owner.name.strip_suffix(&hash) {
        Some(name) if &*owner.kind == "ReplicaSet" => name,
        _ => &owner.name,
    };
    format!("{}/{name}", pod.namespace).into()
}

/// Counts a failure to its client.
pub(super) fn count(rollout: &mut Rollout, client: Arc<str>) {
    let clients = &mut rollout.failures_by_client;
    let is_full = clients.len() >= MAX_CLIENTS && !clients.contains_key(&client);
    *clients.entry(if is_full { OTHER.into() } else { client }).or_insert(0) += 1;
}
