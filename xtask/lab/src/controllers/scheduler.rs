//! The scheduler: each new pod to the node with the fewest of its siblings.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status};
use kube::api::{ListParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::pods;
use super::runner::{self, Reconciled};
use crate::api;

/// The name under which it writes.
const USER: &str = "scheduler";
/// How soon a pod is looked at again that fits on no node; a new node's event is not awaited, so
/// that it need not watch nodes for so rare a case.
const RETRY: Duration = Duration::from_millis(100);

/// Runs the scheduler.
pub async fn run(server: String, shutdown: CancellationToken) -> anyhow::Result<()> {
    let client = api::client(&server, USER)?;
    let unscheduled = watcher::Config::default().fields("spec.nodeName=");
    let controller = Controller::new(Api::<Pod>::all(client.clone()), unscheduled);
    runner::run(USER, controller, client, shutdown, reconcile).await
}

async fn reconcile(seen: Arc<Pod>, client: Arc<Client>) -> Reconciled {
    let client = Client::clone(&client);
    let api: Api<Pod> = Api::namespaced(client.clone(), &seen.namespace().unwrap_or_default());
    let Some(pod) = api.get_opt(&seen.name_any()).await? else {
        return Ok(Action::await_change());
    };
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    if bound || pod.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items;
    let running =
        Api::<Pod>::all(client).list(&ListParams::default().fields("spec.nodeName!=")).await?.items;
    let Some(node) = choose(&pod, &nodes, &running) else {
        return Ok(Action::requeue(RETRY));
    };
    let binding = Binding {
        metadata: ObjectMeta { name: Some(pod.name_any()), ..ObjectMeta::default() },
        target: ObjectReference {
            kind: Some("Node".into()),
            name: Some(node),
            ..ObjectReference::default()
        },
    };
    api.create_subresource::<_, Status>(
        "binding",
        &pod.name_any(),
        &PostParams::default(),
        &binding,
    )
    .await?;
    Ok(Action::await_change())
}

/// The node that fits and has the fewest siblings of the pod, then the fewest pods, then the first
/// name.
fn choose(pod: &Pod, nodes: &[Node], running: &[Pod]) -> Option<String> {
    let owner = pods::controller_of(&pod.metadata).map(|owner| &owner.uid);
    let on = |node: &str, of: &dyn Fn(&Pod) -> bool| {
        let here = |other: &Pod| {
            other.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node)
        };
        running.iter().filter(|other| pods::is_active(other) && here(other) && of(other)).count()
    };
    nodes.iter().filter(|node| fits(pod, node)).map(ResourceExt::name_any).min_by_key(|node| {
        let siblings = on(node, &|other| {
            owner.is_some() && pods::controller_of(&other.metadata).map(|o| &o.uid) == owner
        });
        (siblings, on(node, &|_| true), node.clone())
    })
}

/// Whether a pod may run on a node: it takes pods, and has the labels that the pod selects.
fn fits(pod: &Pod, node: &Node) -> bool {
    let spec = node.spec.as_ref();
    let takes = spec.is_none_or(|spec| spec.unschedulable != Some(true)) && !is_not_ready(node);
    let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
    takes
        && selector.into_iter().flatten().all(|(key, value)| node.labels().get(key) == Some(value))
}

/// Whether the node says of itself that it is not ready; one that says nothing is taken as ready.
fn is_not_ready(node: &Node) -> bool {
    node.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status != "True")
}
