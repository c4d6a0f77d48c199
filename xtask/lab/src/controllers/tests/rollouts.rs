//! Deployments and their `ReplicaSets`.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;

use super::{Cluster, deployment, is_complete, kubelet, template};

const REVISION: &str = "deployment.kubernetes.io/revision";

async fn roll_out(cluster: &Cluster, version: &str) -> anyhow::Result<Deployment> {
    let patch = Patch::Merge(json!({ "spec": { "template": template(version) } }));
    let patched = cluster.api::<Deployment>().patch("api", &PatchParams::default(), &patch).await?;
    let generation = patched.metadata.generation;
    cluster
        .until("api", |deployment: &Deployment| {
            deployment.metadata.generation >= generation && is_complete(deployment)
        })
        .await
}

#[tokio::test]
async fn a_rolling_update_replaces_every_pod_and_never_goes_below_the_wanted_number()
-> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    kubelet::start(&cluster.server)?;
    cluster.create::<Deployment>(deployment(3, "1")).await?;
    cluster.until("api", is_complete).await?;
    let before: Vec<String> = cluster
        .api::<Pod>()
        .list(&ListParams::default())
        .await?
        .items
        .iter()
        .map(ResourceExt::name_any)
        .collect();

    let rolled = roll_out(&cluster, "2").await?;
    assert_eq!(rolled.annotations()[REVISION], "2");
    let rolled: Deployment = cluster
        .until("api", |deployment: &Deployment| {
            deployment.status.as_ref().and_then(|status| status.terminating_replicas) == Some(0)
        })
        .await?;
    let status = rolled.status.unwrap_or_default();
    let reasons: Vec<&str> =
        status.conditions.iter().flatten().filter_map(|c| c.reason.as_deref()).collect();
    assert_eq!(reasons, ["MinimumReplicasAvailable", "NewReplicaSetAvailable"]);

    let removals = cluster.server.removals();
    assert!(
        removals
            .iter()
            .all(|removal| removal.user == "replicaset-controller" && removal.grace_seconds == 30)
    );
    let mut removed: Vec<String> = removals.into_iter().map(|removal| removal.pod).collect();
    removed.sort();
    assert_eq!(removed, before, "exactly the pods of the first revision were removed");

    let sets = cluster.api::<ReplicaSet>().list(&ListParams::default()).await?.items;
    let mut sizes: Vec<(String, i32)> = sets
        .iter()
        .map(|set| {
            (
                set.annotations()[REVISION].clone(),
                set.status.as_ref().map_or(-1, |status| status.replicas),
            )
        })
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
    let again: ReplicaSet = cluster
        .until(&first.name_any(), |set: &ReplicaSet| set.annotations()[REVISION] == "3")
        .await?;
    assert_eq!(again.annotations()["deployment.kubernetes.io/revision-history"], "1");
    assert_eq!(again.metadata.creation_timestamp, first.metadata.creation_timestamp);
    cluster
        .until("api", |deployment: &Deployment| deployment.annotations()[REVISION] == "3")
        .await?;
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
        .until("api", |d: &Deployment| {
            is_complete(d) && d.spec.as_ref().and_then(|spec| spec.replicas) == Some(1)
        })
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
    cluster
        .until(&set.name_any(), |set: &ReplicaSet| {
            set.status.as_ref().is_some_and(|s| s.replicas == 2)
        })
        .await?;
    cluster.api::<Deployment>().delete("api", &DeleteParams::default()).await?;
    assert!(cluster.api::<ReplicaSet>().list(&ListParams::default()).await?.items.is_empty());
    let pods = cluster.api::<Pod>().list(&ListParams::default()).await?.items;
    assert!(pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_some()));
    Ok(())
}

