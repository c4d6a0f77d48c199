//! What a failure must be blamed on, from the lab's own log of who removed which pod.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::agent::report;

/// A pod of the workload, by its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTruth {
    /// Its name.
    pub name: String,
    /// Its template's hash.
    pub hash: String,
    /// Who deleted it, if anybody has.
    pub removed_by: Option<String>,
}

/// The rollout that every failure of the run belongs to.
#[derive(Debug, Clone, Default)]
pub struct Expectation {
    /// The workload's namespace.
    pub namespace: String,
    /// The workload's kind.
    pub kind: String,
    /// The workload's name.
    pub name: String,
    /// The revision that the rollout leads to.
    pub revision: String,
    /// The template's hash it leads to.
    pub hash: String,
    /// The workload's pods, by address: each address belongs to one pod in a run.
    pub pods: BTreeMap<IpAddr, PodTruth>,
    /// Each agent's rollouts: (node, id) → target hash.
    pub rollouts: BTreeMap<(String, String), String>,
}

impl Expectation {
    /// What is wrong with a report's attribution; nothing when it is right.
    pub fn objections(&self, failure: &report::Failure, node: &str) -> Vec<String> {
        let mut why = Vec::new();
        let mut expect = |what: &str, is: Option<&str>, should: &str| {
            if is != Some(should) {
                why.push(format!("{what} is {}, should be {should}", is.unwrap_or("absent")));
            }
        };
        expect("cause", failure.cause.as_deref(), "rollout");
        expect("namespace", failure.namespace.as_deref(), &self.namespace);
        let workload = failure.workload.as_ref();
        expect("workload kind", workload.map(|w| w.kind.as_str()), &self.kind);
        expect("workload name", workload.map(|w| w.name.as_str()), &self.name);
        expect("revision", failure.revision.as_deref(), &self.revision);
        let target = failure
            .rollout
            .as_ref()
            .and_then(|id| self.rollouts.get(&(node.to_owned(), id.clone())));
        expect("the rollout's target hash", target.map(String::as_str), &self.hash);
        let pod = failure.backend.and_then(|backend| self.pods.get(&backend.address));
        match pod {
            Some(pod) => {
                let side = if pod.hash == self.hash { "new" } else { "old" };
                expect("side", failure.side.as_deref(), side);
                if let Some(named) = failure.pod.as_deref() {
                    expect("pod", Some(named), &pod.name);
                }
                let by_controller = pod.removed_by.as_deref() == Some("replicaset-controller");
                if side == "old" && !by_controller {
                    why.push(format!(
                        "the old pod {} was not removed by its controller but by {}",
                        pod.name,
                        pod.removed_by.as_deref().unwrap_or("nobody")
                    ));
                }
            }
            None if failure.class == "rejected" => {}
            None => why.push("its backend is no pod of the workload".to_owned()),
        }
        why
    }
}
