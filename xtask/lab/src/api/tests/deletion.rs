//! How pods leave, compared with the recording `readiness-fresh-wire`.

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, EvictParams, WatchEvent, WatchParams};

use super::{Options, create, next, pod, pods, server};
use crate::api::client;

fn grace(seconds: u32) -> DeleteParams {
    DeleteParams { grace_period_seconds: Some(seconds), ..DeleteParams::default() }
}

/// (deletion time in seconds from now, grace, generation)
fn leaving(pod: &Pod, now: Timestamp) -> (Option<i64>, Option<i64>, Option<i64>) {
    let deletion =
        pod.metadata.deletion_timestamp.as_ref().map(|time| time.0.as_second() - now.as_second());
    (deletion, pod.metadata.deletion_grace_period_seconds, pod.metadata.generation)
}

#[tokio::test]
async fn a_pod_leaves_in_the_steps_of_the_recording() -> anyhow::Result<()> {
    let (handle, client_) = server(Options::default()).await?;
    let created = create(&client_, pod("a", "n1")).await?;
    let mut events = pods(&client_)
        .watch(&WatchParams::default(), &handle.revision().to_string())
        .await?
        .boxed();
    let controller = client(&handle.url(), "replicaset-controller")?;
    let kubelet = client(&handle.url(), "lab-kubelet-n1")?;

    let before = Timestamp::now();
    pods(&controller).delete("a", &DeleteParams::default()).await?;
    let WatchEvent::Modified(terminating) = next(&mut events).await? else {
        anyhow::bail!("not modified")
    };
    let (deletion, grace_seconds, generation) = leaving(&terminating, before);
    assert!(deletion.is_some_and(|in_seconds| (30..=31).contains(&in_seconds)), "{deletion:?}");
    assert_eq!((grace_seconds, generation), (Some(30), Some(2)));

    // A second deletion with no shorter grace changes nothing.
    let revision = handle.revision();
    pods(&controller).delete("a", &DeleteParams::default()).await?;
    assert_eq!(handle.revision(), revision);

    let before = Timestamp::now();
    pods(&kubelet).delete("a", &grace(0)).await?;
    let WatchEvent::Modified(last) = next(&mut events).await? else {
        anyhow::bail!("not modified")
    };
    let (deletion, grace_seconds, generation) = leaving(&last, before);
    assert!(deletion.is_some_and(|in_seconds| (0..=1).contains(&in_seconds)), "{deletion:?}");
    assert_eq!((grace_seconds, generation), (Some(0), Some(2)));
    let WatchEvent::Deleted(gone) = next(&mut events).await? else { anyhow::bail!("not deleted") };
    assert_eq!(leaving(&gone, before).1, Some(0));
    assert_eq!(gone.resource_version(), Some(handle.revision().to_string()));

    let removals = handle.removals();
    assert_eq!(removals.len(), 1, "only the first deletion is a removal");
    let removal = &removals[0];
    assert_eq!((removal.pod.as_str(), removal.user.as_str()), ("a", "replicaset-controller"));
    assert_eq!((Some(removal.uid.clone()), removal.grace_seconds), (created.uid(), 30));
    Ok(())
}

#[tokio::test]
async fn a_pod_without_a_node_is_gone_at_once() -> anyhow::Result<()> {
    let (_handle, client) = server(Options::default()).await?;
    create(&client, pod("a", "")).await?;
    pods(&client).delete("a", &DeleteParams::default()).await?;
    assert!(pods(&client).get_opt("a").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_deletion_of_another_pod_of_that_name_is_a_conflict() -> anyhow::Result<()> {
    let (_handle, client) = server(Options::default()).await?;
    create(&client, pod("a", "n1")).await?;
    let preconditions =
        kube::api::Preconditions { uid: Some("other".into()), resource_version: None };
    let refused = pods(&client)
        .delete(
            "a",
            &DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() },
        )
        .await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.is_conflict()));
    Ok(())
}

#[tokio::test]
async fn an_eviction_says_why_before_the_pod_leaves() -> anyhow::Result<()> {
    let (_handle, client) = server(Options::default()).await?;
    create(&client, pod("a", "n1")).await?;
    pods(&client).evict("a", &EvictParams::default()).await?;
    let evicted = pods(&client).get("a").await?;
    assert!(evicted.metadata.deletion_timestamp.is_some());
    let conditions = evicted.status.and_then(|status| status.conditions).unwrap_or_default();
    assert!(conditions.iter().any(|c| c.type_ == "DisruptionTarget" && c.status == "True"));
    Ok(())
}

#[tokio::test]
async fn what_is_made_for_an_owner_that_is_gone_goes_too() -> anyhow::Result<()> {
    let (handle, client) = server(Options::default()).await?;
    let mut object = pod("a", "");
    object["metadata"]["ownerReferences"] = serde_json::json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": "1", "controller": true,
    }]);
    create(&client, object).await?;
    assert!(pods(&client).get_opt("a").await?.is_none());
    assert!(handle.removals()[0].user.ends_with("generic-garbage-collector"));
    Ok(())
}
