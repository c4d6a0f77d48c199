//! Pods that fail without being removed: a node lost, a container that dies, a bad replica.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::process::Command;
use tokio::time::sleep;

use super::API;
use crate::net::run_tool;
use crate::run::cluster::NAMESPACE;
use crate::scenario::stage::{Action, Stage};

/// The node that is lost: one without clients.
const LOST: &str = "n2";
/// From the loss to the node controller's notice (`node-monitor-grace-period`, 50 s in reality).
const NOTICED_AFTER: Duration = Duration::from_secs(4);

/// Cuts a node off; later the node controller takes notice, as the real one does.
pub async fn lose_node(stage: &Stage<'_>) -> Result<()> {
    stage.note(Action::NodeLost { node: LOST.to_owned() });
    let mut ip = Command::new("ip");
    ip.args(["link", "set", LOST, "down"]);
    run_tool(ip, "").await.context("cut the node off")?;
    sleep(NOTICED_AFTER).await;
    let client = stage.user("node-controller")?;
    let condition = json!({
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
    });
    let (parameters, patch) =
        (PatchParams::default(), json!({"status": {"conditions": [condition]}}));
    Api::<Node>::all(client.clone())
        .patch_status(LOST, &parameters, &Patch::Merge(&patch))
        .await
        .context("mark the node as not ready")?;
    let pods = Api::<Pod>::namespaced(client, NAMESPACE);
    let on_node = ListParams::default().fields(&format!("spec.nodeName={LOST}"));
    for pod in pods.list(&on_node).await.context("list the node's pods")? {
        let mut conditions = json!(pod.status.as_ref().and_then(|s| s.conditions.clone()));
        for condition in conditions.as_array_mut().into_iter().flatten() {
            if condition["type"] == "Ready" {
                condition["status"] = json!("False");
            }
        }
        let patch = json!({"status": {"conditions": conditions}});
        pods.patch_status(&pod.name_any(), &parameters, &Patch::Merge(&patch))
            .await
            .context("mark a pod of the node as not ready")?;
    }
    Ok(())
}

/// Kills a container; the kubelet starts it again at once.
pub async fn restart(stage: &Stage<'_>) -> Result<()> {
    let pods = stage.ready(API, "1", 3).await?;
    let name = pods.first().context("a ready pod")?.name_any();
    stage.cluster.journal.phase(&format!("kill the container of {name}"));
    let id = container_process(&name)?;
    kill(Pid::from_raw(id), Signal::SIGKILL).context("kill a container")?;
    // It is ready again when it listens.
    sleep(Duration::from_secs(1)).await;
    stage.ready(API, "1", 3).await.map(drop)
}

/// The server process of a pod: the one with the pod's name in its environment.
fn container_process(pod: &str) -> Result<i32> {
    let wanted = format!("HOSTNAME={pod}");
    for entry in std::fs::read_dir("/proc").context("list the processes")? {
        let entry = entry.context("list the processes")?;
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // A process that ends meanwhile is not the one.
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        if environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()) {
            return Ok(id);
        }
    }
    anyhow::bail!("no process runs the container of {pod}")
}

/// A ready pod of three refuses everybody but its own kubelet, so it stays ready.
pub async fn make_bad(stage: &Stage<'_>, application: &str, version: &str) -> Result<()> {
    let pods = stage.ready(application, version, 3).await?;
    // On a node without a host client: that one has the kubelet's address.
    let first = &stage.cluster.nodes.first().context("a node")?.addresses;
    let pod = pods
        .iter()
        .find(|pod| pod.spec.as_ref().and_then(|s| s.node_name.as_ref()) == Some(&first.name))
        .context("a pod on the first node")?;
    let address: IpAddr = pod
        .status
        .as_ref()
        .and_then(|status| status.pod_ip.as_deref())
        .context("the pod's address")?
        .parse()
        .context("read the pod's address")?;
    let number = (2..=254).find(|number| first.pod_addresses(*number).contains(&address));
    let number = number.context("the pod's number")?;
    stage.note(Action::MadeBad { pod: pod.name_any() });
    for kubelet in &first.addresses {
        let tool = if kubelet.is_ipv4() { "iptables" } else { "ip6tables" };
        let mut refuse = Command::new("ip");
        refuse
            .args(["netns", "exec", &format!("{}-pod{number}", first.name), tool])
            .args(["-A", "INPUT", "-p", "tcp", "--syn", "--dport", "8080"])
            .args(["!", "-s", &kubelet.to_string()])
            .args(["-j", "REJECT", "--reject-with", "tcp-reset"]);
        let made = refuse.status().await.with_context(|| format!("run {tool} in the pod"))?;
        ensure!(made.success(), "{tool} failed in the pod ({made})");
    }
    Ok(())
}
