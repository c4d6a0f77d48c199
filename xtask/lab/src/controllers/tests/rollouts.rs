//! Deployments and their `ReplicaSets`.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use super::{Cluster, deployment, is_complete, kubelet, template};

const REVISION: &str = "deployment.kubernetes.io/revision";

async fn roll_out(cluster: &Cluster, version: &str) -> anyhow::Result<Deployment> {
    let patch = Patch::Merge(json!({ "spec": { "template": template(version) } }));
    let patched = cluster.api::<Deployment>().patch("api", &PatchParams::default(), &patch).await?;
    let generation = patched.metadata.generation;
    cluster.until("api", |deployment: &Deployment| deployment.metadata.generation >= generation && is_complete(deployment)).await
}

#[tokio::test]
async fn a_rolling_update_replaces_every_pod_and_never_goes_below_the_wanted_number() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    kubelet::start(&cluster.server)?;
    cluster.create::<Deployment>(deployment(3, "1")).await?;
    cluster.until("api", is_complete).await?;
    let before: Vec<String> =
        cluster.api::<Pod>().list(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();

    let rolled = roll_out(&cluster, "2").await?;
    assert_eq!(rolled.annotations()[REVISION], "2");
    let rolled: Deployment = cluster
        .until("api", |deployment: &Deployment| {
            deployment.status.as_ref().and_then(|status| status.terminating_replicas) == Some(0)
        })
        .await?;
    let status = rolled.status.unwrap_or_default();
    let reasons: Vec<&str> = status.conditions.iter().flatten().filter_map(|c| c.reason.as_deref()).collect();
    assert_eq!(reasons, ["MinimumReplicasAvailable", "NewReplicaSetAvailable"]);

    let removals = cluster.server.removals();
    assert!(removals.iter().all(|removal| removal.user == "replicaset-controller" && removal.grace_seconds == 30));
    let mut removed: Vec<String> = removals.into_iter().map(|removal| removal.pod).collect();
    removed.sort();
    assert_eq!(removed, before, "exactly the pods of the first revision were removed");

    let sets = cluster.api::<ReplicaSet>().list(&ListParams::default()).await?.items;
    let mut sizes: Vec<(String, i32)> = sets
        .iter()
        .map(|set| (set.annotations()[REVISION].clone(), set.status.as_ref().map_or(-1, |status| status.replicas)))
        .collect();
    sizes.sort();
    assert_eq!(sizes, [("1".to_owned(), 0), ("2".to_owned(), 3)]);
    Ok(())
}

#[tokio::test]
async fn a_rollback_renumbers_the_old_replica_set() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    kubelet::start(&cluster.server)?;
    cluster.create::<Deployment>(deployment(2, "1")).await?;
    cluster.until("api", is_complete).await?;
    let first = cluster.api::<ReplicaSet>().list(&ListParams::default()).await?.items.remove(0);
    roll_out(&cluster, "2").await?;
    roll_out(&cluster, "1").await?;
    let again: ReplicaSet =
        cluster.until(&first.name_any(), |set: &ReplicaSet| set.annotations()[REVISION] == "3").await?;
    assert_eq!(again.annotations()["deployment.kubernetes.io/revision-history"], "1");
    assert_eq!(again.metadata.creation_timestamp, first.metadata.creation_timestamp);
    cluster.until("api", |deployment: &Deployment| deployment.annotations()[REVISION] == "3").await?;
    Ok(())
}

#[tokio::test]
async fn recreate_makes_no_new_pod_before_the_last_old_one_is_gone() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    kubelet::start(&cluster.server)?;
    let mut object = deployment(2, "1");
    object["spec"]["strategy"] = json!({ "type": "Recreate" });
    cluster.create::<Deployment>(object).await?;
    cluster.until("api", is_complete).await?;
    roll_out(&cluster, "2").await?;
    let pods = cluster.api::<Pod>().list(&ListParams::default()).await?.items;
    assert_eq!(pods.len(), 2);
    assert_eq!(cluster.server.removals().len(), 2);
    Ok(())
}

#[tokio::test]
async fn scaling_down_removes_pods_without_a_new_revision() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    kubelet::start(&cluster.server)?;
    cluster.create::<Deployment>(deployment(3, "1")).await?;
    cluster.until("api", is_complete).await?;
    let patch = Patch::Merge(json!({ "spec": { "replicas": 1 } }));
    cluster.api::<Deployment>().patch("api", &PatchParams::default(), &patch).await?;
    let scaled: Deployment = cluster
        .until("api", |d: &Deployment| is_complete(d) && d.spec.as_ref().and_then(|spec| spec.replicas) == Some(1))
        .await?;
    assert_eq!(scaled.annotations()[REVISION], "1");
    assert_eq!(cluster.server.removals().len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_deleted_deployment_takes_its_replica_sets_and_pods_along() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    cluster.create::<Deployment>(deployment(2, "1")).await?;
    let set: ReplicaSet = loop {
        let sets = cluster.api::<ReplicaSet>().list(&ListParams::default()).await?.items;
        if let Some(set) = sets.into_iter().next() {
            break set;
        }
        tokio::task::yield_now().await;
    };
    cluster.until(&set.name_any(), |set: &ReplicaSet| set.status.as_ref().is_some_and(|s| s.replicas == 2)).await?;
    cluster.api::<Deployment>().delete("api", &DeleteParams::default()).await?;
    assert!(cluster.api::<ReplicaSet>().list(&ListParams::default()).await?.items.is_empty());
    let pods = cluster.api::<Pod>().list(&ListParams::default()).await?.items;
    assert!(pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_some()));
    Ok(())
}
