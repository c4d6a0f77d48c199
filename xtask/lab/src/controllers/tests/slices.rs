//! `EndpointSlices`, compared in shape with the recording `readiness-fresh-wire`.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;

use super::{Cluster, create_service, deployment, is_complete, kubelet, template};

const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The conditions of each endpoint, in order: `R` ready, `S` serving but not ready (terminating),
/// `n` neither, and `t` terminating without serving.
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

/// What each endpoint went through, by pod name: `nR` is a new pod, `RS-` an old one (`-` is its
/// absence).
type Lives = BTreeMap<String, String>;

/// Takes over a slice; true when the endpoints that changed all went from ready to terminating.
fn follow(lives: &mut Lives, slice: &EndpointSlice) -> bool {
    let states: BTreeMap<String, char> = slice
        .endpoints
        .iter()
        .zip(shape(slice).chars())
        .map(|(endpoint, state)| {
            (endpoint.target_ref.clone().and_then(|target| target.name).unwrap_or_default(), state)
        })
        .collect();
    for name in states.keys() {
        lives.entry(name.clone()).or_default();
    }
    let mut only_terminations = true;
    for (name, life) in lives {
        let state = states.get(name).copied().unwrap_or('-');
        if !life.ends_with(state) {
            only_terminations &= life.ends_with('R') && state == 'S';
            life.push(state);
        }
    }
    only_terminations
}

#[tokio::test]
async fn a_rolling_update_takes_the_endpoints_through_the_states_of_the_recording()
-> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    kubelet::start(&cluster.server)?;
    create_service(&cluster).await?;
    cluster.create::<Deployment>(deployment(3, "1")).await?;
    cluster.until("api", is_complete).await?;
    let slices = cluster.api::<EndpointSlice>();
    // The slice follows the pods, so it may be a moment behind the Deployment.
    let name = slices.list(&ListParams::default()).await?.items[0].name_any();
    let first = cluster.until(&name, |slice: &EndpointSlice| shape(slice) == "RRR").await?;
    let port = &first.ports.as_deref().unwrap_or_default()[0];
    assert_eq!((port.name.as_deref(), port.port), (Some("http"), Some(8080)));
    assert!(name.starts_with("api-") && name.len() == 9, "{name}");

    let mut lives = Lives::new();
    follow(&mut lives, &first);
    let mut events = slices
        .watch(&WatchParams::default(), &first.resource_version().unwrap_or_default())
        .await?
        .boxed();
    let patch = Patch::Merge(json!({ "spec": { "template": template("2") } }));
    cluster.api::<Deployment>().patch("api", &PatchParams::default(), &patch).await?;
    let collect = async {
        while let Some(event) = events.try_next().await? {
            let WatchEvent::Modified(slice) = event else {
                continue;
            };
            assert!(
                shape(&slice).matches('R').count() >= 3,
                "the bounds allow no replica to be missing"
            );
            if follow(&mut lives, &slice) {
                assert!(
                    !slice.annotations().contains_key(TRIGGER),
                    "a termination carries no trigger time"
                );
            }
            if shape(&slice) == "RRR" && lives.len() == 6 {
                break;
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(super::PATIENCE, collect)
        .await
        .map_err(|_| anyhow::anyhow!("only saw {lives:?}"))??;
    // As in the recording (`RRRn RRRR RRSR RRSRn ... RRR`), where each old pod is seen serving
    // while it terminates.
    let mut seen: Vec<&str> = lives.values().map(String::as_str).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["RS-", "RS-", "RS-", "nR", "nR", "nR"]);
    Ok(())
}

#[tokio::test]
async fn a_service_without_pods_has_one_empty_slice() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    create_service(&cluster).await?;
    let slices = cluster.api::<EndpointSlice>();
    let mut events = slices.watch(&WatchParams::default(), "0").await?.boxed();
    let first = tokio::time::timeout(super::PATIENCE, events.try_next()).await??;
    let Some(WatchEvent::Added(slice)) = first else {
        anyhow::bail!("no slice was made: {first:?}")
    };
    assert!(slice.endpoints.is_empty() && slice.ports.is_none());
    assert!(slice.metadata.annotations.unwrap_or_default().contains_key(TRIGGER));
    Ok(())
}

