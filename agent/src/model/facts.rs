//! What the API server says, trimmed to what attribution needs.
//!
//! Never environment variables, arguments or arbitrary annotations: those are not read at all.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{StrategyFacts, TemplateFacts, Wall};

/// A reference to one object by identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Kind as the API spells it, e.g. `ReplicaSet`.
    pub kind: Arc<str>,
    /// API group and version, e.g. `apps/v1`; empty where the source does not say.
    #[serde(default, skip_serializing_if = "str_is_empty")]
    pub api_version: Arc<str>,
    /// Name, in the namespace that the context names.
    pub name: Arc<str>,
    /// UID; empty where the source does not say.
    #[serde(default, skip_serializing_if = "str_is_empty")]
    pub uid: Arc<str>,
}

fn str_is_empty(text: &Arc<str>) -> bool {
    text.is_empty()
}

/// One `EndpointSlice` (`discovery.k8s.io/v1`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceFacts {
    /// Namespace.
    pub namespace: Arc<str>,
    /// The slice's own name.
    pub name: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
    /// Service it belongs to (label `kubernetes.io/service-name`); empty if it has none.
    pub service: Arc<str>,
    /// Label `endpointslice.kubernetes.io/managed-by`; tells mirrored and hand-made slices.
    pub managed_by: Arc<str>,
    /// Ports; empty means that endpoints match by address alone.
    pub ports: Vec<SlicePort>,
    /// Endpoints; those of address type FQDN are left out.
    pub endpoints: Vec<Endpoint>,
}

/// One port of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlicePort {
    /// Port name; empty if unnamed.
    pub name: Arc<str>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Arc<str>,
    /// Port number; `None` matches any.
    pub port: Option<u16>,
}

/// One endpoint of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its addresses (kube-proxy uses the first only; consumers treat them as fungible).
    pub addresses: Vec<IpAddr>,
    /// Its conditions, nil ones resolved.
    pub conditions: EndpointConditions,
    /// Node, if said.
    pub node: Option<Arc<str>>,
    /// The pod behind it, if `targetRef` says one.
    pub pod: Option<ObjectRef>,
}

/// Conditions of an endpoint with nil resolved: ready and serving true, terminating false (KEP-1672).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointConditions {
    /// Takes new connections: serving and not terminating (or publishNotReadyAddresses).
    pub ready: bool,
    /// Passes its readiness probe, terminating or not.
    pub serving: bool,
    /// Its pod has a deletion timestamp.
    pub terminating: bool,
}

/// One Service.
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the API object")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceFacts {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
    /// Cluster addresses; empty for a headless Service.
    pub cluster_ips: Vec<IpAddr>,
    /// External and load-balancer addresses.
    pub external_ips: Vec<IpAddr>,
    /// Ports.
    pub ports: Vec<ServicePort>,
    /// Whether it has a selector; without one its endpoints are made by hand.
    pub has_selector: bool,
    /// `publishNotReadyAddresses`.
    pub publish_not_ready: bool,
    /// `externalTrafficPolicy: Local`.
    pub external_local: bool,
    /// `internalTrafficPolicy: Local`.
    pub internal_local: bool,
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePort {
    /// Port name; empty if unnamed.
    pub name: Arc<str>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Arc<str>,
    /// The port clients dial.
    pub port: u16,
    /// The port on every node, if any.
    pub node_port: Option<u16>,
}

/// One pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodFacts {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
    /// Node it is bound to.
    pub node: Option<Arc<str>>,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// Shares its node's network namespace and address.
    pub host_network: bool,
    /// Controller owner.
    pub owner: Option<ObjectRef>,
    /// Label `pod-template-hash` or `controller-revision-hash`; empty if neither is there.
    pub revision_hash: Arc<str>,
    /// `deletionTimestamp`: when the grace period ends, 1 s resolution.
    pub deletion_timestamp: Option<Wall>,
    /// `deletionGracePeriodSeconds`.
    pub deletion_grace: Option<i64>,
    /// Reason of the `DisruptionTarget` condition if it is true, e.g. `EvictionByEvictionAPI`.
    pub disruption: Option<Arc<str>>,
    /// Succeeded or Failed: it runs no more, though the object remains.
    pub finished: bool,
    /// Sum of the containers' restart counts.
    pub restarts: u32,
    /// Exit codes of containers that ended (current or last state), by container name.
    pub exit_codes: BTreeMap<Arc<str>, i32>,
}

