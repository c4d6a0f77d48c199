//! Watches.

use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::json;

use super::{Options, create, next, pod, pods, server};
use crate::api::client;

/// What a kube-rs watcher says, in short.
fn short(event: &Event<Pod>) -> String {
    match event {
        Event::Init => "init".into(),
        Event::InitApply(pod) => format!("+{}", pod.name_any()),
        Event::InitDone => "done".into(),
        Event::Apply(pod) => format!("={}", pod.name_any()),
        Event::Delete(pod) => format!("-{}", pod.name_any()),
    }
}

async fn a_watcher_sees_everything_once(config: watcher::Config) -> anyhow::Result<()> {
    let (handle, client) = server(Options::default()).await?;
    create(&client, pod("a", "n1")).await?;
    create(&client, pod("b", "n1")).await?;
    let mut events = watcher(pods(&client), config.page_size(1)).boxed();
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(short(&next(&mut events).await?));
    }
    assert_eq!(seen, ["init", "+a", "+b", "done"]);
    create(&client, pod("c", "n1")).await?;
    assert_eq!(short(&next(&mut events).await?), "=c");
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods(&client).delete("a", &now).await?;
    // The last update, with a grace of 0, and the removal.
    assert_eq!(short(&next(&mut events).await?), "=a");
    assert_eq!(short(&next(&mut events).await?), "-a");

    // Closed in good order, it resumes without a new list.
    handle.close_watches("test");
    create(&client, pod("d", "n1")).await?;
    assert_eq!(short(&next(&mut events).await?), "=d");

    // Closed, and its revision compacted away meanwhile: it has to begin anew, and learns what is
    // gone.
    handle.set_watch_delay("test", Duration::from_secs(3600));
    pods(&client).delete("b", &now).await?;
    handle.compact();
    handle.close_watches("test");
    let mut again = Vec::new();
    while again.last().is_none_or(|last| last != "done") {
        match tokio::time::timeout(super::PATIENCE, events.next()).await? {
            Some(Ok(event)) => again.push(short(&event)),
            Some(Err(error)) => {
                assert!(error.to_string().contains("too old resource version"), "{error}");
            }
            None => anyhow::bail!("the watcher ended"),
        }
    }
    assert_eq!(again, ["init", "+c", "+d", "done"]);
    Ok(())
}

#[tokio::test]
async fn a_watcher_that_lists_first_sees_everything_once_and_relists_after_410()
-> anyhow::Result<()> {
    a_watcher_sees_everything_once(watcher::Config::default()).await
}

#[tokio::test]
async fn a_watcher_with_a_streamed_list_sees_everything_once_and_relists_after_410()
-> anyhow::Result<()> {
    a_watcher_sees_everything_once(watcher::Config::default().streaming_lists()).await
}

#[tokio::test]
async fn a_change_of_the_selection_shows_as_an_addition_or_a_deletion() -> anyhow::Result<()> {
    let (handle, client) = server(Options::default()).await?;
    create(&client, pod("a", "n1")).await?;
    let revision = handle.revision().to_string();
    let label = async |value: &str| {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "app": value } } }));
        pods(&client).patch("a", &PatchParams::default(), &patch).await.map(drop)
    };
    let mut events =
        pods(&client).watch(&WatchParams::default().labels("app=web"), &revision).await?.boxed();
    label("web").await?;
    assert!(matches!(next(&mut events).await?, WatchEvent::Added(_)));
    label("api").await?;
    let WatchEvent::Deleted(left) = next(&mut events).await? else {
        anyhow::bail!("it left the selection")
    };
    assert_eq!(left.labels()["app"], "web", "the last state inside the selection");
    assert_eq!(left.resource_version(), Some(handle.revision().to_string()));
    Ok(())
}

#[tokio::test]
async fn a_write_that_changes_nothing_makes_no_event() -> anyhow::Result<()> {
    let (handle, client) = server(Options::default()).await?;
    let created = create(&client, pod("a", "n1")).await?;
    let before = handle.revision();
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "app": "api" } } }));
    let patched = pods(&client).patch("a", &PatchParams::default(), &patch).await?;
    assert_eq!(
        (handle.revision(), patched.resource_version()),
        (before, created.resource_version())
    );
    Ok(())
}

