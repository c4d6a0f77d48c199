//! What a soak creates: a Deployment that drains, a Service for each kind of traffic, two clients.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::kind::Kind;
use super::truth::{self, Counts};
use crate::app::failure::Failure;
use crate::journal::Event;
use crate::net::AddressPlan;
use crate::run::cluster::NAMESPACE;
use crate::run::workload::{SERVICE_PORT, pod_backends, service};
use crate::scenario::Stage;

/// The Deployment.
pub const APPLICATION: &str = "soak";
/// Its pods.
pub const PODS: usize = 3;
/// A client begins, and ends after its SIGTERM, within this time: an exchange takes at most 5 s.
const CLIENT_WITHIN: Duration = Duration::from_secs(30);

/// A client of the soak.
#[derive(Debug)]
pub struct SoakClient {
    /// Its name.
    pub name: &'static str,
    /// Its node.
    pub node: String,
    logs: PathBuf,
}

/// Creates the Services and the Deployment, and waits until its pods are reached by everybody.
pub async fn deploy(stage: &Stage<'_>, plan: AddressPlan) -> Result<Vec<SocketAddr>> {
    let mut targets = Vec::new();
    for (kind, number) in Kind::all().iter().zip(1_u8..) {
        let addresses = plan.further_service(number);
        let mut object = service(&kind.name(), APPLICATION, &addresses);
        object["spec"]["ports"][0]["targetPort"] = json!(kind.port());
        stage.create("Service", "v1", object).await?;
        let address = *addresses.first().context("a Service has an address")?;
        targets.push(SocketAddr::new(address, SERVICE_PORT));
    }
    let mut deployment = stage.setup.deployment(NAMESPACE, APPLICATION, i32::try_from(PODS)?);
    deployment["spec"]["template"]["spec"]["containers"] = containers(stage, "1");
    stage.deploy("Deployment", "apps/v1", deployment, PODS).await?;
    let mut backends = std::collections::BTreeSet::new();
    for pod in stage.ready(APPLICATION, "1", PODS).await? {
        backends.extend(pod_backends(&pod)?);
    }
    stage.cluster.reachable(&backends).await?;
    Ok(targets)
}

fn containers(stage: &Stage<'_>, version: &str) -> Value {
    let mut containers = stage.setup.containers(APPLICATION, version);
    containers[0]["command"] = json!(["rollrace-lab", "soak-server"]);
    let port = |kind: &Kind| json!({"containerPort": kind.port(), "protocol": "TCP"});
    containers[0]["ports"] = Kind::all().iter().map(port).collect();
    containers
}

/// Rolls the Deployment out, and waits until the last old pod is gone.
pub async fn roll_out(stage: &Stage<'_>) -> Result<()> {
    let patch = json!({"spec": {"template": {"spec": {"containers": containers(stage, "2")}}}});
    stage.patch("Deployment", "apps/v1", APPLICATION, &patch).await?;
    stage.settled(APPLICATION, "2", PODS).await
}

/// Starts a client in a pod of the first node, and one in the last node's own namespace.
pub async fn start_clients(
    stage: &Stage<'_>,
    targets: &[SocketAddr],
    out: &Path,
) -> Result<Vec<SoakClient>> {
    let nodes = &stage.cluster.nodes;
    let (first, last) = (nodes.first().context("a node")?, nodes.last().context("a node")?);
    let mut clients = Vec::new();
    for (name, node, host_network) in [("client", first, false), ("client-host", last, true)] {
        let node = node.addresses.name.clone();
        let mut command = vec!["rollrace-lab".to_owned(), "soak-client".to_owned()];
        let logs = out.to_str().context("the out directory's path is not UTF-8")?.to_owned();
        command.extend(["--name".to_owned(), name.to_owned(), "--logs".to_owned(), logs]);
        command.extend(targets.iter().flat_map(|to| ["--target".to_owned(), to.to_string()]));
        let pod = json!({
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
            "spec": {
                "nodeName": node,
                "hostNetwork": host_network,
                "restartPolicy": "Never",
                "containers": [{
                    "name": "client",
                    "image": "registry.example/client:1",
                    "command": command,
                }],
            },
        });
        stage.create("Pod", "v1", pod).await?;
        clients.push(SoakClient { name, node, logs: out.to_owned() });
    }
    let begun = |client: &SoakClient, event: &Event| matches!(event, Event::PodStarted { pod, .. } if *pod == client.full_name());
    wait(stage, &clients, begun).await.context("the clients do not start: see pods/")?;
    Ok(clients)
}

/// Ends the clients, and waits until they have written their last lines.
pub async fn end_clients(stage: &Stage<'_>, clients: &[SoakClient]) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(stage.cluster.client.clone(), NAMESPACE);
    for client in clients {
        pods.delete(client.name, &DeleteParams::default())
            .await
            .with_context(|| format!("delete the pod {}", client.name))?;
    }
    let ended = |client: &SoakClient, event: &Event| matches!(event, Event::ContainerExited { pod, .. } if *pod == client.full_name());
    wait(stage, clients, ended).await.context("the clients do not end: see pods/")
}

async fn wait(
    stage: &Stage<'_>,
    clients: &[SoakClient],
    is_it: impl Fn(&SoakClient, &Event) -> bool,
) -> Result<()> {
    let of_all = stage.cluster.journal.wait_for(|entries| {
        clients.iter().all(|client| entries.iter().any(|entry| is_it(client, &entry.event)))
    });
    timeout(CLIENT_WITHIN, of_all).await?
}

impl SoakClient {
    fn full_name(&self) -> String {
        format!("{NAMESPACE}/{}", self.name)
    }

    fn log(&self, kind: Kind) -> PathBuf {
        truth::log(&self.logs, self.name, kind)
    }

    /// What it has done so far, of all kinds.
    pub fn so_far(&self) -> Counts {
        Kind::all().iter().map(|kind| truth::so_far(&self.log(*kind))).sum()
    }

    /// What it wrote down of a kind.
    pub fn read(&self, kind: Kind) -> Result<(Counts, Vec<Failure>)> {
        truth::read(&self.log(kind))
    }
}
