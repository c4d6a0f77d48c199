//! Each right of the shipped `ClusterRole` taken away, one at a time.

use std::collections::{BTreeMap, BTreeSet};

use rollrace::{
    engine::{ClusterChange, Request},
    model::WorkloadKey,
};
use serde_json::json;

use crate::{
    agent::Agent,
    objects::{controller_revision, deployment, owned, pod, replica_set, rollout_event, workload},
    support::api_server::{ApiServer, Call, Reply, Step},
};

/// (resource, verb) pairs as deployed.
fn granted() -> BTreeSet<(String, String)> {
    let text = include_str!("../../../deploy/base/rbac.yaml");
    let words = |line: &str, key: &str| -> Option<Vec<String>> {
        let list = line.trim().strip_prefix(key)?.trim().strip_prefix('[')?.strip_suffix(']')?;
        Some(list.split(',').map(|word| word.trim().to_owned()).collect())
    };
    let mut rights = BTreeSet::new();
    let mut resources = Vec::new();
    for line in text.lines() {
        if let Some(found) = words(line, "resources:") {
            resources = found;
        }
        for verb in words(line, "verbs:").into_iter().flatten() {
            rights.extend(resources.iter().map(|resource| (resource.clone(), verb.clone())));
        }
    }
    assert!(rights.len() > 20, "{rights:?}");
    rights
}

fn verb(call: &Call) -> &'static str {
    if call.is_create() {
        return "create";
    }
    match (call.is_watch(), call.resource.contains('/')) {
        (true, _) => "watch",
        (false, true) => "get",
        (false, false) => "list",
    }
}

fn kind_of(resource: &str) -> &str {
    resource.split('/').next().unwrap_or(resource)
}

/// A cluster with a workload of each kind.
fn everything(call: &Call) -> Reply {
    if call.is_create() {
        return Reply::Created(call.created.clone());
    }
    let log = workload("DaemonSet", "log", json!({}));
    let db = workload("StatefulSet", "db", json!({}));
    let mut canary = workload("Rollout", "canary", json!({}));
    canary["apiVersion"] = json!("argoproj.io/v1alpha1");
    let mut canary_set = replica_set("canary-1", "canary");
    canary_set["metadata"]["ownerReferences"][0]["kind"] = json!("Rollout");
    canary_set["metadata"]["ownerReferences"][0]["apiVersion"] = json!("argoproj.io/v1alpha1");
    let objects = match kind_of(&call.resource) {
        "deployments" => vec![deployment("api")],
        "daemonsets" => vec![log],
        "statefulsets" => vec![db],
        "rollouts" => vec![canary],
        "replicasets" => vec![replica_set("api-6c", "api"), canary_set],
        "controllerrevisions" => vec![
            controller_revision("DaemonSet", "log", "x", 4),
            controller_revision("StatefulSet", "db", "y", 2),
        ],
        "pods" => {
            vec![owned(pod("canary-1-bcdfg", "7"), "ReplicaSet", "canary-1", "uid-canary-1")]
        }
        "nodes" => vec![json!({"metadata": {"name": "n2"}, "status": {"conditions": []}})],
        _ => Vec::new(),
    };
    if call.resource.is_empty() {
        // What a group serves.
        return Reply::Object(
            json!({"kind": "APIResourceList", "groupVersion": "argoproj.io/v1alpha1",
            "resources": [{"name": "rollouts", "singularName": "rollout", "namespaced": true,
                "kind": "Rollout", "verbs": ["get", "list", "watch"]}]}),
        );
    }
    match call.resource.split_once('/') {
        Some((_, name)) => objects
            .into_iter()
            .find(|object| object["metadata"]["name"] == name)
            .map_or(Reply::Status(404, "not found"), Reply::Object),
        None if call.is_streamed_list() => Reply::streamed(&objects, "100", &[Step::Hold]),
        None if call.is_watch() => Reply::Watch(vec![Step::Hold]),
        None => Reply::list(&objects, "100", None),
    }
}

fn follow(kind: &str, name: &str, api_version: &str) -> Request {
    let workload = WorkloadKey {
        namespace: "shop".into(),
        kind: kind.into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
    };
    Request::Follow { workload, api_version: api_version.into(), since: "50".into() }
}

fn resolve(pod: &str) -> Request {
    Request::Resolve { namespace: "shop".into(), pod: pod.into(), uid: format!("uid-{pod}").into() }
}