#[tokio::test]
async fn a_delay_holds_back_the_watch_events_of_its_users_only_and_keeps_their_order()
-> anyhow::Result<()> {
    let (handle, prompt) = server(Options::default()).await?;
    let late = client(&handle.url(), "rollrace-agent-n1")?;
    let delay = Duration::from_millis(300);
    handle.set_watch_delay("rollrace-agent", delay);
    let revision = handle.revision().to_string();
    let mut at_once = pods(&prompt).watch(&WatchParams::default(), &revision).await?.boxed();
    let mut later = pods(&late).watch(&WatchParams::default(), &revision).await?.boxed();
    let written = Instant::now();
    for name in ["a", "b"] {
        create(&prompt, pod(name, "n1")).await?;
    }
    for name in ["a", "b"] {
        let WatchEvent::Added(pod) = next(&mut at_once).await? else { anyhow::bail!("not added") };
        assert_eq!(pod.name_any(), name);
    }
    assert!(written.elapsed() < delay);
    for name in ["a", "b"] {
        let WatchEvent::Added(pod) = next(&mut later).await? else { anyhow::bail!("not added") };
        assert_eq!(pod.name_any(), name);
    }
    assert!(written.elapsed() >= delay);

    // Turned down, it lets go what it holds.
    handle.set_watch_delay("rollrace-agent", Duration::from_secs(3600));
    create(&prompt, pod("c", "n1")).await?;
    next(&mut at_once).await?;
    handle.set_watch_delay("rollrace-agent", Duration::ZERO);
    next(&mut later).await?;
    Ok(())
}

#[tokio::test]
async fn bookmarks_come_regularly_and_never_promise_what_is_held_back() -> anyhow::Result<()> {
    let options = Options { bookmark_interval: Duration::from_millis(20), ..Options::default() };
    let (handle, client) = server(options).await?;
    handle.set_watch_delay("test", Duration::from_millis(200));
    let revision = handle.revision();
    let mut events =
        pods(&client).watch(&WatchParams::default(), &revision.to_string()).await?.boxed();
    create(&client, pod("a", "n1")).await?;
    let mut bookmarks = 0;
    loop {
        match next(&mut events).await? {
            WatchEvent::Bookmark(bookmark) => {
                assert_eq!(bookmark.metadata.resource_version, revision.to_string());
                bookmarks += 1;
            }
            WatchEvent::Added(_) => break,
            other => anyhow::bail!("unexpected: {other:?}"),
        }
    }
    assert!(bookmarks > 0);
    let WatchEvent::Bookmark(bookmark) = next(&mut events).await? else {
        anyhow::bail!("no bookmark")
    };
    assert_eq!(bookmark.metadata.resource_version, handle.revision().to_string());
    Ok(())
}

#[tokio::test]
async fn a_watch_ends_at_its_timeout() -> anyhow::Result<()> {
    let (_handle, client) = server(Options::default()).await?;
    let mut events = pods(&client).watch(&WatchParams::default().timeout(1), "0").await?.boxed();
    let started = Instant::now();
    while tokio::time::timeout(super::PATIENCE, events.next()).await?.is_some() {}
    assert!(started.elapsed() >= Duration::from_millis(900));
    Ok(())
}

#[tokio::test]
async fn a_stopped_server_cuts_its_watches_and_a_successor_goes_on_from_its_state()
-> anyhow::Result<()> {
    let (handle, client) = server(Options::default()).await?;
    create(&client, pod("a", "n1")).await?;
    let mut events = pods(&client).watch(&WatchParams::default(), "0").await?.boxed();
    next(&mut events).await?;
    let state = handle.snapshot();
    handle.shutdown();
    while let Some(Ok(_)) = tokio::time::timeout(super::PATIENCE, events.next()).await? {}
    let (_successor, client) = server(Options { state: Some(state), ..Options::default() }).await?;
    assert_eq!(pods(&client).get("a").await?.name_any(), "a");
    Ok(())
}
