//! A server that is slow, gone, or silent.

use std::time::Duration;

use rollrace::{
    cluster::{Restart, WatchName, WatchState},
    engine::{ClusterChange, Request},
};
use tokio::time::timeout;

use crate::{
    agent::{Agent, PATIENCE},
    objects::{pod, pod_name, shop, synced},
    support::{
        api_server::{ApiServer, Reply, Step},
        path::Path,
    },
};

/// Waits for what no event tells.
async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn a_server_that_answers_late_is_waited_for_and_never_called_lost() {
    let server =
        ApiServer::start(|call| Reply::Late(Duration::from_secs(2), Box::new(shop(call)))).await;
    let mut agent = Agent::start(server.address).await;
    let seen = agent.until(synced).await;
    assert!(!seen.contains(&ClusterChange::Synced(false)), "{seen:#?}");
    let (namespace, name) = ("shop".into(), "api-6c-24567".into());
    agent.ask(Request::Resolve { namespace, pod: name, uid: "u".into() }).await;
    agent.until(|c| matches!(c, ClusterChange::Owner { owner: Some(_), .. })).await;
    let snapshot = agent.stats.snapshot();
    for (name, watch) in &snapshot.watches {
        assert_eq!(watch.restarts.values().sum::<u64>(), 0, "{name}: {watch:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_gone_is_told_at_once_and_what_it_missed_is_delivered_when_it_is_back() {
    let server = ApiServer::start(|call| match (&*call.resource, call.before) {
        ("pods", 0) => Reply::streamed(&[pod("a", "5")], "6", &[Step::Hold]),
        ("pods", _) => {
            assert_eq!(call.param("resourceVersion"), "6", "it goes on, nothing is listed anew");
            Reply::Watch(vec![
                crate::support::api_server::event("ADDED", &pod("b", "8")),
                Step::Hold,
            ])
        }
        _ => Reply::nothing(call),
    })
    .await;
    let mut path = Path::to(server.address).await;
    let mut agent = Agent::start(path.address).await;
    agent.until(synced).await;
    path.cut().await;
    agent.until(|c| *c == ClusterChange::Synced(false)).await;
    eventually("a refused connection is told", || {
        let pods = agent.stats.watch(WatchName::Pods);
        pods.state == WatchState::Lost
            && pods.last_error.is_some_and(|error| error.contains("refused"))
    })
    .await;
    assert!(!agent.stats.snapshot().synced);
    path.restore().await;
    let seen = agent.until(|c| pod_name(c) == Some("b")).await;
    if !seen.contains(&ClusterChange::Synced(true)) {
        agent.until(synced).await;
    }
    assert!(agent.stats.snapshot().synced);
}

#[tokio::test]
async fn a_server_that_takes_requests_and_never_answers_is_found_out() {
    let server = ApiServer::start(Reply::nothing).await;
    let mut path = Path::to(server.address).await;
    let mut agent = Agent::start(path.address).await;
    agent.until(synced).await;
    let before = path.accepted();
    path.stall().await;
    agent.until(|c| *c == ClusterChange::Synced(false)).await;
    eventually("all three ask again", || path.accepted() >= before + 3).await;
    let silent =
        |agent: &Agent| agent.stats.watch(WatchName::EndpointSlices).restarts[&Restart::Silent];
    assert_eq!(silent(&agent), 0);
    // The wait of 20 s passes at once; requests that are on their way come first.
    tokio::time::sleep(Duration::from_millis(100)).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(21)).await;
    tokio::time::resume();
    eventually("it is counted", || silent(&agent) > 0).await;
    let error = agent.stats.watch(WatchName::EndpointSlices).last_error.unwrap();
    assert!(error.contains("did not answer for 20 s"), "{error}");
    path.restore().await;
    agent.until(synced).await;
}

/// What the kernel keeps of the connections to a port: the running timer of each, by its code in
/// `/proc/net/tcp` (2: keepalive).
#[cfg(target_os = "linux")]
fn timers_towards(port: u16) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    let established =
        rows.filter(|row| row[3] == "01" && row[2].ends_with(&format!(":{port:04X}")));
    established.map(|row| row[5][..2].to_owned()).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn every_connection_asks_by_itself_whether_the_server_still_lives() {
    let server = ApiServer::start(Reply::nothing).await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    // 1 would be data on its way.
    eventually("each watch has a keepalive", || {
        timers_towards(server.address.port()).iter().filter(|timer| *timer == "02").count() >= 3
    })
    .await;
}
