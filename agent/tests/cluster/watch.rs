//! The three watches that never end.

use std::time::Duration;

use rollrace::{
    cluster::{Restart, WatchName, WatchState},
    engine::ClusterChange,
};
use serde_json::json;
use tokio::time::timeout;

use crate::{
    agent::{Agent, PATIENCE},
    objects::{gone_pod, pod, pod_name, slice, synced},
    support::api_server::{ApiServer, Reply, Step, error_event, event},
};

#[tokio::test]
async fn first_lists_then_changes_are_delivered_in_order() {
    let server = ApiServer::start(|call| match &*call.resource {
        "endpointslices" if call.is_streamed_list() => {
            let later = [
                Step::Wait(Duration::from_millis(200)),
                event("MODIFIED", &slice("api-1", "11")),
                event("DELETED", &slice("api-1", "12")),
                Step::Hold,
            ];
            Reply::streamed(&[slice("api-1", "10")], "10", &later)
        }
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    let mut seen = agent.until(|c| matches!(c, ClusterChange::SliceGone { .. })).await;
    // First lists are spread: another may come only now.
    if !seen.iter().any(synced) {
        seen.extend(agent.until(synced).await);
    }
    let version = |c: &ClusterChange| match c {
        ClusterChange::Slice(facts) => Some(facts.resource_version.to_string()),
        _ => None,
    };
    assert_eq!(seen.iter().filter_map(version).collect::<Vec<_>>(), ["10", "11"]);
    let listed = ClusterChange::SlicesListed(vec![("shop".into(), "api-1".into())]);
    let at = |change: &ClusterChange| seen.iter().position(|c| c == change);
    assert!(at(&listed) < at(&ClusterChange::Synced(true)) && at(&listed).is_some(), "{seen:#?}");

    let slices = server.calls(|c| c.resource == "endpointslices");
    assert!(slices[0].agent.starts_with("rollrace/"), "{}", slices[0].agent);
    assert_eq!(slices[0].param("labelSelector"), "!service.kubernetes.io/service-proxy-name");
    let pods = server.calls(|c| c.resource == "pods");
    assert_eq!(pods[0].param("fieldSelector"), "spec.nodeName=n1");
    let snapshot = agent.stats.snapshot();
    assert!(snapshot.synced);
    assert_eq!(snapshot.watches[&WatchName::EndpointSlices].objects, 3);
    assert_eq!(snapshot.requests[&("endpointslices.discovery.k8s.io".to_owned(), 200)], 1);
}

#[tokio::test]
async fn a_pod_that_the_list_after_a_410_lacks_is_gone() {
    let server = ApiServer::start(|call| match (&*call.resource, call.before) {
        ("pods", 0) => {
            let bookmark = json!({"kind": "Pod", "apiVersion": "v1",
                "metadata": {"resourceVersion": "9"}});
            let gone = [
                event("BOOKMARK", &bookmark),
                Step::Wait(Duration::from_millis(1200)),
                error_event(410, "too old"),
            ];
            Reply::streamed(&[pod("a", "5"), pod("b", "6")], "6", &gone)
        }
        ("pods", _) => Reply::streamed(&[pod("a", "5")], "90", &[Step::Hold]),
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    let seen = agent.until(synced).await;
    assert_eq!(seen.iter().filter_map(gone_pod).collect::<Vec<_>>(), ["b"], "{seen:#?}");
    let gone = seen.iter().find_map(|change| match change {
        ClusterChange::PodGone(facts) => Some(&*facts.resource_version),
        _ => None,
    });
    assert_eq!(gone, Some("9"), "up to there nothing was told of it");
    assert!(seen.contains(&ClusterChange::NodePodsListed(vec!["uid-a".into()])));
    assert_eq!(seen[0], ClusterChange::Synced(false));
    assert_eq!(agent.stats.watch(WatchName::Pods).restarts[&Restart::Gone410], 1);
}

#[tokio::test]
async fn a_closed_watch_goes_on_where_it_was_and_nothing_is_listed_again() {
    let server = ApiServer::start(|call| match (&*call.resource, call.before) {
        ("pods", 0) => {
            let later =
                [event("MODIFIED", &pod("a", "7")), Step::Wait(Duration::from_millis(1200))];
            Reply::streamed(&[pod("a", "5")], "6", &later)
        }
        ("pods", _) => Reply::Watch(vec![event("MODIFIED", &pod("a", "8")), Step::Hold]),
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    let eight =
        |c: &ClusterChange| matches!(c, ClusterChange::Pod(f) if &*f.resource_version == "8");
    let seen = agent.until(eight).await;
    assert!(!seen.contains(&ClusterChange::Synced(false)), "{seen:#?}");
    let calls = server.calls(|c| c.resource == "pods");
    assert_eq!(calls[1].param("resourceVersion"), "7");
    assert!(!calls[1].is_streamed_list());
    assert_eq!(agent.stats.watch(WatchName::Pods).restarts[&Restart::Closed], 1);
}

#[tokio::test]
async fn a_version_that_is_refused_by_code_is_not_asked_for_again() {
    // 504 with this message: the server was restored from a backup, and is behind the agent.
    for (code, message, reason) in [
        (410, "The resourceVersion for the provided watch is too old.", Restart::Gone410),
        (504, "Too large resource version: 99, current: 40", Restart::Ahead),
    ] {
        let server = ApiServer::start(move |call| match (&*call.resource, call.before) {
            ("pods", 0) => {
                Reply::streamed(&[pod("a", "99")], "99", &[Step::Wait(Duration::from_millis(1200))])
            }
            ("pods", 1) => Reply::Status(code, message),
            ("pods", _) => Reply::streamed(&[], "40", &[Step::Hold]),
            _ => Reply::nothing(call),
        })
        .await;
        let mut agent = Agent::start(server.address).await;
        agent.until(|c| gone_pod(c) == Some("a")).await;
        assert_eq!(agent.stats.watch(WatchName::Pods).restarts[&reason], 1);
    }
}

#[tokio::test]
async fn what_is_forbidden_is_named_and_the_rest_goes_on() {
    let server = ApiServer::start(|call| match &*call.resource {
        "pods" => Reply::Status(403, "pods is forbidden: User \"agent\" cannot watch"),
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    let pods = agent.stats.watch(WatchName::Pods);
    assert_eq!(pods.state, WatchState::Denied);
    let error = pods.last_error.unwrap();
    assert!(error.contains("cannot watch pods: 403") && error.contains("ClusterRole"), "{error}");
    assert_eq!(agent.stats.watch(WatchName::Services).state, WatchState::Synced);
}

#[tokio::test]
async fn a_server_without_streamed_lists_is_read_in_pages() {
    let server = ApiServer::start(|call| {
        if call.is_streamed_list() {
            return Reply::Status(422, "sendInitialEvents: Forbidden: it is not enabled");
        }
        match (&*call.resource, call.is_watch(), call.param("continue")) {
            ("pods", false, "") => Reply::list(&[pod("a", "5")], "9", Some("more")),
            ("pods", false, _) => Reply::list(&[pod("b", "6")], "9", None),
            _ => Reply::nothing(call),
        }
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    let seen = agent.until(synced).await;
    assert_eq!(seen.iter().filter_map(pod_name).collect::<Vec<_>>(), ["a", "b"]);
    let both = vec!["uid-a".into(), "uid-b".into()];
    assert!(seen.contains(&ClusterChange::NodePodsListed(both)));
    let watch = server.calls(|c| c.resource == "pods" && c.is_watch() && !c.is_streamed_list());
    assert_eq!(watch[0].param("resourceVersion"), "9");
}

#[tokio::test]
async fn a_server_that_ignores_the_wish_for_a_streamed_list_is_found_out() {
    let server = ApiServer::start(|call| {
        if call.is_streamed_list() {
            return Reply::Watch(vec![Step::Hold]);
        }
        Reply::nothing(call)
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    assert!(agent.stats.watch(WatchName::Pods).restarts[&Restart::NoStreaming] > 0);
}

#[tokio::test]
async fn an_object_that_makes_no_sense_is_counted_by_kind_and_named() {
    let mut broken = slice("broken", "9");
    broken["endpoints"] = json!("none");
    let server = ApiServer::start(move |call| match &*call.resource {
        "endpointslices" if call.is_streamed_list() => {
            let odd = Step::Line(json!({"what": "is this"}));
            let later = [odd, event("MODIFIED", &slice("api-1", "12")), Step::Hold];
            Reply::streamed(&[broken.clone(), slice("api-1", "10")], "11", &later)
        }
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    let twelve =
        |c: &ClusterChange| matches!(c, ClusterChange::Slice(f) if &*f.resource_version == "12");
    let seen = agent.until(twelve).await;
    let names = vec![("shop".into(), "broken".into()), ("shop".into(), "api-1".into())];
    assert!(seen.contains(&ClusterChange::SlicesListed(names)), "it exists: {seen:#?}");
    assert_eq!(agent.stats.snapshot().skipped["EndpointSlice"], 2);
}

#[tokio::test]
async fn a_server_that_comes_late_is_waited_for() {
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let mut agent = Agent::start(address).await;
    let waiting = async {
        while agent.stats.watch(WatchName::Pods).restarts[&Restart::Error] == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("a counted failure");
    assert_eq!(agent.stats.watch(WatchName::Pods).state, WatchState::Starting);
    let _server = ApiServer::start_at(address, Reply::nothing).await;
    agent.until(synced).await;
}