#[tokio::test]
async fn a_dual_stack_service_has_a_slice_of_each_family_under_a_name_of_its_own()
-> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let mut object = super::service();
    object["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]);
    object["spec"]["ipFamilyPolicy"] = "RequireDualStack".into();
    let service = cluster.create::<Service>(object).await?;
    let addresses = service.spec.and_then(|spec| spec.cluster_ips).unwrap_or_default();
    let v6: Vec<bool> = addresses.iter().map(|address| address.contains(':')).collect();
    assert_eq!(v6, [false, true], "{addresses:?}");
    let pod = json!({
        "metadata": { "name": "a", "labels": { "app": "api" } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "app", "ports": [{ "name": "web", "containerPort": 8080 }] }] },
    });
    cluster.create::<Pod>(pod).await?;
    let ips = ["10.244.1.9", "fd00:10:244:1::9"];
    let status = json!({ "status": {
        "phase": "Running", "podIP": ips[0], "podIPs": [{ "ip": ips[0] }, { "ip": ips[1] }],
    } });
    let merge = Patch::Merge(status);
    cluster.api::<Pod>().patch_status("a", &PatchParams::default(), &merge).await?;

    let mut events =
        cluster.api::<EndpointSlice>().watch(&WatchParams::default(), "0").await?.boxed();
    let found = async {
        let mut slices = BTreeMap::new();
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Added(slice) | WatchEvent::Modified(slice) = event {
                let addresses =
                    slice.endpoints.iter().flat_map(|endpoint| endpoint.addresses.clone());
                slices.insert(slice.name_any(), (slice.address_type.clone(), addresses.collect()));
            }
            let filled = |(_, addresses): &(String, Vec<String>)| !addresses.is_empty();
            if slices.values().filter(|slice| filled(slice)).count() == 2 {
                return Ok(slices);
            }
        }
        anyhow::bail!("the watch ended")
    };
    let slices = tokio::time::timeout(super::PATIENCE, found).await??;
    let mut told: Vec<_> = slices.into_values().collect();
    told.sort();
    let expected =
        ["IPv4", "IPv6"].map(str::to_owned).into_iter().zip(ips.map(|ip| vec![ip.to_owned()]));
    assert_eq!(told, expected.collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn publish_not_ready_addresses_makes_every_endpoint_ready() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let mut object = super::service();
    object["spec"]["publishNotReadyAddresses"] = true.into();
    object["spec"]["clusterIP"] = "None".into();
    cluster.create::<Service>(object).await?;
    let pod = json!({
        "metadata": { "name": "a", "labels": { "app": "api" } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "app", "ports": [{ "name": "web", "containerPort": 1 }] }] },
    });
    cluster.create::<Pod>(pod).await?;
    let status = json!({ "status": { "phase": "Running", "podIP": "10.244.0.9", "podIPs": [{ "ip": "10.244.0.9" }] } });
    cluster.api::<Pod>().patch_status("a", &PatchParams::default(), &Patch::Merge(status)).await?;
    let slices = cluster.api::<EndpointSlice>();
    let mut events = slices.watch(&WatchParams::default(), "0").await?.boxed();
    let found = async {
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Added(slice) | WatchEvent::Modified(slice) = event
                && let Some(endpoint) = slice.endpoints.first()
            {
                let conditions = endpoint.conditions.clone().unwrap_or_default();
                return Ok((
                    conditions.ready,
                    conditions.serving,
                    slice.metadata.labels.unwrap_or_default(),
                ));
            }
        }
        anyhow::bail!("the watch ended")
    };
    let (ready, serving, labels) = tokio::time::timeout(super::PATIENCE, found).await??;
    assert_eq!((ready, serving), (Some(true), Some(false)));
    assert_eq!(labels["service.kubernetes.io/headless"], "");
    Ok(())
}
