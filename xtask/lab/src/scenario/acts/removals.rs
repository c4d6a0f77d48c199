//! Pods that are removed by something else than a rollout, with and without one at the same time.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::sleep;

use super::API;
use crate::run::cluster::NAMESPACE;
use crate::scenario::stage::Stage;

/// Four replicas become two.
pub async fn scale_down(stage: &Stage<'_>) -> Result<()> {
    stage.scale(API, 2).await?;
    stage.settled(API, "1", 2).await
}

/// All replicas are taken away, and given back.
pub async fn empty(stage: &Stage<'_>) -> Result<()> {
    stage.scale(API, 0).await?;
    stage.settled(API, "1", 0).await?;
    sleep(Duration::from_secs(2)).await;
    stage.scale(API, 3).await?;
    stage.settled(API, "1", 3).await
}

/// Each node sends to its own pods only, and those of a client's node are deleted by hand; others may
/// take their place anywhere.
pub async fn of_one_node(stage: &Stage<'_>) -> Result<()> {
    let local = json!({"spec": {"internalTrafficPolicy": "Local"}});
    stage.patch("Service", "v1", API, &local).await?;
    // The proxies program it within a second.
    sleep(Duration::from_secs(2)).await;
    let last = &stage.cluster.nodes.last().context("a node")?.addresses.name;
    let pods = stage.ready(API, "1", 3).await?;
    let api: Api<Pod> = Api::namespaced(stage.user("lab-delete")?, NAMESPACE);
    for pod in &pods {
        if pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(last) {
            let name = pod.name_any();
            api.delete(&name, &DeleteParams::default())
                .await
                .with_context(|| format!("delete the pod {name}"))?;
        }
    }
    stage.settled(API, "1", 3).await
}

/// Four replicas become two when three of them are of the new version.
pub async fn scale_down_during_rollout(stage: &Stage<'_>) -> Result<()> {
    stage.roll_out(API, "2").await?;
    stage.ready(API, "2", 3).await?;
    stage.scale(API, 2).await?;
    stage.settled(API, "2", 2).await
}

/// A pod is deleted by hand.
pub async fn delete(stage: &Stage<'_>) -> Result<()> {
    delete_one(stage).await?;
    stage.settled(API, "1", 3).await
}

/// A pod of the old version is deleted by hand before the rollout has removed any.
pub async fn delete_during_rollout(stage: &Stage<'_>) -> Result<()> {
    stage.roll_out(API, "2").await?;
    // The first new pod takes over two seconds to be ready, and no old one goes before.
    sleep(Duration::from_secs(1)).await;
    delete_one(stage).await?;
    stage.settled(API, "2", 3).await
}

async fn delete_one(stage: &Stage<'_>) -> Result<()> {
    let (api, name) = one_pod(stage, "lab-delete").await?;
    api.delete(&name, &DeleteParams::default())
        .await
        .with_context(|| format!("delete the pod {name}"))?;
    Ok(())
}

/// A pod is evicted.
pub async fn evict(stage: &Stage<'_>) -> Result<()> {
    let (api, name) = one_pod(stage, "lab-evict").await?;
    api.evict(&name, &EvictParams::default())
        .await
        .with_context(|| format!("evict the pod {name}"))?;
    stage.settled(API, "1", 3).await
}

/// A pod of the first version, and the API as a user of its own sees it.
async fn one_pod(stage: &Stage<'_>, user: &str) -> Result<(Api<Pod>, String)> {
    let pods = stage.ready(API, "1", 1).await?;
    let pod = pods.first().context("a ready pod")?;
    Ok((Api::namespaced(stage.user(user)?, NAMESPACE), pod.name_any()))
}
