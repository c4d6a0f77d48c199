//! What the controllers ask about pods and owners.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, ObjectMeta, OwnerReference, Time,
};
use kube::core::Selector;
use kube::{Resource, ResourceExt};

/// Now, cut to the second as the API writes times.
pub fn now() -> Time {
    Time(Timestamp::from_second(Timestamp::now().as_second()).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// The reference by which an object names its controller.
pub fn owner_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The controller that an object names.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Whether the owner controls the object.
pub fn is_controlled_by<K: Resource>(object: &impl Resource, owner: &K) -> bool {
    controller_of(object.meta())
        .is_some_and(|reference| Some(&reference.uid) == owner.meta().uid.as_ref())
}

/// The selector as the query parameter of a list.
pub fn list_selector(selector: &LabelSelector) -> String {
    // An expression that cannot be parsed selects nothing in Kubernetes either.
    Selector::try_from(selector.clone())
        .map_or_else(|_| "!*".to_owned(), |selector| selector.to_string())
}

/// The pod's condition of a type.
pub fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

/// Whether the pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// When the pod's readiness last changed.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    condition(pod, "Ready").and_then(|ready| ready.last_transition_time.as_ref()).map(|time| time.0)
}

/// How long until a ready pod counts as available; none when it is not ready.
pub fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    if !is_ready(pod) {
        return None;
    }
    if min_ready_seconds == 0 {
        return Some(Duration::ZERO);
    }
    let since = now.duration_since(ready_since(pod)?);
    let wait = SignedDuration::from_secs(min_ready_seconds.into()).saturating_sub(since);
    Some(if wait.is_positive() { wait.unsigned_abs() } else { Duration::ZERO })
}

/// Whether the pod is available.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    available_in(pod, min_ready_seconds, now).is_some_and(|wait| wait.is_zero())
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("")
}

/// Whether all its containers have ended for good.
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it counts as a replica.
pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether it is on its way out but still runs.
pub fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// The order in which replicas are given up, first to last, as `ActivePodsWithRanks` has it:
/// without a node, pending, not ready, low deletion cost, on a node with more siblings, ready for a
/// shorter time, restarted more often, younger.
pub fn deletion_rank(pod: &Pod, siblings_on_node: usize) -> impl Ord + use<> {
    let spec = pod.spec.as_ref();
    let phase_rank = match phase(pod) {
        "Pending" => 0,
        "Running" => 2,
        _ => 1,
    };
    let cost: i64 = pod
        .annotations()
        .get("controller.kubernetes.io/pod-deletion-cost")
        .and_then(|cost| cost.parse().ok())
        .unwrap_or(0);
    let restarts = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten())
        .map(|container| container.restart_count)
        .max();
    (
        spec.is_some_and(|spec| spec.node_name.is_some()),
        phase_rank,
        is_ready(pod),
        cost,
        std::cmp::Reverse(siblings_on_node),
        std::cmp::Reverse(ready_since(pod)),
        std::cmp::Reverse(restarts),
        std::cmp::Reverse(pod.metadata.creation_timestamp.clone()),
        pod.name_any(),
    )
}

/// A pod as a template makes it, owned by its controller.
pub fn from_template<K: Resource<DynamicType = ()>>(template: &PodTemplateSpec, owner: &K) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            namespace: owner.meta().namespace.clone(),
            labels: meta.labels,
            annotations: meta.annotations,
            owner_references: Some(vec![owner_reference(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}
