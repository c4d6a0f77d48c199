//! The cluster's objects: a Deployment of four pods of which one leaves, and four clients.

use serde_json::{Value, json};

use super::world::{EACH, SERVICE, backend, client};
use crate::agent::NODE;

/// A change of an object.
#[derive(Clone, Debug)]
pub struct Change {
    /// Plural name of its kind.
    pub resource: &'static str,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub kind: &'static str,
    /// The object.
    pub object: Value,
}

/// What happens in the cluster.
pub struct Shop {
    old: &'static str,
    new: &'static str,
}

fn change(resource: &'static str, kind: &'static str, object: Value) -> Change {
    Change { resource, kind, object }
}

impl Shop {
    /// Two revisions.
    pub fn new() -> Self {
        Self { old: "6c6c", new: "7d7d" }
    }

    /// A Deployment at rest.
    pub fn before(&self) -> Vec<Change> {
        let mut changes = vec![
            change(
                "services",
                "ADDED",
                json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"namespace": "shop", "name": "api", "uid": "uid-service"},
                "spec": {"type": "ClusterIP", "clusterIP": SERVICE.ip(), "clusterIPs": [SERVICE.ip()],
                    "ports": [{"name": "http", "port": SERVICE.port(), "protocol": "TCP", "targetPort": 8080}]}}),
            ),
            change("deployments", "ADDED", Self::deployment(1, false)),
            change("replicasets", "ADDED", self.set(self.old, "1", EACH)),
        ];
        for number in 0..EACH {
            let on_node = json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"namespace": "shop", "name": format!("client-{number}"),
                    "uid": format!("uid-client-{number}"), "labels": {"app": "client"}},
                "spec": {"nodeName": NODE, "containers": []},
                "status": {"phase": "Running", "podIP": client(number), "podIPs": [{"ip": client(number)}]}});
            changes.push(change("pods", "ADDED", on_node));
            changes.push(change("pods", "ADDED", self.pod(number, false)));
        }
        changes.push(change("endpointslices", "ADDED", self.slice(0, false)));
        changes
    }

    /// A rollout has begun, and its first old pod is leaving.
    pub fn leaving(&self) -> Vec<Change> {
        vec![
            change("deployments", "MODIFIED", Self::deployment(2, true)),
            change("replicasets", "ADDED", self.set(self.new, "2", 1)),
            change("replicasets", "MODIFIED", self.set(self.old, "1", EACH - 1)),
            change("pods", "MODIFIED", self.pod(0, true)),
            change("endpointslices", "MODIFIED", self.slice(0, true)),
        ]
    }

    /// The pod is gone.
    pub fn after(&self) -> Vec<Change> {
        vec![
            change("endpointslices", "MODIFIED", self.slice(1, false)),
            change("pods", "DELETED", self.pod(0, true)),
        ]
    }

    fn deployment(generation: u8, rolling: bool) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": "shop", "name": "api", "uid": "uid-api", "generation": generation,
                "annotations": {"deployment.kubernetes.io/revision": generation.to_string()}},
            "spec": {"replicas": EACH, "selector": {"matchLabels": {"app": "api"}},
                "strategy": {"type": "RollingUpdate"},
                "template": {"metadata": {"labels": {"app": "api"}}, "spec": {"containers": []}}},
            "status": {"observedGeneration": generation, "replicas": EACH,
                "updatedReplicas": if rolling { 1 } else { EACH }, "readyReplicas": EACH,
                "availableReplicas": EACH}})
    }

    fn set(&self, hash: &str, revision: &str, replicas: u8) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"namespace": "shop", "name": format!("api-{hash}"), "uid": format!("uid-{hash}"),
                "creationTimestamp": if hash == self.old { "2026-01-01T00:00:00Z" } else { "2026-01-02T00:00:00Z" },
                "labels": {"app": "api", "pod-template-hash": hash},
                "annotations": {"deployment.kubernetes.io/revision": revision},
                "ownerReferences": [owner("Deployment", "api", "uid-api")]},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "api"}},
                "template": {"metadata": {"labels": {"app": "api", "pod-template-hash": hash}},
                    "spec": {"containers": []}}},
            "status": {"replicas": replicas}})
    }

    fn pod(&self, number: u8, leaving: bool) -> Value {
        let (name, hash) = (self.pod_name(number), self.old);
        let address = *backend(number).ip();
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"),
                "labels": {"app": "api", "pod-template-hash": hash},
                "ownerReferences": [owner("ReplicaSet", &format!("api-{hash}"), &format!("uid-{hash}"))]},
            "spec": {"nodeName": "n2", "containers": []},
            "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}});
        if leaving {
            let now = std::time::SystemTime::now();
            pod["metadata"]["deletionTimestamp"] =
                json!(rfc3339(now + std::time::Duration::from_secs(30)));
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        }
        pod
    }

    /// As the ReplicaSet controller makes it: of a pod that is gone the name tells the owner.
    fn pod_name(&self, number: u8) -> String {
        let suffix = ["bcdf2", "bcdf4", "bcdf5", "bcdf6"].get(usize::from(number)).unwrap_or(&"");
        format!("api-{}-{suffix}", self.old)
    }

    fn slice(&self, first: u8, leaving: bool) -> Value {
        let endpoint = |number: u8| {
            let name = self.pod_name(number);
            let left = leaving && number == 0;
            json!({"addresses": [backend(number).ip()], "nodeName": "n2",
                "conditions": {"ready": !left, "serving": !left, "terminating": left},
                "targetRef": {"kind": "Pod", "namespace": "shop", "name": name, "uid": format!("uid-{name}")}})
        };
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": "shop", "name": "api-1", "uid": "uid-slice",
                "labels": {"kubernetes.io/service-name": "api"}},
            "addressType": "IPv4", "endpoints": (first..EACH).map(endpoint).collect::<Vec<_>>(),
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]})
    }
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true})
}

/// Seconds precision, as the API server writes times.
fn rfc3339(at: std::time::SystemTime) -> String {
    jiff::Timestamp::try_from(at)
        .map_or_else(|_| String::new(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
