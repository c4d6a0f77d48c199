//! Owner look-ups.

use rollrace::engine::{ClusterChange, Request};
use serde_json::json;

use crate::{
    agent::Agent,
    objects::{
        controller_revision, delivered, deployment, owned, pod, replica_set, shop, synced, workload,
    },
    support::api_server::{ApiServer, Reply},
};

fn resolve(pod: &str) -> Request {
    Request::Resolve { namespace: "shop".into(), pod: pod.into(), uid: format!("uid-{pod}").into() }
}

fn is_owner(change: &ClusterChange) -> bool {
    matches!(change, ClusterChange::Owner { .. })
}

/// The owner's name, if any, and how it was found.
fn owner(seen: &[ClusterChange]) -> (Option<&str>, &str) {
    match seen.last() {
        Some(ClusterChange::Owner { owner, how, .. }) => {
            (owner.as_ref().map(|owner| &*owner.name), how)
        }
        other => panic!("no answer but {other:?}"),
    }
}

fn sets(seen: &[ClusterChange]) -> Vec<&str> {
    seen.iter()
        .filter_map(|change| match change {
            ClusterChange::ReplicaSet(facts) => Some(&*facts.name),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn a_pod_that_lives_is_asked_for_its_owner() {
    let server = ApiServer::start(|call| match &*call.resource {
        "pods/api-7d-bcdfg" => {
            Reply::Object(owned(pod("api-7d-bcdfg", "7"), "ReplicaSet", "api-7d", "uid-api-7d"))
        }
        _ => shop(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    agent.ask(resolve("api-7d-bcdfg")).await;
    let seen = agent.until(is_owner).await;
    assert_eq!(owner(&seen), (Some("api-7d"), "the pod names its controller"));
    assert_eq!(sets(&seen), ["api-6c", "api-7d"], "with its sibling, and no other's");
    assert!(
        seen.iter().any(|c| matches!(c, ClusterChange::Workload(w) if &*w.object.name == "api"))
    );

    agent.ask(resolve("api-7d-bcdfg")).await;
    assert_eq!(agent.until(is_owner).await.len(), 1, "the second time it is known");
    assert_eq!(agent.stats.snapshot().resolve_cached, 1);
}

#[tokio::test]
async fn a_pod_that_is_gone_is_told_by_the_set_that_made_its_name() {
    let server = ApiServer::start(shop).await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    agent.ask(resolve("api-6c-24567")).await;
    let seen = agent.until(is_owner).await;
    let (name, how) = owner(&seen);
    assert_eq!(name, Some("api-6c"));
    assert_eq!(how, "the pod is gone; only ReplicaSet api-6c makes such a name");
    assert_eq!(sets(&seen), ["api-6c", "api-7d"]);
    assert_eq!(agent.stats.snapshot().requests[&("pods".to_owned(), 404)], 1);
}

#[tokio::test]
async fn a_name_that_fits_several_owners_is_nobodys() {
    let set = |name: &str| {
        let mut set = deployment(name);
        set["kind"] = json!("DaemonSet");
        set
    };
    let server = ApiServer::start(move |call| match &*call.resource {
        "daemonsets" => Reply::list(&[set("api-6c")], "60", None),
        _ => shop(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    agent.ask(resolve("api-6c-24567")).await;
    let seen = agent.until(is_owner).await;
    let (name, how) = owner(&seen);
    assert_eq!(name, None);
    assert!(how.contains("several: ReplicaSet api-6c, DaemonSet api-6c"), "{how}");
    agent.ask(resolve("web-9-bcdfg")).await;
    let seen = agent.until(is_owner).await;
    assert!(owner(&seen).1.contains("no ReplicaSet, StatefulSet or DaemonSet"), "{seen:?}");
}

#[tokio::test]
async fn a_look_up_that_is_forbidden_says_so_in_its_answer() {
    let server = ApiServer::start(|call| match &*call.resource {
        "replicasets" => Reply::Status(403, "replicasets.apps is forbidden"),
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    agent.ask(resolve("api-6c-24567")).await;
    let seen = agent.until(is_owner).await;
    let (name, how) = owner(&seen);
    assert_eq!(name, None);
    assert!(how.contains("cannot list replicasets.apps: 403"), "{how}");
}

#[tokio::test]
async fn the_set_of_an_argo_rollout_leads_to_the_rollout() {
    let server = ApiServer::start(|call| match &*call.resource {
        // The group's own address: discovery.
        "" => {
            Reply::Object(json!({"kind": "APIResourceList", "groupVersion": "argoproj.io/v1alpha1",
            "resources": [{"name": "rollouts", "singularName": "rollout", "namespaced": true,
                "kind": "Rollout", "verbs": ["get", "list", "watch"]}]}))
        }
        "rollouts/api" => {
            let mut rollout = workload("Rollout", "api", json!({}));
            rollout["apiVersion"] = json!("argoproj.io/v1alpha1");
            rollout["metadata"]["annotations"] = json!({"rollout.argoproj.io/revision": "9"});
            Reply::Object(rollout)
        }
        "replicasets" => {
            let mut set = replica_set("api-6c", "api");
            let owner = &mut set["metadata"]["ownerReferences"][0];
            owner["kind"] = json!("Rollout");
            owner["apiVersion"] = json!("argoproj.io/v1alpha1");
            Reply::list(&[set], "60", None)
        }
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    agent.ask(resolve("api-6c-24567")).await;
    let seen = agent.until(is_owner).await;
    assert_eq!(owner(&seen).0, Some("api-6c"));
    assert_eq!(delivered(&seen), [("Rollout", Some(9), "")]);
}

#[tokio::test]
async fn the_pods_of_stateful_and_daemon_sets_are_told_by_their_names_too() {
    let stateful = workload("StatefulSet", "db", json!({"updateRevision": "db-2"}));
    let daemon = workload("DaemonSet", "log", json!({}));
    let server = ApiServer::start(move |call| match &*call.resource {
        "statefulsets" => Reply::list(std::slice::from_ref(&stateful), "60", None),
        "statefulsets/db" => Reply::Object(stateful.clone()),
        "daemonsets" => Reply::list(std::slice::from_ref(&daemon), "60", None),
        "daemonsets/log" => Reply::Object(daemon.clone()),
        "controllerrevisions" => Reply::list(
            &[
                controller_revision("StatefulSet", "db", "1", 1),
                controller_revision("StatefulSet", "db", "2", 2),
                controller_revision("DaemonSet", "log", "y", 5),
                controller_revision("DaemonSet", "log", "x", 4),
            ],
            "60",
            None,
        ),
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    for (pod, name, expected) in [
        ("db-12", "db", ("StatefulSet", Some(2), "db-2")),
        ("log-bcdfg", "log", ("DaemonSet", Some(5), "y")),
    ] {
        agent.ask(resolve(pod)).await;
        let seen = agent.until(is_owner).await;
        assert_eq!(owner(&seen).0, Some(name), "{seen:#?}");
        assert_eq!(delivered(&seen), [expected]);
    }
}
