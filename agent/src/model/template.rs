//! What of a pod template decides whether its pods leave and arrive in order.
//!
//! Never environment variables, arguments, commands or annotations: of a preStop command no more
//! than the seconds that it sleeps, where it does nothing else.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// `terminationGracePeriodSeconds` where a template sets none (Kubernetes' default).
pub const DEFAULT_GRACE_SECONDS: i64 = 30;

/// One pod template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateFacts {
    /// `terminationGracePeriodSeconds`, the default filled in.
    pub grace_seconds: i64,
    /// Containers that run as long as the pod: its containers, and init containers of restart
    /// policy `Always`.
    pub containers: Vec<ContainerFacts>,
    /// Whether it has readiness gates: something outside of the pod decides about readiness, too.
    pub readiness_gates: bool,
}

impl Default for TemplateFacts {
    fn default() -> Self {
        Self {
            grace_seconds: DEFAULT_GRACE_SECONDS,
            containers: Vec::new(),
            readiness_gates: false,
        }
    }
}

impl TemplateFacts {
    /// The container that serves a port: the one that names it, else the first that is no sidecar
    /// (naming ports is optional).
    pub fn serving(&self, port: Option<u16>) -> Option<&ContainerFacts> {
        let names =
            |container: &&ContainerFacts| port.is_some_and(|port| container.ports.contains(&port));
        self.containers
            .iter()
            .find(names)
            .or_else(|| self.containers.iter().find(|container| !container.sidecar))
    }
}

/// One container of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerFacts {
    /// Name.
    pub name: Arc<str>,
    /// An init container that runs on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sidecar: bool,
    /// Ports that it names.
    pub ports: Vec<u16>,
    /// Readiness probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness: Option<ProbeFacts>,
    /// preStop hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_stop: Option<PreStopFacts>,
}

/// A readiness probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeFacts {
    /// `httpGet`, `tcpSocket`, `grpc` or `exec`; empty if none of these is set.
    pub how: Arc<str>,
    /// The port that it asks, if that is a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// `periodSeconds`, the default of 10 filled in.
    pub period_seconds: i32,
    /// `failureThreshold`, the default of 3 filled in.
    pub failure_threshold: i32,
}

/// A preStop hook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PreStopFacts {
    /// `sleep`, `exec`, `httpGet` or `tcpSocket`; empty if none of these is set.
    pub how: Arc<str>,
    /// How long it sleeps, where it does nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
}

/// How a workload replaces its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StrategyFacts {
    /// `RollingUpdate`, `Recreate` or `OnDelete`; empty if unknown.
    pub kind: Arc<str>,
    /// Pods above the wanted number, percentages worked out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<i32>,
    /// Pods below the wanted number, percentages worked out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_container_that_names_the_port_serves_it() {
        let container = |name: &str, sidecar, ports: &[u16]| ContainerFacts {
            name: name.into(),
            sidecar,
            ports: ports.to_vec(),
            ..ContainerFacts::default()
        };
        let template = TemplateFacts {
            containers: vec![
                container("mesh", true, &[15001]),
                container("app", false, &[]),
                container("admin", false, &[9000]),
            ],
            ..TemplateFacts::default()
        };
        let serving = |port| template.serving(port).map(|container| &*container.name);
        assert_eq!(serving(Some(9000)), Some("admin"));
        assert_eq!(serving(Some(8080)), Some("app"));
        assert_eq!(serving(None), Some("app"));
    }
}