impl PodFacts {
    /// The same content known to have stood until this version, if that is later.
    #[must_use]
    pub fn known_until(self: Arc<Self>, version: Option<&Arc<str>>) -> Arc<Self> {
        let number = |version: &str| version.parse::<u64>().ok();
        match version {
            Some(version) if number(version) > number(&self.resource_version) => {
                Arc::new(Self { resource_version: version.clone(), ..Self::clone(&self) })
            }
            _ => self,
        }
    }

    /// When the pod's deletion was asked for: `deletionTimestamp - deletionGracePeriodSeconds`.
    ///
    /// Truncated to the second by the API server, so the true time is up to 1 s later. The kubelet's
    /// last delete shortens both, and then this is the time of *that*: of several values the
    /// earliest is the deletion.
    pub fn deleted_at(&self) -> Option<Wall> {
        let grace = jiff::SignedDuration::from_secs(self.deletion_grace.unwrap_or(0));
        self.deletion_timestamp.and_then(|end| end.checked_sub(grace).ok())
    }
}

/// One `ReplicaSet`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaSetFacts {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
    /// Controller owner: a Deployment, an Argo `Rollout`, or another kind.
    pub owner: Option<ObjectRef>,
    /// Label `pod-template-hash` (or `rollouts-pod-template-hash`).
    pub template_hash: Arc<str>,
    /// The owner's revision annotation (`deployment.kubernetes.io/revision`,
    /// `rollout.argoproj.io/revision`).
    pub revision: Option<u64>,
    /// Creation, 1 s resolution; a rollback does not change it.
    pub created: Option<Wall>,
    /// `spec.replicas`.
    pub wanted: i32,
    /// `status.replicas`.
    pub replicas: i32,
    /// Images of its template's containers.
    pub images: Vec<Arc<str>>,
    /// What its template says about leaving and arriving; `None` in recordings from before 0.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Arc<TemplateFacts>>,
}

/// One workload that rolls out: Deployment, `StatefulSet`, `DaemonSet`, or another owner of
/// `ReplicaSet`s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadFacts {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Kind, version, name and UID.
    pub object: ObjectRef,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
    /// `metadata.generation`.
    pub generation: i64,
    /// `spec.replicas`; for a `DaemonSet` the number of nodes that should run it.
    pub wanted: i32,
    /// Paused, or of strategy `OnDelete`: the rollout stays open.
    pub held: bool,
    /// Whether its strategy may take every replica away (Recreate, or one replica without surge).
    pub outage_by_design: bool,
    /// Images of its template's containers.
    pub images: Vec<Arc<str>>,
    /// What its template says about leaving and arriving; `None` in recordings from before 0.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Arc<TemplateFacts>>,
    /// How it replaces its pods; `None` where its kind does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<StrategyFacts>,
    /// What its controller last reported.
    pub status: WorkloadStatus,
}

/// The part of a workload's status that says whether its rollout is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadStatus {
    /// `observedGeneration`.
    pub observed_generation: i64,
    /// All pods of it that are not finished.
    pub replicas: i32,
    /// Pods of the current template (`updatedReplicas`, `updatedNumberScheduled`).
    pub updated: i32,
    /// Available pods.
    pub available: i32,
    /// Current revision's number, from the workload's own revision annotation.
    pub revision: Option<u64>,
    /// `StatefulSet`: `currentRevision`.
    pub current_revision: Arc<str>,
    /// `StatefulSet`: `updateRevision`. `DaemonSet`: its newest controller revision's hash, if known.
    pub update_revision: Arc<str>,
    /// `StatefulSet`: pods below this ordinal keep the old revision.
    pub partition: i32,
}
