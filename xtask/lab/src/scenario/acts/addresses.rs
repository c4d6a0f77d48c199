//! Addresses that pass from one pod to another while entries still lead there.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use super::API;
use crate::journal::Event;
use crate::kubelet::ADDRESS_OF_ANNOTATION;
use crate::run::cluster::NAMESPACE;
use crate::run::workload::pod_backends;
use crate::scenario::objects;
use crate::scenario::stage::Stage;

/// A proxy programs within a second or two; this long means that it is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// Version of the pods that take addresses over: of no rollout.
const HEIR: &str = "heir";

/// A rollout; then a pod of an application takes over the address of each old pod.
pub async fn reuse(stage: &Stage<'_>, application: &str) -> Result<()> {
    let old = stage.ready(API, "1", 3).await?;
    if application != API {
        stage.serve_others(application).await?;
    }
    stage.roll_out(API, "2").await?;
    stage.settled(API, "2", 3).await?;
    // A fresh connection that a late proxy still sends to the address would be no stale one.
    rules_gone(stage, &old).await?;
    for (number, pod) in old.iter().enumerate() {
        let name = format!("{application}-heir-{number}");
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        let mut heir = objects::template(stage.setup, application, HEIR);
        heir["kind"] = json!("Pod");
        heir["apiVersion"] = json!("v1");
        heir["metadata"]["name"] = json!(name);
        heir["metadata"]["namespace"] = json!(NAMESPACE);
        heir["metadata"]["annotations"] =
            json!({ADDRESS_OF_ANNOTATION: address.context("an old pod has an address")?});
        // It answers at once: an entry that it refuses is gone.
        let command = heir["spec"]["containers"][0]["command"].as_array_mut();
        let command = command.context("a container has a command")?;
        command.extend([json!("--listen-after"), json!("0")]);
        heir["spec"]["nodeName"] =
            json!(node.with_context(|| format!("{} has a node", pod.name_any()))?);
        stage.create("Pod", "v1", heir).await?;
    }
    stage.ready(application, HEIR, old.len()).await.map(drop)
}

/// Waits until no proxy has a rule for these pods any more.
async fn rules_gone(stage: &Stage<'_>, pods: &[Pod]) -> Result<()> {
    let mut backends: BTreeSet<SocketAddr> = BTreeSet::new();
    for pod in pods {
        backends.extend(pod_backends(pod)?);
    }
    let nodes: Vec<&String> = stage.cluster.nodes.iter().map(|node| &node.addresses.name).collect();
    let all_gone = stage.cluster.journal.wait_for(|entries| {
        nodes.iter().all(|node| {
            backends.iter().all(|backend| {
                let gone = Event::RuleGone { node: (*node).clone(), backend: *backend };
                entries.iter().any(|entry| entry.event == gone)
            })
        })
    });
    tokio::time::timeout(STUCK_AFTER, all_gone).await.context("a proxy keeps an old pod's rule")?
}
