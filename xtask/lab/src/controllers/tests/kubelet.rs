//! A kubelet that runs nothing: pods are running at once, ready a little later, and gone a little
//! after their deletion.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::api::{self, Handle};
use crate::controllers::pods;

/// How long a pod takes to get ready, and to end.
const READY_AFTER: Duration = Duration::from_millis(30);
const GONE_AFTER: Duration = Duration::from_millis(60);

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
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace().unwrap_or_default());
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
        return write(json!({ "conditions": conditions(true) })).await;
    }
    tokio::time::sleep(GONE_AFTER).await;
    write(json!({ "phase": "Succeeded", "conditions": conditions(false) })).await?;
    api.delete(&name, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() })
        .await
        .map(drop)
}

fn conditions(ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!([
        { "type": "PodScheduled", "status": "True", "lastTransitionTime": pods::now() },
        { "type": "Ready", "status": status, "lastTransitionTime": pods::now() },
    ])
}
