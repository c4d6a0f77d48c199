//! `EndpointSlices`, compared in shape with the recording `readiness-fresh-wire`.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;

use super::{Cluster, create_service, deployment, is_complete, kubelet, template};

const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The conditions of each endpoint, in order: `R` ready, `S` serving but not ready (terminating), `n` neither,
/// and `t` terminating without serving.
fn shape(slice: &EndpointSlice) -> String {
    slice
        .endpoints
        .iter()
        .map(|endpoint| {
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            match (conditions.ready, conditions.serving, conditions.terminating) {
                (Some(true), Some(true), Some(false)) => 'R',
                (Some(false), Some(true), Some(true)) => 'S',
                (Some(false), Some(false), Some(false)) => 'n',
                (Some(false), Some(false), Some(true)) => 't',
                _ => '?',
            }
        })
        .collect()
}

#[tokio::test]
async fn a_rolling_update_goes_through_the_slice_states_of_the_recording() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    kubelet::start(&cluster.server)?;
    create_service(&cluster).await?;
    cluster.create::<Deployment>(deployment(3, "1")).await?;
    cluster.until("api", is_complete).await?;
    let slices = cluster.api::<EndpointSlice>();
    let first = slices.list(&kube::api::ListParams::default()).await?;
    let slice = &first.items[0];
    assert_eq!(shape(slice), "RRR");
    let port = &slice.ports.as_deref().unwrap_or_default()[0];
    assert_eq!((port.name.as_deref(), port.port), (Some("http"), Some(8080)));
    assert!(slice.metadata.name.as_ref().is_some_and(|name| name.starts_with("api-") && name.len() == 9));

    let revision = first.metadata.resource_version.unwrap_or_default();
    let mut events = slices.watch(&WatchParams::default(), &revision).await?.boxed();
    let patch = Patch::Merge(json!({ "spec": { "template": template("2") } }));
    cluster.api::<Deployment>().patch("api", &PatchParams::default(), &patch).await?;
    let mut shapes: Vec<String> = Vec::new();
    let collect = async {
        while let Some(event) = events.try_next().await? {
            let WatchEvent::Modified(slice) = event else { continue };
            let shape = shape(&slice);
            let lost_readiness = shape.contains('S')
                && shapes.last().is_none_or(|last| last.matches('S').count() < shape.matches('S').count())
                && shapes.last().is_some_and(|last| last.len() == shape.len());
            if lost_readiness {
                let annotated = slice.metadata.annotations.unwrap_or_default().contains_key(TRIGGER);
                assert!(!annotated, "a termination carries no trigger time");
            }
            shapes.push(shape);
            if shapes.len() > 6 && shapes.last().is_some_and(|last| last == "RRR") {
                break;
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(super::PATIENCE, collect).await.map_err(|_| anyhow::anyhow!("only saw {shapes:?}"))??;
    // The recording: RRRn RRRR RRSR RRSRn RRRn RRRR RSRR RSRRn RRRn RRRR SRRR RRR; whether the next pod has its address
    // before the old one is gone depends on the kubelets.
    assert_eq!(&shapes[..2], ["RRRn", "RRRR"]);
    assert_eq!(shapes.iter().filter(|shape| *shape == "RRRR").count(), 3);
    let terminations = shapes.windows(2).filter(|pair| pair[0] == "RRRR" && pair[1].contains('S')).count();
    assert_eq!(terminations, 3, "{shapes:?}");
    assert!(shapes.iter().all(|shape| shape.matches('R').count() >= 3), "{shapes:?}");
    Ok(())
}

#[tokio::test]
async fn a_service_without_pods_has_one_empty_slice() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    create_service(&cluster).await?;
    let slices = cluster.api::<EndpointSlice>();
    let mut events = slices.watch(&WatchParams::default(), "0").await?.boxed();
    let first = tokio::time::timeout(super::PATIENCE, events.try_next()).await??;
    let Some(WatchEvent::Added(slice)) = first else { anyhow::bail!("no slice was made: {first:?}") };
    assert!(slice.endpoints.is_empty() && slice.ports.is_none());
    assert!(slice.metadata.annotations.unwrap_or_default().contains_key(TRIGGER));
    Ok(())
}

#[tokio::test]
async fn publish_not_ready_addresses_makes_every_endpoint_ready() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let mut object = super::service();
    object["spec"]["publishNotReadyAddresses"] = true.into();
    object["spec"]["clusterIP"] = "None".into();
    cluster.create::<k8s_openapi::api::core::v1::Service>(object).await?;
    let pod = json!({
        "metadata": { "name": "a", "labels": { "app": "api" } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "app", "ports": [{ "name": "web", "containerPort": 1 }] }] },
    });
    cluster.create::<k8s_openapi::api::core::v1::Pod>(pod).await?;
    let status = json!({ "status": { "phase": "Running", "podIP": "10.244.0.9", "podIPs": [{ "ip": "10.244.0.9" }] } });
    cluster
        .api::<k8s_openapi::api::core::v1::Pod>()
        .patch_status("a", &PatchParams::default(), &Patch::Merge(status))
        .await?;
    let slices = cluster.api::<EndpointSlice>();
    let mut events = slices.watch(&WatchParams::default(), "0").await?.boxed();
    let found = async {
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Added(slice) | WatchEvent::Modified(slice) = event
                && let Some(endpoint) = slice.endpoints.first()
            {
                let conditions = endpoint.conditions.clone().unwrap_or_default();
                return Ok((conditions.ready, conditions.serving, slice.metadata.labels.unwrap_or_default()));
            }
        }
        anyhow::bail!("the watch ended")
    };
    let (ready, serving, labels) = tokio::time::timeout(super::PATIENCE, found).await??;
    assert_eq!((ready, serving), (Some(true), Some(false)));
    assert_eq!(labels["service.kubernetes.io/headless"], "");
    Ok(())
}
