//! A pod's status, as a kubelet writes it.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

use crate::net::NodeAddresses;

/// Condition types that the kubelet owns; others (`DisruptionTarget`) are kept as they are.
const OWN_CONDITIONS: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// What a container is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Running since a time.
    Running(Timestamp),
    /// Waiting to be started again.
    BackOff,
    /// Exited.
    Terminated {
        /// Its start.
        started: Timestamp,
        /// Its end.
        finished: Timestamp,
        /// Its exit code.
        code: i32,
    },
}

/// A pod's status, and when its readiness last changed.
#[derive(Debug, Clone)]
pub struct Status {
    /// The pod's addresses, one of each family, the first one first.
    pub addresses: Vec<IpAddr>,
    /// The only container's state.
    pub state: State,
    /// The state before the last restart.
    pub last_state: Option<State>,
    /// How often it was started again.
    pub restarts: i32,
    /// The container's exit ends the pod (it will not be started again).
    pub final_exit: bool,
    ready: bool,
    ready_since: Timestamp,
    started: Timestamp,
}

impl Status {
    /// The status of a pod whose container has just been started.
    pub fn new(addresses: Vec<IpAddr>, now: Timestamp) -> Self {
        Self {
            addresses,
            state: State::Running(now),
            last_state: None,
            restarts: 0,
            final_exit: false,
            ready: false,
            ready_since: now,
            started: now,
        }
    }

    /// Changes readiness.
    pub fn set_ready(&mut self, ready: bool, now: Timestamp) {
        if self.ready != ready {
            self.ready = ready;
            self.ready_since = now;
        }
    }

    /// The merge patch for the status subresource.
    pub fn patch(&self, pod: &Pod, container: &Container, node: &NodeAddresses) -> Value {
        let phase = match self.state {
            State::Terminated { code: 0, .. } if self.final_exit => "Succeeded",
            State::Terminated { .. } if self.final_exit => "Failed",
            _ => "Running",
        };
        json!({"status": {
            "phase": phase,
            "hostIP": node.address,
            "hostIPs": ips(&node.addresses),
            "podIP": self.addresses.first(),
            "podIPs": ips(&self.addresses),
            "startTime": seconds(self.started),
            "observedGeneration": pod.metadata.generation,
            "conditions": self.conditions(pod, phase),
            "containerStatuses": [{
                "name": container.name,
                "image": container.image,
                "imageID": "",
                "containerID": format!("lab://{}/{}", container.name, self.restarts),
                "ready": self.ready,
                "started": matches!(self.state, State::Running(_)),
                "restartCount": self.restarts,
                "state": state(&self.state),
                "lastState": self.last_state.as_ref().map_or(json!({}), state),
            }],
        }})
    }

    fn conditions(&self, pod: &Pod, phase: &str) -> Vec<Value> {
        let mut conditions: Vec<Value> = OWN_CONDITIONS
            .iter()
            .map(|kind| {
                let follows_readiness = matches!(*kind, "Ready" | "ContainersReady");
                let holds = !follows_readiness || self.ready;
                let since = if follows_readiness { self.ready_since } else { self.started };
                let reason = match (holds, phase) {
                    (true, _) => None,
                    (false, "Succeeded") => Some("PodCompleted"),
                    (false, "Failed") => Some("PodFailed"),
                    (false, _) => Some("ContainersNotReady"),
                };
                let mut condition = json!({
                    "type": kind,
                    "status": if holds { "True" } else { "False" },
                    "lastProbeTime": null,
                    "lastTransitionTime": seconds(since),
                });
                if let Some(reason) = reason {
                    condition["reason"] = json!(reason);
                }
                condition
            })
            .collect();
        let others = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
        conditions.extend(
            others.filter(|c| !OWN_CONDITIONS.contains(&c.type_.as_str())).map(|c| json!(c)),
        );
        conditions
    }
}

fn state(state: &State) -> Value {
    match state {
        State::Running(since) => json!({"running": {"startedAt": seconds(*since)}}),
        State::BackOff => json!({"waiting": {"reason": "CrashLoopBackOff"}}),
        State::Terminated { started, finished, code } => json!({"terminated": {
            "exitCode": code,
            "reason": if *code == 0 { "Completed" } else { "Error" },
            "startedAt": seconds(*started),
            "finishedAt": seconds(*finished),
        }}),
    }
}

fn ips(addresses: &[IpAddr]) -> Value {
    addresses.iter().map(|address| json!({"ip": address})).collect()
}

/// API times have a resolution of one second.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
