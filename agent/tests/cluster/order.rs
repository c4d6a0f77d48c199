//! Watches that are closed again and again, events that come twice or in another order, and a
//! server that went back in time.

use std::time::Duration;

use rollrace::{
    cluster::{Restart, WatchName},
    engine::ClusterChange,
};

use crate::{
    agent::Agent,
    objects::{gone_pod, pod, pod_name, slice, synced},
    support::api_server::{ApiServer, Reply, Step, event},
};

fn slices(seen: &[ClusterChange]) -> Vec<String> {
    seen.iter()
        .filter_map(|change| match change {
            ClusterChange::Slice(facts) => {
                Some(format!("{} {}", facts.name, facts.resource_version))
            }
            ClusterChange::SliceGone { name, .. } => Some(format!("{name} gone")),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn events_that_come_twice_or_late_change_nothing_and_are_counted() {
    let server = ApiServer::start(|call| match &*call.resource {
        "endpointslices" if call.is_streamed_list() => {
            let later = [
                event("MODIFIED", &slice("a", "12")),
                event("MODIFIED", &slice("a", "12")),
                event("MODIFIED", &slice("a", "11")),
                event("MODIFIED", &slice("b", "10")),
                event("DELETED", &slice("a", "14")),
                event("MODIFIED", &slice("a", "13")),
                event("ADDED", &slice("a", "15")),
                event("ADDED", &slice("end", "16")),
                Step::Hold,
            ];
            Reply::streamed(&[slice("a", "9"), slice("b", "9")], "9", &later)
        }
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    let seen = agent.until(|c| matches!(c, ClusterChange::Slice(f) if &*f.name == "end")).await;
    let expected = ["a 9", "b 9", "a 12", "b 10", "a gone", "a 15", "end 16"];
    assert_eq!(slices(&seen), expected);
    assert_eq!(agent.stats.watch(WatchName::EndpointSlices).stale, 3);
}

#[tokio::test]
async fn a_watch_that_is_closed_again_and_again_loses_nothing() {
    let server = ApiServer::start(|call| match (&*call.resource, call.before) {
        ("pods", 0) => {
            Reply::streamed(&[pod("p0", "10")], "10", &[Step::Wait(Duration::from_millis(1_100))])
        }
        ("pods", turn) => {
            assert_eq!(call.param("resourceVersion"), (9 + turn).to_string());
            let version = (10 + turn).to_string();
            let next = event("ADDED", &pod(&format!("p{turn}"), &version));
            // Some are closed at once: those are begun again after a pause.
            let pause = Step::Wait(Duration::from_millis(if turn % 2 == 0 { 1_100 } else { 0 }));
            Reply::Watch(vec![next, if turn == 5 { Step::Hold } else { pause }])
        }
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    let seen = agent.until(|c| pod_name(c) == Some("p5")).await;
    let names: Vec<_> = seen.iter().filter_map(pod_name).collect();
    assert_eq!(names, ["p0", "p1", "p2", "p3", "p4", "p5"]);
    assert!(seen.iter().all(|change| gone_pod(change).is_none()));
    assert_eq!(agent.stats.watch(WatchName::Pods).restarts[&Restart::Closed], 5);
}

#[tokio::test]
async fn a_server_that_went_back_in_time_is_believed_and_said_to_have_gone_back_once() {
    let server = ApiServer::start(|call| {
        let kind = &*call.resource;
        let list = |version: &str| match kind {
            "pods" => vec![pod("a", version)],
            "endpointslices" => vec![slice("s", version)],
            _ => Vec::new(),
        };
        match (kind, call.before) {
            ("pods" | "endpointslices" | "services", 0) => {
                let closed = [Step::Wait(Duration::from_millis(1_200))];
                Reply::streamed(&list("98"), "99", &closed)
            }
            ("pods" | "endpointslices" | "services", 1) => {
                assert_eq!(call.param("resourceVersion"), "99");
                Reply::Status(504, "Too large resource version: 99, current: 40")
            }
            ("pods", _) => Reply::streamed(&[pod("b", "39")], "40", &[Step::Hold]),
            ("endpointslices", _) => Reply::streamed(&list("38"), "40", &[Step::Hold]),
            _ => Reply::nothing(call),
        }
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    let seen = agent.until(synced).await;
    let at = |fits: &dyn Fn(&ClusterChange) -> bool| seen.iter().position(fits);
    let restarted = at(&|c| *c == ClusterChange::VersionsRestarted);
    assert!(restarted.is_some() && restarted < at(&|c| gone_pod(c) == Some("a")), "{seen:#?}");
    assert!(restarted < at(&|c| matches!(c, ClusterChange::Slice(_))), "{seen:#?}");
    assert_eq!(slices(&seen), ["s 38"], "an older slice is how things are now");
    let restarts = seen.iter().filter(|c| **c == ClusterChange::VersionsRestarted).count();
    assert_eq!(restarts, 1, "three watches found it out");
    assert_eq!(agent.stats.watch(WatchName::EndpointSlices).restarts[&Restart::Ahead], 1);
}