/// Uses everything that the agent may use; returns what was answered.
async fn exercise(agent: &mut Agent) -> Vec<ClusterChange> {
    for (kind, name) in [("Deployment", "api"), ("DaemonSet", "log"), ("StatefulSet", "db")] {
        agent.ask(follow(kind, name, "apps/v1")).await;
    }
    agent.ask(follow("Rollout", "canary", "argoproj.io/v1alpha1")).await;
    let pods = ["api-6c-bcdfg", "log-bcdfg", "db-0", "canary-1-bcdfg"];
    for pod in pods {
        agent.ask(resolve(pod)).await;
    }
    agent.ask(Request::Node { name: "n2".into() }).await;
    agent.ask(Request::Event(Box::new(rollout_event()))).await;
    let mut seen = Vec::new();
    for _ in pods {
        seen.extend(agent.until(|c| matches!(c, ClusterChange::Owner { .. })).await);
    }
    seen
}

async fn one_is_denied(resource: String, verb_denied: String) {
    let what = format!("{verb_denied} {resource}");
    let (denied, denied_verb) = (resource.clone(), verb_denied.clone());
    // Where lists are streamed, watching includes listing.
    let pages = verb_denied == "list";
    let server = ApiServer::start(move |call| {
        if kind_of(&call.resource) == denied && verb(call) == denied_verb {
            Reply::Status(403, "is forbidden: User \"agent\" may not")
        } else if pages && call.is_streamed_list() {
            Reply::Status(422, "sendInitialEvents: Forbidden: it is not enabled")
        } else {
            everything(call)
        }
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    let essential = resource == "endpointslices";
    if !essential {
        agent.until(|c| *c == ClusterChange::Synced(true)).await;
    }
    let seen = exercise(&mut agent).await;
    // Denied requests are made by tasks beside those that were waited for.
    let told = async {
        loop {
            let denied = agent.stats.snapshot().denied;
            if let Some(denied) = denied.iter().find(|denied| {
                denied.resource.split('.').next() == Some(&*resource) && denied.verb == verb_denied
            }) {
                return denied.clone();
            }
            let _change =
                tokio::time::timeout(std::time::Duration::from_millis(10), agent.changes.recv())
                    .await;
        }
    };
    let denied = tokio::time::timeout(crate::agent::PATIENCE, told)
        .await
        .unwrap_or_else(|_| panic!("{what} is granted, but the agent does not use it"));
    assert!(denied.error.contains("403") && denied.error.contains("ClusterRole"), "{denied:?}");
    assert!(!denied.costs.is_empty());
    let snapshot = agent.stats.snapshot();
    assert_eq!(snapshot.denied.len(), 1, "{what}: nothing else is said to be denied");
    assert_eq!(snapshot.synced, !essential, "{what}");

    // What still works.
    let owners: BTreeMap<&str, Option<&str>> = seen
        .iter()
        .filter_map(|change| match change {
            ClusterChange::Owner { pod, owner, .. } => {
                Some((&**pod, owner.as_ref().map(|owner| &*owner.name)))
            }
            _ => None,
        })
        .collect();
    let lists = |of: &str| verb_denied == "list" && resource == of;
    assert_eq!(owners.len(), 4, "{what}: each question has an answer");
    if !(resource == "pods" && verb_denied == "get") {
        assert_eq!(owners["canary-1-bcdfg"], Some("canary-1"), "{what}: the pod says it itself");
    }
    if !lists("replicasets") && !lists("daemonsets") {
        assert_eq!(owners["api-6c-bcdfg"], Some("api-6c"), "{what}");
        assert_eq!(owners["log-bcdfg"], Some("log"), "{what}");
        if !lists("statefulsets") {
            assert_eq!(owners["db-0"], Some("db"), "{what}");
        }
    }
}

#[tokio::test]
async fn each_right_that_is_missing_is_told_with_its_remedy_and_the_rest_works() {
    let mut cases = tokio::task::JoinSet::new();
    for (resource, verb) in granted() {
        cases.spawn(one_is_denied(resource, verb));
    }
    let mut failed = Vec::new();
    while let Some(case) = cases.join_next().await {
        if let Err(error) = case {
            let panic = error.into_panic();
            let text = panic.downcast_ref::<String>().cloned();
            failed.push(text.unwrap_or_else(|| "a panic without words".to_owned()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[tokio::test]
async fn a_right_that_is_granted_later_is_denied_no_longer() {
    let server = ApiServer::start(|call| match (&*call.resource, call.before) {
        ("services", 0) => Reply::Status(403, "services is forbidden"),
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(|c| *c == ClusterChange::Synced(true)).await;
    assert_eq!(agent.stats.snapshot().denied[0].resource, "services");
    agent.until(|c| matches!(c, ClusterChange::ServicesListed(_))).await;
    assert!(agent.stats.snapshot().denied.is_empty());
}
