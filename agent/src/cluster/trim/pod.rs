//! Pod → [`PodFacts`].

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1 as api;
use serde_json::Value;

use super::{address, controller, first_label, text};
use crate::{cluster::object::Facts, model::PodFacts};

/// Where the owner writes the revision that a pod belongs to: `ReplicaSet`s of Deployments, of Argo
/// Rollouts, and `StatefulSet`s and `DaemonSet`s.
const REVISION_LABELS: [&str; 3] =
    ["rollouts-pod-template-hash", "pod-template-hash", "controller-revision-hash"];

impl Facts for PodFacts {
    const KIND: &'static str = "Pod";

    fn trim(raw: Value, complaints: &mut Vec<String>) -> Result<Self, serde_json::Error> {
        let mut pod: api::Pod = serde_json::from_value(raw)?;
        let spec = pod.spec.unwrap_or_default();
        let status = pod.status.unwrap_or_default();
        let ips = match status.pod_ips {
            Some(ips) if !ips.is_empty() => ips.into_iter().map(|ip| ip.ip).collect(),
            _ => status.pod_ip.into_iter().collect::<Vec<_>>(),
        };
        let disruption = status
            .conditions
            .unwrap_or_default()
            .into_iter()
            .find(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True")
            .map(|condition| text(condition.reason));

        // An init container with this policy is a sidecar and runs as long as the others.
        let sidecars: BTreeSet<_> = spec
            .init_containers
            .unwrap_or_default()
            .into_iter()
            .filter(|container| container.restart_policy.as_deref() == Some("Always"))
            .map(|container| container.name)
            .collect();
        let containers: Vec<_> = status
            .init_container_statuses
            .unwrap_or_default()
            .into_iter()
            .filter(|container| sidecars.contains(&container.name))
            .chain(status.container_statuses.unwrap_or_default())
            .collect();

        Ok(Self {
            owner: controller(&mut pod.metadata),
            revision_hash: first_label(&pod.metadata, &REVISION_LABELS),
            namespace: text(pod.metadata.namespace),
            name: text(pod.metadata.name),
            uid: text(pod.metadata.uid),
            resource_version: text(pod.metadata.resource_version),
            node: spec.node_name.filter(|node| !node.is_empty()).map(Into::into),
            ips: ips
                .iter()
                .filter(|ip| !ip.is_empty())
                .filter_map(|ip| address("pod IP", ip, complaints))
                .collect(),
            host_network: spec.host_network.unwrap_or(false),
            deletion_timestamp: pod.metadata.deletion_timestamp.map(|time| time.0),
            deletion_grace: pod.metadata.deletion_grace_period_seconds,
            disruption,
            finished: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            restarts: containers
                .iter()
                .map(|container| u32::try_from(container.restart_count).unwrap_or(0))
                .sum(),
            exit_codes: containers
                .into_iter()
                .filter_map(|container| {
                    let ended = |state: Option<api::ContainerState>| state?.terminated;
                    let ended = ended(container.state).or_else(|| ended(container.last_state))?;
                    Some((container.name.into(), ended.exit_code))
                })
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::object::Object;

    #[test]
    fn a_leaving_pod_carries_what_attribution_needs_and_nothing_else() {
        let pod = Object::<PodFacts>::from_value(json!({
            "metadata": {
                "namespace": "shop", "name": "api-1-a", "uid": "u1", "resourceVersion": "5",
                "labels": {"pod-template-hash": "1", "app": "api"},
                "annotations": {"secret": "never read"},
                "deletionTimestamp": "2026-11-29T21:26:34Z", "deletionGracePeriodSeconds": 30,
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "c"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "api-1", "uid": "r",
                     "controller": true}]},
            "spec": {"nodeName": "n1", "containers": [
                {"name": "main", "image": "i", "env": [{"name": "TOKEN", "value": "never read"}]}],
                "initContainers": [{"name": "setup"},
                                   {"name": "mesh", "restartPolicy": "Always"}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
                "conditions": [{"type": "DisruptionTarget", "status": "True",
                                "reason": "EvictionByEvictionAPI"}],
                "initContainerStatuses": [
                    {"name": "setup", "restartCount": 7,
                     "state": {"terminated": {"exitCode": 0}}},
                    {"name": "mesh", "restartCount": 2, "state": {"running": {}}}],
                "containerStatuses": [
                    {"name": "main", "restartCount": 1, "state": {"running": {}},
                     "lastState": {"terminated": {"exitCode": 137}}}]},
        }));
        assert!(pod.complaints.is_empty(), "{:?}", pod.complaints);
        let facts = pod.facts.unwrap();
        assert_eq!(&*facts.owner.as_ref().unwrap().name, "api-1");
        assert_eq!(&*facts.revision_hash, "1");
        assert_eq!(facts.deleted_at().unwrap().to_string(), "2026-11-29T21:26:04Z");
        assert_eq!(facts.disruption.as_deref(), Some("EvictionByEvictionAPI"));
        assert_eq!(facts.restarts, 3);
        assert_eq!(facts.exit_codes.iter().collect::<Vec<_>>(), [(&"main".into(), &137)]);
        assert!(!serde_json::to_string(&*facts).unwrap().contains("never read"));
    }

    #[test]
    fn a_pod_that_has_just_been_created_is_no_fault() {
        let pod = Object::<PodFacts>::from_value(json!({
            "metadata": {"namespace": "shop", "name": "api-1-b", "uid": "u2"},
            "spec": {"hostNetwork": true}, "status": {"phase": "Pending"},
        }));
        assert!(pod.complaints.is_empty());
        let facts = pod.facts.unwrap();
        assert!(facts.host_network && facts.ips.is_empty() && facts.node.is_none());
        assert!(facts.deleted_at().is_none() && !facts.finished);
    }
}