#[tokio::test]
async fn a_stateful_set_is_made_in_order_and_replaced_from_the_highest_number_down()
-> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    kubelet::start(&cluster.server)?;
    let object = json!({
        "metadata": { "name": "db" },
        "spec": { "replicas": 3, "serviceName": "db", "selector": { "matchLabels": { "app": "api" } },
            "template": template("1") },
    });
    cluster.create::<StatefulSet>(object).await?;
    let first: StatefulSet = cluster.until("db", |set: &StatefulSet| is_settled(set, 3)).await?;
    let patch = Patch::Merge(json!({ "spec": { "template": template("2") } }));
    cluster.api::<StatefulSet>().patch("db", &PatchParams::default(), &patch).await?;
    let second: StatefulSet = cluster
        .until("db", |set: &StatefulSet| {
            set.metadata.generation > first.metadata.generation && is_settled(set, 3)
        })
        .await?;
    let removed: Vec<String> =
        cluster.server.removals().into_iter().map(|removal| removal.pod).collect();
    assert_eq!(removed, ["db-2", "db-1", "db-0"]);
    let revision = |set: StatefulSet| set.status.and_then(|status| status.current_revision);
    assert_ne!(revision(first), revision(second));
    Ok(())
}

fn is_settled(set: &StatefulSet, wanted: i32) -> bool {
    let status = set.status.clone().unwrap_or_default();
    status.observed_generation == set.metadata.generation
        && status.current_revision == status.update_revision
        && status.updated_replicas == Some(wanted)
        && status.available_replicas == Some(wanted)
}

#[tokio::test]
async fn a_daemon_set_has_a_pod_on_every_node_and_replaces_them_one_at_a_time() -> anyhow::Result<()>
{
    let cluster = Cluster::start().await?;
    kubelet::start(&cluster.server)?;
    let object = json!({
        "metadata": { "name": "agent" },
        "spec": { "selector": { "matchLabels": { "app": "api" } }, "template": template("1") },
    });
    cluster.create::<DaemonSet>(object).await?;
    let rolled = |set: &DaemonSet, generation: i64| {
        let status = set.status.clone().unwrap_or_default();
        status.observed_generation == Some(generation)
            && status.updated_number_scheduled == Some(2)
            && status.number_available == Some(2)
    };
    cluster.until("agent", |set: &DaemonSet| rolled(set, 1)).await?;
    let patch = Patch::Merge(json!({ "spec": { "template": template("2") } }));
    cluster.api::<DaemonSet>().patch("agent", &PatchParams::default(), &patch).await?;
    cluster.until("agent", |set: &DaemonSet| rolled(set, 2)).await?;
    let removals = cluster.server.removals();
    assert_eq!(removals.len(), 2);
    assert!(removals.iter().all(|removal| removal.user == "daemonset-controller"));
    // The second goes only when the first one's successor is ready, 90 ms after at the earliest.
    assert!(removals[1].at.duration_since(removals[0].at).as_millis() > 50);
    Ok(())
}

#[tokio::test]
async fn the_progressing_condition_goes_through_the_reasons_of_the_recording() -> anyhow::Result<()>
{
    let cluster = Cluster::start().await?;
    kubelet::start(&cluster.server)?;
    cluster.create::<Deployment>(deployment(3, "1")).await?;
    let before: Deployment = cluster.until("api", is_complete).await?;
    let revision = before.resource_version().unwrap_or_default();
    let mut events =
        cluster.api::<Deployment>().watch(&WatchParams::default(), &revision).await?.boxed();
    roll_out(&cluster, "2").await?;
    let mut reasons: Vec<String> = Vec::new();
    let collect = async {
        while let Some(event) = events.try_next().await? {
            let WatchEvent::Modified(deployment) = event else {
                continue;
            };
            let status = deployment.status.clone().unwrap_or_default();
            let progressing =
                status.conditions.into_iter().flatten().find(|c| c.type_ == "Progressing");
            let reason = progressing.and_then(|condition| condition.reason).unwrap_or_default();
            if reasons.last() != Some(&reason) {
                reasons.push(reason);
            }
            if is_complete(&deployment) {
                break;
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(super::PATIENCE, collect)
        .await
        .map_err(|_| anyhow::anyhow!("only saw {reasons:?}"))??;
    // The first is still the rollout before's, which is why it is no test for completion.
    let recorded = [
        "NewReplicaSetAvailable",
        "NewReplicaSetCreated",
        "ReplicaSetUpdated",
        "NewReplicaSetAvailable",
    ];
    assert_eq!(reasons, recorded);
    Ok(())
}
