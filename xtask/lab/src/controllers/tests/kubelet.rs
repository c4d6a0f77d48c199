//! A kubelet that runs nothing: pods are running at once, ready a little later, and gone a little
//! after their deletion. Where there is a Service, "a little" is until its slice has shown it: a
//! busy machine would otherwise let the slice skip a state, as it may.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{EndpointConditions, EndpointSlice};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::api::{self, Handle};
use crate::controllers::pods;

/// How long a pod takes to get ready, and to end.
const READY_AFTER: Duration = Duration::from_millis(30);
const GONE_AFTER: Duration = Duration::from_millis(60);
/// A pod that no slice shows by then is on its own.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks at the slices.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Starts it. It ends with the runtime of the test.
pub fn start(server: &Handle) -> anyhow::Result<()> {
    let client = api::client(&server.url(), "lab-kubelet")?;
    tokio::spawn(async move {
        let config = watcher::Config::default().fields("spec.nodeName!=");
        let mut events = watcher(Api::<Pod>::all(client.clone()), config).boxed();
        let mut begun = std::collections::BTreeSet::new();
        let mut address = 1_u8;
        while let Some(event) = events.try_next().await? {
            let (watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) = event else {
                continue;
            };
            if begun.insert((pod.uid(), pod.metadata.deletion_timestamp.is_some())) {
                address += 1;
                tokio::spawn(life(client.clone(), pod, format!("10.244.0.{address}")));
            }
        }
        anyhow::Ok(())
    });
    Ok(())
}

async fn life(client: Client, pod: Pod, address: String) -> Result<(), kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    let write = async |status: Value| {
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({ "status": status })))
            .await
            .map(drop)
    };
    if pod.metadata.deletion_timestamp.is_none() {
        write(json!({
            "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }], "conditions": conditions(false),
        }))
        .await?;
        tokio::time::sleep(READY_AFTER).await;
        shown(&client, &pod, |conditions| conditions.ready == Some(false)).await?;
        return write(json!({ "conditions": conditions(true) })).await;
    }
    tokio::time::sleep(GONE_AFTER).await;
    shown(&client, &pod, |conditions| conditions.terminating == Some(true)).await?;
    write(json!({ "phase": "Succeeded", "conditions": conditions(false) })).await?;
    api.delete(&name, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() })
        .await
        .map(drop)
}

/// Waits until a slice shows the pod so; at once when there is no Service.
async fn shown(
    client: &Client,
    pod: &Pod,
    so: impl Fn(&EndpointConditions) -> bool,
) -> Result<(), kube::Error> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    if services.list(&ListParams::default()).await?.items.is_empty() {
        return Ok(());
    }
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &namespace);
    let look = async {
        loop {
            let slices = slices.list(&ListParams::default()).await?;
            let mut endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
            let is_shown = endpoints.any(|endpoint| {
                let target = endpoint.target_ref.as_ref().and_then(|target| target.name.as_ref());
                target == Some(&name) && endpoint.conditions.as_ref().is_some_and(&so)
            });
            if is_shown {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    tokio::time::timeout(SHOWN_WITHIN, look).await.unwrap_or(Ok(()))
}

fn conditions(ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!([
        { "type": "PodScheduled", "status": "True", "lastTransitionTime": pods::now() },
        { "type": "Ready", "status": status, "lastTransitionTime": pods::now() },
    ])
}
