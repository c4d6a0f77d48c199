//! Creation, update and patch.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{Options, create, pod, pods, server};

#[tokio::test]
async fn a_generated_name_ends_in_five_characters_of_the_real_alphabet() -> anyhow::Result<()> {
    let (_handle, client) = server(Options::default()).await?;
    let mut object = pod("", "n1");
    object["metadata"] = json!({ "generateName": "api-7f76f4cc84-" });
    let created = create(&client, object).await?;
    let name = created.name_any();
    let suffix = name.strip_prefix("api-7f76f4cc84-").unwrap_or_default();
    assert!(
        suffix.len() == 5 && suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)),
        "{name}"
    );
    assert_eq!(created.metadata.generation, Some(1));
    assert_eq!(created.spec.and_then(|spec| spec.termination_grace_period_seconds), Some(30));
    Ok(())
}

#[tokio::test]
async fn a_stale_update_is_a_conflict_and_a_second_creation_too() -> anyhow::Result<()> {
    let (_handle, client) = server(Options::default()).await?;
    let mut first = create(&client, pod("a", "n1")).await?;
    let mut second = first.clone();
    first.labels_mut().insert("x".into(), "1".into());
    pods(&client).replace("a", &PostParams::default(), &first).await?;
    second.labels_mut().insert("x".into(), "2".into());
    let refused = pods(&client).replace("a", &PostParams::default(), &second).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.is_conflict()));
    let again = create(&client, pod("a", "n1")).await;
    assert!(again.is_err_and(|error| error.to_string().contains("already exists")));
    Ok(())
}

#[tokio::test]
async fn the_generation_grows_with_the_spec_and_not_with_the_status() -> anyhow::Result<()> {
    let (_handle, client) = server(Options::default()).await?;
    let api: Api<Deployment> = Api::namespaced(client, "shop");
    let object = serde_json::from_value(json!({
        "metadata": { "name": "api" },
        "spec": { "selector": { "matchLabels": { "app": "api" } },
            "template": { "metadata": { "labels": { "app": "api" } }, "spec": { "containers": [{ "name": "app" }] } } },
    }))?;
    let created = api.create(&PostParams::default(), &object).await?;
    let strategy =
        created.spec.and_then(|spec| spec.strategy).and_then(|strategy| strategy.rolling_update);
    assert_eq!(json!(strategy), json!({ "maxSurge": "25%", "maxUnavailable": "25%" }));

    let status =
        Patch::Merge(json!({ "status": { "observedGeneration": 1 }, "spec": { "replicas": 9 } }));
    let written = api.patch_status("api", &PatchParams::default(), &status).await?;
    assert_eq!(written.metadata.generation, Some(1));
    assert_eq!(
        written.spec.and_then(|spec| spec.replicas),
        Some(1),
        "the status takes no spec along"
    );

    let spec =
        Patch::Merge(json!({ "spec": { "replicas": 2 }, "status": { "observedGeneration": 7 } }));
    let written = api.patch("api", &PatchParams::default(), &spec).await?;
    assert_eq!(written.metadata.generation, Some(2));
    assert_eq!(
        written.status.and_then(|status| status.observed_generation),
        Some(1),
        "nor the spec the status"
    );
    Ok(())
}

#[tokio::test]
async fn a_service_gets_the_addresses_of_its_families() -> anyhow::Result<()> {
    let (_handle, client) = server(Options::default()).await?;
    let api: Api<Service> = Api::namespaced(client, "shop");
    let object = |name: &str, spec: serde_json::Value| -> anyhow::Result<Service> {
        Ok(serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec }))?)
    };
    let port = json!([{ "port": 80 }]);
    let chosen = object("a", json!({ "clusterIP": "10.96.0.80", "ports": port }))?;
    let chosen = api.create(&PostParams::default(), &chosen).await?.spec.unwrap_or_default();
    assert_eq!(chosen.cluster_ips.unwrap_or_default(), ["10.96.0.80"]);
    assert_eq!(chosen.ip_families.unwrap_or_default(), ["IPv4"]);
    let both = object("b", json!({ "ipFamilies": ["IPv4", "IPv6"], "ports": port }))?;
    let both = api.create(&PostParams::default(), &both).await?.spec.unwrap_or_default();
    assert_eq!(both.cluster_ips.unwrap_or_default(), ["10.96.1.1", "fd00:10:96::1:1"]);
    let headless = object("c", json!({ "clusterIP": "None", "ports": port }))?;
    let headless = api.create(&PostParams::default(), &headless).await?.spec.unwrap_or_default();
    assert_eq!(headless.cluster_ips.unwrap_or_default(), ["None"]);
    Ok(())
}

#[tokio::test]
async fn a_wrong_kind_or_namespace_is_refused() -> anyhow::Result<()> {
    let (_handle, client) = server(Options::default()).await?;
    let mut wrong: Pod = serde_json::from_value(pod("a", "n1"))?;
    wrong.metadata.namespace = Some("other".into());
    let refused = pods(&client).create(&PostParams::default(), &wrong).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 400));
    Ok(())
}

#[tokio::test]
async fn a_strategic_patch_merges_containers_by_name_and_a_custom_resource_takes_none()
-> anyhow::Result<()> {
    let (_handle, client) = server(Options::default()).await?;
    create(&client, pod("a", "n1")).await?;
    let hook = json!({"spec": {"containers": [
        {"name": "app", "lifecycle": {"preStop": {"sleep": {"seconds": 4}}}},
        {"name": "beside", "image": "b:1"}]}});
    let patched =
        pods(&client).patch("a", &PatchParams::default(), &Patch::Strategic(&hook)).await?;
    let containers = patched.spec.map(|spec| spec.containers).unwrap_or_default();
    assert_eq!(containers.len(), 2);
    let hook =
        containers[0].lifecycle.as_ref().and_then(|all| all.pre_stop.as_ref()?.sleep.as_ref());
    assert_eq!(hook.map(|sleep| sleep.seconds), Some(4));

    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Rollout"));
    let rollouts: Api<DynamicObject> = Api::namespaced_with(client, "shop", &resource);
    let rollout = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
        "metadata": {"name": "a"}, "spec": {}});
    rollouts.create(&PostParams::default(), &serde_json::from_value(rollout)?).await?;
    let patch = Patch::Strategic(json!({"spec": {"replicas": 2}}));
    let refused = rollouts.patch("a", &PatchParams::default(), &patch).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 415));
    Ok(())
}
