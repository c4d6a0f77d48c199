//! The `DaemonSet` controller: one pod on each node that its selector allows.
//!
//! Left out: `maxSurge` (pods are replaced in place), and the trimming of the revision history.
//! Pods are made with their node, where the real controller leaves that to the scheduler by an
//! affinity.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::deployment::bounds::scaled;
use super::pods;
use super::revision_history::{self, POD_LABEL};
use super::runner::{self, Failed, Reconciled, ignore};
use crate::api;

/// The name under which it writes.
const USER: &str = "daemonset-controller";

/// Runs the controller.
pub async fn run(server: String, shutdown: CancellationToken) -> anyhow::Result<()> {
    let client = api::client(&server, USER)?;
    let config = watcher::Config::default();
    let controller = Controller::new(Api::<DaemonSet>::all(client.clone()), config.clone())
        .owns(Api::<Pod>::all(client.clone()), config.clone());
    let sets = controller.store();
    let every_set = move |_: Node| -> Vec<ObjectRef<DaemonSet>> {
        sets.state().iter().map(|set| ObjectRef::from_obj(&**set)).collect()
    };
    let controller = controller.watches(Api::<Node>::all(client.clone()), config, every_set);
    runner::run(USER, controller, client, shutdown, reconcile).await
}

/// One set, the nodes that it covers, and its pods by node.
struct View<'a> {
    set: &'a DaemonSet,
    spec: &'a DaemonSetSpec,
    api: Api<Pod>,
    nodes: Vec<String>,
    pods: BTreeMap<String, Vec<Pod>>,
    /// Hash of the present template.
    hash: String,
}

async fn reconcile(seen: Arc<DaemonSet>, client: Arc<Client>) -> Reconciled {
    let namespace = seen.namespace().unwrap_or_default();
    let sets: Api<DaemonSet> = Api::namespaced(Client::clone(&client), &namespace);
    let Some(set) = sets.get_opt(&seen.name_any()).await? else {
        return Ok(Action::await_change());
    };
    let Some(spec) = &set.spec else {
        return Ok(Action::await_change());
    };
    if set.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let revisions = revision_history::sync(&client, &set, &spec.template, POD_LABEL).await?;
    let hash = revisions.last().map(|revision| revision.hash.clone()).unwrap_or_default();
    let selector =
        spec.template.spec.as_ref().and_then(|spec| spec.node_selector.clone()).unwrap_or_default();
    let nodes = Api::<Node>::all(Client::clone(&client)).list(&ListParams::default()).await?.items;
    let nodes = nodes
        .iter()
        .filter(|node| selector.iter().all(|(key, value)| node.labels().get(key) == Some(value)))
        .map(ResourceExt::name_any)
        .collect();
    let api: Api<Pod> = Api::namespaced(Client::clone(&client), &namespace);
    let selected =
        api.list(&ListParams::default().labels(&pods::list_selector(&spec.selector))).await?.items;
    let mut pods: BTreeMap<String, Vec<Pod>> = BTreeMap::new();
    for pod in selected.into_iter().filter(|pod| pods::is_controlled_by(pod, &set)) {
        pods.entry(pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default())
            .or_default()
            .push(pod);
    }
    let view = View { set: &set, spec, api, nodes, pods, hash };
    view.place().await?;
    view.update().await?;
    let status = view.status();
    if set.status.as_ref() != Some(&status) {
        let mut updated = set.clone();
        updated.status = Some(status);
        sets.replace_status(&set.name_any(), &PostParams::default(), &updated).await?;
    }
    let waits = view.pods.values().flatten().filter_map(|pod| {
        pods::available_in(pod, spec.min_ready_seconds.unwrap_or(0), Timestamp::now())
    });
    Ok(waits
        .filter(|wait| !wait.is_zero())
        .min()
        .map_or_else(Action::await_change, Action::requeue))
}

