//! The cluster's objects, and what to look for in the changes.

use rollrace::{
    engine::{ClusterChange, RolloutEvent},
    model::{RolloutId, WorkloadKey},
};
use serde_json::{Value, json};

use crate::support::api_server::{Call, Reply, Step};

pub fn synced(change: &ClusterChange) -> bool {
    *change == ClusterChange::Synced(true)
}

pub fn pod(name: &str, version: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": version, "labels": {"app": "api"}},
        "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Running"}})
}

pub fn owned(mut object: Value, kind: &str, name: &str, uid: &str) -> Value {
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": kind,
        "name": name, "uid": uid, "controller": true}]);
    object
}

pub fn leaving(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-11-29T21:26:34Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    pod
}

pub fn replica_set(name: &str, deployment: &str) -> Value {
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": "50", "labels": {"app": "api"}},
        "spec": {"replicas": 1, "selector": {}}});
    owned(set, "Deployment", deployment, &format!("uid-{deployment}"))
}

pub fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": "60"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "api"}}, "template": {}}})
}

pub fn slice(name: &str, version: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name, "resourceVersion": version,
            "labels": {"kubernetes.io/service-name": "api"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}],
        "ports": [{"port": 8080}]})
}

pub fn pod_name(change: &ClusterChange) -> Option<&str> {
    match change {
        ClusterChange::Pod(facts) => Some(&facts.name),
        _ => None,
    }
}

pub fn gone_pod(change: &ClusterChange) -> Option<&str> {
    match change {
        ClusterChange::PodGone(facts) => Some(&facts.name),
        _ => None,
    }
}

/// The followed Deployment and its two sets; pods are the test's own.
pub fn shop(call: &Call) -> Reply {
    match &*call.resource {
        "deployments" if call.is_streamed_list() => {
            Reply::streamed(&[deployment("api")], "60", &[Step::Hold])
        }
        "deployments/api" => Reply::Object(deployment("api")),
        "replicasets" => {
            let sets = [
                replica_set("api-6c", "api"),
                replica_set("api-7d", "api"),
                replica_set("web-1", "web"),
            ];
            if call.is_watch() {
                Reply::streamed(&sets, "60", &[Step::Hold])
            } else {
                Reply::list(&sets, "60", None)
            }
        }
        _ => Reply::nothing(call),
    }
}

/// A workload of any kind, and its controller revisions `hash`: the last is the newest.
pub fn workload(kind: &str, name: &str, status: Value) -> Value {
    let mut workload = deployment(name);
    workload["kind"] = json!(kind);
    workload["status"] = status;
    workload
}

pub fn controller_revision(kind: &str, name: &str, hash: &str, number: i64) -> Value {
    let revision = json!({"metadata": {"namespace": "shop", "name": format!("{name}-{hash}"),
        "uid": format!("uid-{hash}"), "resourceVersion": "70",
        "labels": {"controller-revision-hash": hash}}, "revision": number, "data": {"spec": {}}});
    owned(revision, kind, name, &format!("uid-{name}"))
}

pub fn delivered(seen: &[ClusterChange]) -> Vec<(&str, Option<u64>, &str)> {
    seen.iter()
        .filter_map(|change| match change {
            ClusterChange::Workload(w) => {
                Some((&*w.object.kind, w.status.revision, &*w.status.update_revision))
            }
            _ => None,
        })
        .collect()
}

/// What the engine wants written.
pub fn rollout_event() -> RolloutEvent {
    RolloutEvent {
        rollout: RolloutId { workload_uid: "uid-api".into(), target: "7d".into(), ordinal: 1 },
        name: "api.0123456789abcdef".into(),
        workload: WorkloadKey {
            namespace: "shop".into(),
            kind: "Deployment".into(),
            name: "api".into(),
            uid: "uid-api".into(),
        },
        api_version: "apps/v1".into(),
        note: "broke 3 connections: kubectl rollrace explain deployment/api -n shop".to_owned(),
        at: "2026-11-29T22:37:54Z".parse().unwrap(),
    }
}
