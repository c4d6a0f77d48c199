//! The Kubernetes Event of a rollout that broke connections.

use std::time::Duration;

use rollrace::{
    engine::{ClusterChange, Request},
    model::EventResult,
};

use crate::{
    agent::Agent,
    objects::rollout_event,
    support::api_server::{ApiServer, Call, Reply},
};

fn is_event(call: &Call) -> bool {
    call.resource == "events" && call.is_create()
}

/// What became of the Event.
async fn written(agent: &mut Agent) -> EventResult {
    agent.ask(Request::Event(Box::new(rollout_event()))).await;
    let seen = agent.until(|c| matches!(c, ClusterChange::EventWritten { .. })).await;
    match seen.last() {
        Some(ClusterChange::EventWritten { rollout, result }) => {
            assert_eq!(*rollout, rollout_event().rollout);
            *result
        }
        other => panic!("no answer but {other:?}"),
    }
}

#[tokio::test]
async fn an_event_is_a_warning_on_the_workload_as_describe_looks_for_it() {
    let server = ApiServer::start(Reply::nothing).await;
    let mut agent = Agent::start(server.address).await;
    assert_eq!(written(&mut agent).await, EventResult::Created);
    let calls = server.calls(is_event);
    assert_eq!((calls.len(), calls[0].namespace.as_deref()), (1, Some("shop")));
    let event = &calls[0].created;
    assert_eq!(event["apiVersion"], "v1");
    assert_eq!(event["metadata"]["name"], "api.0123456789abcdef");
    let on = &event["involvedObject"];
    for (field, value) in [
        ("apiVersion", "apps/v1"),
        ("kind", "Deployment"),
        ("namespace", "shop"),
        ("name", "api"),
        ("uid", "uid-api"),
    ] {
        assert_eq!(on[field], value, "{event:#}");
    }
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["source"]["component"], "rollrace");
    assert_eq!(event["source"]["host"], "n1");
    assert!(event["message"].as_str().is_some_and(|text| text.contains("rollrace explain")));
    assert_eq!(event["lastTimestamp"], "2026-11-29T22:37:54Z");
}

#[tokio::test]
async fn an_event_that_another_node_has_written_is_as_good_as_written() {
    let script = |call: &Call| {
        if is_event(call) {
            Reply::Status(409, "events \"api.0123456789abcdef\" already exists")
        } else {
            Reply::nothing(call)
        }
    };
    let server = ApiServer::start(script).await;
    let mut agent = Agent::start(server.address).await;
    assert_eq!(written(&mut agent).await, EventResult::Exists);
    assert_eq!(server.calls(is_event).len(), 1, "it is not tried again");
    assert!(agent.stats.snapshot().denied.is_empty());
}

#[tokio::test]
async fn a_refusal_is_told_and_is_over_once_it_is_granted() {
    let script = |call: &Call| match (is_event(call), call.before) {
        (true, 0) => Reply::Status(403, "events is forbidden: User \"agent\" may not"),
        _ => Reply::nothing(call),
    };
    let server = ApiServer::start(script).await;
    let mut agent = Agent::start(server.address).await;
    assert_eq!(written(&mut agent).await, EventResult::Denied);
    let denied = agent.stats.snapshot().denied;
    assert_eq!((denied[0].verb, &*denied[0].resource), ("create", "events"));
    assert!(denied[0].costs.contains("kubectl describe"), "{denied:?}");
    assert_eq!(written(&mut agent).await, EventResult::Created);
    assert!(agent.stats.snapshot().denied.is_empty());
}

#[tokio::test]
async fn a_server_that_is_not_well_is_asked_again() {
    let script = |call: &Call| match (is_event(call), call.before) {
        (true, 0) => Reply::Status(503, "the server is not well"),
        (true, 1) => Reply::Late(Duration::from_millis(50), Box::new(Reply::nothing(call))),
        _ => Reply::nothing(call),
    };
    let server = ApiServer::start(script).await;
    let mut agent = Agent::start(server.address).await;
    assert_eq!(written(&mut agent).await, EventResult::Created);
    assert_eq!(server.calls(is_event).len(), 2);
}