impl View<'_> {
    /// The node's pod; the one that stays, should there be several.
    fn on(&self, node: &str) -> Option<&Pod> {
        self.pods.get(node)?.iter().min_by_key(|pod| !pods::is_active(pod))
    }

    fn is_current(&self, pod: &Pod) -> bool {
        pod.labels().get(POD_LABEL) == Some(&self.hash)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        let min_ready = self.spec.min_ready_seconds.unwrap_or(0);
        pods::is_active(pod) && pods::is_available(pod, min_ready, Timestamp::now())
    }

    /// A pod on each node that has none, not even one on its way out; none elsewhere.
    async fn place(&self) -> Result<(), Failed> {
        for node in self.nodes.iter().filter(|node| !self.pods.contains_key(*node)) {
            let mut pod = pods::from_template(&self.spec.template, self.set);
            pod.metadata.generate_name = Some(format!("{}-", self.set.name_any()));
            let generation = self.set.metadata.generation.unwrap_or(1).to_string();
            pod.labels_mut().insert("pod-template-generation".into(), generation);
            pod.labels_mut().insert(POD_LABEL.into(), self.hash.clone());
            pod.spec.get_or_insert_default().node_name = Some(node.clone());
            self.api.create(&PostParams::default(), &pod).await?;
        }
        for (node, pods) in &self.pods {
            let finished = |pod: &&Pod| pods::is_terminal(pod) || !self.nodes.contains(node);
            for pod in pods.iter().filter(finished) {
                self.delete(pod).await?;
            }
        }
        Ok(())
    }

    /// Takes old pods away: those that are not available at once, others as far as the bound
    /// allows.
    async fn update(&self) -> Result<(), Failed> {
        let strategy = self.spec.update_strategy.clone().unwrap_or_default();
        if strategy.type_.as_deref() == Some("OnDelete") {
            return Ok(());
        }
        let bound = strategy.rolling_update.and_then(|rolling| rolling.max_unavailable);
        let nodes = i32::try_from(self.nodes.len()).unwrap_or(i32::MAX);
        let most = bound.map_or(1, |bound| scaled(&bound, nodes, true));
        let missing = self
            .nodes
            .iter()
            .filter(|node| !self.on(node).is_some_and(|pod| self.is_available(pod)))
            .count();
        let mut room = most - i32::try_from(missing).unwrap_or(i32::MAX);
        for pod in self.nodes.iter().filter_map(|node| self.on(node)) {
            if self.is_current(pod) || !pods::is_active(pod) {
                continue;
            }
            if self.is_available(pod) {
                if room <= 0 {
                    continue;
                }
                room -= 1;
            }
            self.delete(pod).await?;
        }
        Ok(())
    }

    async fn delete(&self, pod: &Pod) -> Result<(), Failed> {
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let deleted = self.api.delete(&pod.name_any(), &DeleteParams::default()).await.map(drop);
        Ok(ignore(deleted, 404)?)
    }

    fn status(&self) -> DaemonSetStatus {
        let count = |wanted: &dyn Fn(&Pod) -> bool| {
            let nodes = self.nodes.iter().filter(|node| self.on(node).is_some_and(wanted)).count();
            i32::try_from(nodes).unwrap_or(i32::MAX)
        };
        let some = |count: i32| Some(count).filter(|count| *count > 0);
        let desired = i32::try_from(self.nodes.len()).unwrap_or(i32::MAX);
        let available = count(&|pod| self.is_available(pod));
        let misplaced = self.pods.keys().filter(|node| !self.nodes.contains(node)).count();
        DaemonSetStatus {
            current_number_scheduled: count(&|_| true),
            desired_number_scheduled: desired,
            number_available: some(available),
            number_misscheduled: i32::try_from(misplaced).unwrap_or(i32::MAX),
            number_ready: count(&|pod| pods::is_active(pod) && pods::is_ready(pod)),
            number_unavailable: some(desired - available),
            observed_generation: self.set.metadata.generation,
            updated_number_scheduled: some(count(&|pod| self.is_current(pod))),
            ..DaemonSetStatus::default()
        }
    }
}
