//! The `ReplicaSet` controller: as many pods as the spec says.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::pods;
use super::runner::{self, Reconciled, ignore};
use crate::api;

/// The name under which it writes.
const USER: &str = "replicaset-controller";

/// Runs the controller.
pub async fn run(server: String, shutdown: CancellationToken) -> anyhow::Result<()> {
    let client = api::client(&server, USER)?;
    let config = watcher::Config::default();
    let controller = Controller::new(Api::<ReplicaSet>::all(client.clone()), config.clone())
        .owns(Api::<Pod>::all(client.clone()), config);
    runner::run(USER, controller, client, shutdown, reconcile).await
}

async fn reconcile(seen: Arc<ReplicaSet>, client: Arc<Client>) -> Reconciled {
    let namespace = seen.namespace().unwrap_or_default();
    let sets: Api<ReplicaSet> = Api::namespaced(Client::clone(&client), &namespace);
    let Some(set) = sets.get_opt(&seen.name_any()).await? else {
        return Ok(Action::await_change());
    };
    let Some(spec) = &set.spec else {
        return Ok(Action::await_change());
    };
    if set.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let api: Api<Pod> = Api::namespaced(Client::clone(&client), &namespace);
    let selected =
        api.list(&ListParams::default().labels(&pods::list_selector(&spec.selector))).await?.items;
    let owned: Vec<Pod> =
        selected.into_iter().filter(|pod| pods::is_controlled_by(pod, &set)).collect();
    let active: Vec<&Pod> = owned.iter().filter(|pod| pods::is_active(pod)).collect();

    // The status tells what was there before this turn's own changes; their events bring the next
    // turn.
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    if active.len() < wanted {
        create(&api, &set, wanted - active.len()).await?;
    } else {
        for pod in surplus(active.clone(), wanted) {
            let deleted = api.delete(&pod.name_any(), &DeleteParams::default()).await.map(drop);
            ignore(deleted, 404)?;
        }
    }

    let now = Timestamp::now();
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let status = status(&set, &owned, &active, now);
    if set.status.as_ref() != Some(&status) {
        let mut updated = set.clone();
        updated.status = Some(status);
        sets.replace_status(&set.name_any(), &PostParams::default(), &updated).await?;
    }
    let next = active
        .iter()
        .filter_map(|pod| pods::available_in(pod, min_ready, now))
        .filter(|wait| !wait.is_zero())
        .min();
    Ok(next.map_or_else(Action::await_change, Action::requeue))
}

async fn create(api: &Api<Pod>, set: &ReplicaSet, count: usize) -> Result<(), kube::Error> {
    let template = set.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
    let mut pod = pods::from_template(&template, set);
    pod.metadata.generate_name = Some(format!("{}-", set.name_any()));
    let parameters = PostParams::default();
    try_join_all((0..count).map(|_| api.create(&parameters, &pod))).await.map(drop)
}

/// The pods to give up so that `wanted` remain.
fn surplus(mut active: Vec<&Pod>, wanted: usize) -> Vec<&Pod> {
    let mut on_node: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    for pod in &active {
        *on_node
            .entry(pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()))
            .or_default() += 1;
    }
    active.sort_by_cached_key(|pod| {
        pods::deletion_rank(pod, on_node.get(&node(pod).as_deref()).copied().unwrap_or_default())
    });
    active.truncate(active.len().saturating_sub(wanted));
    active
}

fn status(set: &ReplicaSet, owned: &[Pod], active: &[&Pod], now: Timestamp) -> ReplicaSetStatus {
    let spec = set.spec.as_ref();
    let min_ready = spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
    let template_labels = spec
        .and_then(|spec| spec.template.as_ref()?.metadata.as_ref()?.labels.clone())
        .unwrap_or_default();
    let count = |wanted: &dyn Fn(&Pod) -> bool| {
        i32::try_from(active.iter().filter(|pod| wanted(pod)).count()).ok()
    };
    // A count of 0 is left out, as Go's omitempty does.
    let some = |count: Option<i32>| count.filter(|count| *count > 0);
    ReplicaSetStatus {
        replicas: i32::try_from(active.len()).unwrap_or(i32::MAX),
        fully_labeled_replicas: some(count(&|pod| {
            template_labels.iter().all(|(key, value)| pod.labels().get(key) == Some(value))
        })),
        ready_replicas: some(count(&pods::is_ready)),
        available_replicas: some(count(&|pod| pods::is_available(pod, min_ready, now))),
        terminating_replicas: i32::try_from(
            owned.iter().filter(|pod| pods::is_terminating(pod)).count(),
        )
        .ok(),
        observed_generation: set.metadata.generation,
        conditions: set.status.as_ref().and_then(|status| status.conditions.clone()),
    }
}
