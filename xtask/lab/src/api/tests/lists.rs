//! Lists, discovery, refusals and counters.

use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, VersionMatch};
use rollrace_deploy::role::Role;

use super::{Options, create, pod, pods, server};
use crate::api::client;

#[tokio::test]
async fn the_chunks_of_a_list_show_one_revision() -> anyhow::Result<()> {
    let (_handle, client) = server(Options::default()).await?;
    for name in ["a", "b", "c", "d"] {
        create(&client, pod(name, "n1")).await?;
    }
    let first = pods(&client).list(&ListParams::default().limit(2)).await?;
    assert_eq!(first.metadata.remaining_item_count, Some(2));
    let token = first.metadata.continue_.clone().unwrap_or_default();
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods(&client).delete("c", &now).await?;
    create(&client, pod("e", "n1")).await?;
    let rest = pods(&client).list(&ListParams::default().limit(5).continue_token(&token)).await?;
    let names: Vec<String> = rest.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["c", "d"], "as it was when the list began");
    assert_eq!(rest.metadata.resource_version, first.metadata.resource_version);
    Ok(())
}

#[tokio::test]
async fn a_chunk_whose_revision_is_compacted_away_is_gone() -> anyhow::Result<()> {
    let (handle, client) = server(Options::default()).await?;
    for name in ["a", "b"] {
        create(&client, pod(name, "n1")).await?;
    }
    let first = pods(&client).list(&ListParams::default().limit(1)).await?;
    create(&client, pod("c", "n1")).await?;
    handle.compact();
    let token = first.metadata.continue_.unwrap_or_default();
    let refused = pods(&client).list(&ListParams::default().continue_token(&token)).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 410));
    Ok(())
}

#[tokio::test]
async fn a_list_at_an_exact_revision_shows_the_past() -> anyhow::Result<()> {
    let (handle, client) = server(Options::default()).await?;
    create(&client, pod("a", "n1")).await?;
    let then = handle.revision().to_string();
    create(&client, pod("b", "n1")).await?;
    let past = ListParams::default().at(&then).matching(VersionMatch::Exact);
    assert_eq!(pods(&client).list(&past).await?.items.len(), 1);
    let future = ListParams::default().at("999999").matching(VersionMatch::NotOlderThan);
    let refused = pods(&client).list(&future).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 504));
    Ok(())
}

#[tokio::test]
async fn metadata_can_be_listed_alone() -> anyhow::Result<()> {
    let (_handle, client) = server(Options::default()).await?;
    create(&client, pod("a", "n1")).await?;
    let listed = pods(&client).list_metadata(&ListParams::default()).await?;
    assert_eq!(listed.items[0].labels()["app"], "api");
    Ok(())
}

#[tokio::test]
async fn discovery_names_what_is_served() -> anyhow::Result<()> {
    let (_handle, client) = server(Options::default()).await?;
    assert_eq!(client.apiserver_version().await?.minor, "36");
    let groups = client.list_api_groups().await?;
    assert!(groups.groups.iter().any(|group| group.name == "discovery.k8s.io"));
    let resources = client.list_api_group_resources("apps/v1").await?;
    assert!(resources.resources.iter().any(|resource| resource.name == "deployments/status"));
    Ok(())
}

#[tokio::test]
async fn requests_are_counted_by_user_and_can_be_refused() -> anyhow::Result<()> {
    let (handle, _) = server(Options::default()).await?;
    let agent = client(&handle.url(), "rollrace-agent-n1")?;
    pods(&agent).list(&ListParams::default()).await?;
    handle.deny("rollrace-agent", "list", "pods");
    let refused = pods(&agent).list(&ListParams::default()).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.is_forbidden()));
    handle.allow_all("rollrace-agent");
    pods(&agent).list(&ListParams::default()).await?;
    let usage = handle.usage();
    let (key, counters) =
        usage.iter().next().ok_or_else(|| anyhow::anyhow!("nothing was counted"))?;
    assert_eq!(
        (key.user.as_str(), key.verb, key.resource.as_str()),
        ("rollrace-agent-n1", "list", "pods")
    );
    assert_eq!((counters.requests, counters.refused), (3, 1));
    assert!(counters.bytes > 0);
    Ok(())
}

#[tokio::test]
async fn each_request_of_an_agent_is_checked_against_the_role_that_is_shipped() -> anyhow::Result<()>
{
    let (handle, lab) = server(Options::default()).await?;
    create(&lab, pod("a", "n1")).await?;
    handle.bind_role("rollrace-agent-", Role::shipped()?);
    let agent = client(&handle.url(), "rollrace-agent-n1")?;
    pods(&agent).list(&ListParams::default()).await?;
    pods(&agent).get("a").await?;
    assert_eq!(handle.overstepped(), Vec::<String>::new());
    let deleted = pods(&agent).delete("a", &DeleteParams::default()).await;
    let status = pods(&agent).get_status("a").await;
    let forbidden =
        |refusal: kube::Error| matches!(refusal, kube::Error::Api(status) if status.is_forbidden());
    assert!(deleted.is_err_and(forbidden) && status.is_err_and(forbidden));
    let told = handle.overstepped();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("rollrace-agent-n1 may not delete pods by its role"), "{told:?}");
    pods(&lab).get("a").await?;
    Ok(())
}

#[tokio::test]
async fn a_slow_server_answers_late() -> anyhow::Result<()> {
    let (handle, client) = server(Options::default()).await?;
    let delay = std::time::Duration::from_millis(100);
    handle.set_request_delay("test", delay);
    let asked = std::time::Instant::now();
    pods(&client).list(&ListParams::default()).await?;
    assert!(asked.elapsed() >= delay);
    Ok(())
}
