//! Workloads that are followed.

use std::time::Duration;

use rollrace::{
    cluster::{Restart, WatchName, WatchState},
    engine::{ClusterChange, Request},
    model::WorkloadKey,
};
use serde_json::json;
use tokio::time::timeout;

use crate::{
    agent::{Agent, PATIENCE},
    objects::{
        controller_revision, delivered, gone_pod, leaving, pod, pod_name, shop, synced, workload,
    },
    support::api_server::{ApiServer, Reply, Step, error_event, event},
};

fn follow(since: &str) -> Request {
    let workload = WorkloadKey {
        namespace: "shop".into(),
        kind: "Deployment".into(),
        name: "api".into(),
        uid: "uid-api".into(),
    };
    Request::Follow { workload, api_version: "apps/v1".into(), since: since.into() }
}

#[tokio::test]
async fn following_catches_a_pod_that_was_deleted_before() {
    let server = ApiServer::start(|call| match (&*call.resource, &call.namespace) {
        ("pods", Some(_)) if call.param("resourceVersion") == "100" => {
            let old = leaving(pod("old", "101"));
            Reply::Watch(vec![
                event("MODIFIED", &old),
                event("DELETED", &leaving(pod("old", "102"))),
                Step::Hold,
            ])
        }
        ("pods", Some(_)) if !call.is_watch() => Reply::list(&[pod("new", "99")], "103", None),
        _ => shop(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    agent.ask(follow("100")).await;
    let seen = agent.until(|c| gone_pod(c) == Some("old")).await;
    let Some(ClusterChange::PodGone(facts)) = seen.last() else { unreachable!() };
    assert_eq!(facts.deleted_at().unwrap().to_string(), "2026-11-29T21:26:04Z");
    let seen: Vec<_> = if seen.iter().any(|c| pod_name(c) == Some("new")) {
        seen
    } else {
        let more = agent.until(|c| pod_name(c) == Some("new")).await;
        seen.into_iter().chain(more).collect()
    };
    assert!(seen.iter().any(|c| matches!(c, ClusterChange::Workload(_))));
    assert_eq!(agent.stats.snapshot().followed, 1);
    assert_eq!(agent.stats.watch(WatchName::FollowedPods).state, WatchState::Synced);

    let watch = server.calls(|c| c.resource == "pods" && c.namespace.is_some() && c.is_watch());
    assert_eq!(watch[0].param("labelSelector"), "app=api");
    let Request::Follow { workload, .. } = follow("") else { unreachable!() };
    agent.ask(Request::Unfollow { workload }).await;
    let ended = async {
        let is_open = || agent.stats.watch(WatchName::FollowedPods).state != WatchState::Idle;
        while agent.stats.snapshot().followed > 0 || is_open() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("it is followed no longer");
}

#[tokio::test]
async fn following_from_a_version_that_is_too_old_lists_instead() {
    let server = ApiServer::start(|call| match (&*call.resource, &call.namespace) {
        ("pods", Some(_)) if call.is_streamed_list() => {
            Reply::streamed(&[pod("new", "99")], "103", &[Step::Hold])
        }
        ("pods", Some(_)) if call.is_watch() => Reply::Watch(vec![error_event(410, "too old")]),
        _ => shop(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    agent.ask(follow("100")).await;
    agent.until(|c| pod_name(c) == Some("new")).await;
    assert_eq!(agent.stats.watch(WatchName::FollowedPods).restarts[&Restart::Gone410], 1);
}

#[tokio::test]
async fn a_followed_daemon_set_tells_its_newest_revision() {
    let server = ApiServer::start(|call| match &*call.resource {
        "daemonsets" => {
            Reply::streamed(&[workload("DaemonSet", "log", json!({}))], "60", &[Step::Hold])
        }
        "controllerrevisions" => {
            let newer = [
                Step::Wait(Duration::from_millis(200)),
                event("ADDED", &controller_revision("DaemonSet", "log", "y", 5)),
                Step::Hold,
            ];
            Reply::streamed(&[controller_revision("DaemonSet", "log", "x", 4)], "60", &newer)
        }
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    let Request::Follow { mut workload, api_version, .. } = follow("") else { unreachable!() };
    workload.kind = "DaemonSet".into();
    workload.name = "log".into();
    workload.uid = "uid-log".into();
    agent.ask(Request::Follow { workload, api_version, since: "".into() }).await;
    let newest = |c: &ClusterChange| matches!(c, ClusterChange::Workload(w) if &*w.status.update_revision == "y");
    let seen = agent.until(newest).await;
    assert!(delivered(&seen).contains(&("DaemonSet", Some(4), "x")), "{seen:#?}");
}

#[tokio::test]
async fn more_than_can_be_followed_is_counted() {
    let server = ApiServer::start(shop).await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    let drain = tokio::spawn(async move {
        let Agent { mut changes, requests, stats, _shutdown } = agent;
        for number in 0..66 {
            let Request::Follow { mut workload, api_version, since } = follow("") else {
                unreachable!()
            };
            workload.uid = format!("uid-{number}").into();
            requests.send(Request::Follow { workload, api_version, since }).await.unwrap();
        }
        let told = async {
            while stats.snapshot().follow_refused < 2 {
                let _ = timeout(Duration::from_millis(10), changes.recv()).await;
            }
        };
        timeout(PATIENCE, told).await.expect("two are counted");
        stats.snapshot().followed
    });
    assert_eq!(drain.await.unwrap(), 64);
}
