//! What the advice rests on: one rollout as the nodes know it.
//!
//! The types read what agents answer (`/api/v1/…`) and take it as it comes: what an older agent does
//! not say yet has its default, what a newer one says besides is left out, and classes are names.

use std::{collections::BTreeMap, net::IpAddr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::{StrategyFacts, TemplateFacts};

/// Failures by the name of their class, as `refused`.
pub type ByClass = BTreeMap<String, u64>;

/// One revision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Revision {
    /// Its number; a `StatefulSet`'s and `DaemonSet`'s may have none.
    pub revision: Option<String>,
    /// Template hash or controller revision.
    pub hash: String,
    /// Images.
    pub images: Vec<String>,
    /// Its template, if the agent knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateFacts>,
}

impl Revision {
    /// What people call it: its number, else its hash.
    pub fn name(&self) -> &str {
        self.revision.as_deref().unwrap_or(&self.hash)
    }
}

/// An address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
}

/// One pod that left, as one node saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Leaving {
    /// Backend.
    pub endpoint: Option<Address>,
    /// Pod.
    pub pod: String,
    /// Deletion → last fresh SYN NATed to it here, in seconds; `None`: not measured.
    pub seconds: Option<f64>,
    /// Fresh SYNs after the deletion.
    pub fresh_syns_after: u64,
    /// Deletion, truncated to the second.
    pub deleted: Option<Timestamp>,
    /// How much later the deletion may have been.
    pub precision_seconds: f64,
    /// Deletion → first SYN answered by a RST, in seconds.
    pub listener_gap_seconds: Option<f64>,
    /// Deletion → this node was told that the endpoint leaves, in seconds; `None`: not measured.
    pub control_plane_lag_seconds: Option<f64>,
    /// The node it ran on.
    pub node: Option<String>,
    /// Deletion → the pod object gone, in seconds.
    pub gone_seconds: Option<f64>,
    /// Exit codes by container.
    pub exit_codes: BTreeMap<String, i32>,
}

/// The workload as a node's agent last knew it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shape {
    /// Replicas wanted.
    pub replicas: i32,
    /// Strategy.
    pub strategy: Option<StrategyFacts>,
    /// It may take every replica away.
    pub outage_by_design: bool,
}

/// A Service that the workload's pods are behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceShape {
    /// Name.
    pub name: String,
    /// It has no cluster address.
    pub headless: bool,
    /// `publishNotReadyAddresses`.
    pub publish_not_ready: bool,
    /// A traffic policy of it is Local.
    pub local_policy: bool,
}

/// What an agent was there for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Covered {
    /// Since when.
    pub since: Option<Timestamp>,
    /// Something of the rollout came before that, or fell into a gap.
    pub partial: bool,
    /// Gaps that it fell into.
    pub gaps: u64,
}

/// Conntrack entries that still lead to pods that are gone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stale {
    /// How many.
    pub entries: u64,
    /// When the last of them expires; `None`: they are kept alive, or nobody knows.
    pub expires: Option<Timestamp>,
    /// Where they lead.
    #[serde(default)]
    pub endpoints: Vec<StaleAt>,
}

/// Where stale conntrack entries lead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StaleAt {
    /// An endpoint that is gone.
    pub endpoint: Address,
}

/// One rollout as one node's agent tells it (`/api/v1/rollouts`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Workload UID, target hash, ordinal.
    pub id: String,
    /// Namespace.
    pub namespace: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID of the workload.
    pub uid: String,
    /// From.
    pub from: Option<Revision>,
    /// To.
    pub to: Revision,
    /// First observed.
    pub started: Timestamp,
    /// How much of it the agent was there for.
    pub covered: Covered,
    /// When `kubectl rollout status` would have returned.
    pub completed: Option<Timestamp>,
    /// A later one began before it was complete.
    pub superseded: bool,
    /// When the last old pod was gone.
    pub last_old_pod_gone: Option<Timestamp>,
    /// Failures by class.
    pub failures: ByClass,
    /// Failures begun after completion.
    pub after: u64,
    /// Failures by side, `old` or `new`.
    pub sides: BTreeMap<String, u64>,
    /// Failures by client workload.
    pub clients: BTreeMap<String, u64>,
    /// The workload.
    pub workload: Option<Shape>,
    /// Its Services.
    pub services: Vec<ServiceShape>,
    /// Attempts to its Services.
    pub attempts: u64,
    /// First failure's begin.
    pub first_failure: Option<Timestamp>,
    /// Last failure's begin.
    pub last_failure: Option<Timestamp>,
    /// Pods that left.
    pub convergence: Vec<Leaving>,
    /// Stale conntrack entries, from agents that look for them.
    pub stale: Option<Stale>,
    /// The counts are lower bounds.
    pub lower_bound: bool,
}

impl Figures {
    /// All failures.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// The longest convergence of its pods here, in seconds.
    pub fn convergence_seconds(&self) -> Option<f64> {
        self.convergence.iter().filter_map(|pod| pod.seconds).reduce(f64::max)
    }
}

/// The node's conntrack table, from agents that look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConntrackTable {
    /// Entries now.
    pub entries: u64,
    /// `nf_conntrack_max`; 0: unknown.
    pub limit: u64,
    /// Packets dropped for want of room, since the node's agent started.
    pub drops: u64,
    /// Entries that could not be inserted since then: two packets chose the same tuple, or no port was free.
    pub insert_failed: u64,
}

/// One node's part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodePart {
    /// Node.
    pub node: String,
    /// Its figures of the rollout; `None`: its agent did not observe it.
    pub figures: Option<Figures>,
    /// Kernel events and the like that its agent lost since it started.
    pub lost: u64,
    /// Its conntrack table.
    pub conntrack: Option<ConntrackTable>,
}

/// An agent that gave no answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Missing {
    /// The agent: a pod's name, or a URL.
    pub agent: String,
    /// The node that it covers, if that is known.
    pub node: Option<String>,
    /// Why there is no answer.
    pub why: String,
}

impl Missing {
    /// What it would have covered.
    pub fn covers(&self) -> &str {
        self.node.as_deref().unwrap_or(&self.agent)
    }
}

/// Failures of the workload that no rollout caused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotOfRollouts {
    /// Cause, as `bad_backend`.
    pub cause: String,
    /// How many.
    pub count: u64,
    /// Pods that failed, with how often each.
    pub pods: BTreeMap<String, u64>,
}

/// One rollout as all nodes together know it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Case {
    /// Namespace.
    pub namespace: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// From.
    pub from: Option<Revision>,
    /// To.
    pub to: Revision,
    /// The earliest that a node observed it.
    pub started: Timestamp,
    /// Complete: the earliest that a node saw it.
    pub completed: Option<Timestamp>,
    /// A later one began before it was complete.
    pub superseded: bool,
    /// Last old pod gone: the earliest that a node knew it.
    pub last_old_pod_gone: Option<Timestamp>,
    /// The workload.
    pub workload: Option<Shape>,
    /// Its Services.
    pub services: Vec<ServiceShape>,
    /// The nodes that answered.
    pub nodes: Vec<NodePart>,
    /// The agents that did not.
    pub missing: Vec<Missing>,
    /// Version of the API server, as `v1.33.1`.
    pub kubernetes: Option<String>,
    /// Failures of the workload, about that time, that no rollout caused.
    pub others: Vec<NotOfRollouts>,
}

impl Case {
    /// Every node's figures, with its name.
    pub fn figures(&self) -> impl Iterator<Item = (&str, &Figures)> {
        self.nodes.iter().filter_map(|part| Some((&*part.node, part.figures.as_ref()?)))
    }

    /// Failures by class, all nodes together.
    pub fn failures(&self) -> ByClass {
        let mut all = ByClass::new();
        for (_, figures) in self.figures() {
            for (class, count) in &figures.failures {
                *all.entry(class.clone()).or_default() += count;
            }
        }
        all
    }

    /// Failures of one class; 0 for one that no agent knows yet.
    pub fn count(&self, class: &str) -> u64 {
        self.figures().filter_map(|(_, figures)| figures.failures.get(class)).sum()
    }

    /// Failures of one side, `old` or `new`.
    pub fn side(&self, side: &str) -> u64 {
        self.figures().filter_map(|(_, figures)| figures.sides.get(side)).sum()
    }

    /// All failures.
    pub fn failed(&self) -> u64 {
        self.figures().map(|(_, figures)| figures.failed()).sum()
    }

    /// Failures begun after completion.
    pub fn after(&self) -> u64 {
        self.figures().map(|(_, figures)| figures.after).sum()
    }

    /// Attempts to its Services.
    pub fn attempts(&self) -> u64 {
        self.figures().map(|(_, figures)| figures.attempts).sum()
    }

    /// Whether any count is a lower bound, or an agent is missing.
    pub fn is_lower_bound(&self) -> bool {
        !self.missing.is_empty() || self.figures().any(|(_, figures)| figures.lower_bound)
    }

    /// Failures by client workload, most first.
    pub fn clients(&self) -> Vec<(String, u64)> {
        let mut all: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, figures) in self.figures() {
            for (client, count) in &figures.clients {
                *all.entry(client).or_default() += count;
            }
        }
        let mut all: Vec<_> = all.into_iter().map(|(name, count)| (name.into(), count)).collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all
    }

    /// The node with the most failures.
    pub fn worst_node(&self) -> Option<(&str, u64)> {
        let failed = self.figures().map(|(node, figures)| (node, figures.failed()));
        failed.filter(|(_, count)| *count > 0).max_by_key(|(_, count)| *count)
    }

    /// First and last failure's begin.
    pub fn failed_between(&self) -> Option<(Timestamp, Timestamp)> {
        let first = self.figures().filter_map(|(_, figures)| figures.first_failure).min()?;
        let last = self.figures().filter_map(|(_, figures)| figures.last_failure).max()?;
        Some((first, last))
    }

    /// Stale entries of all nodes, and when the last expires.
    pub fn stale(&self) -> Option<Stale> {
        let known: Vec<&Stale> =
            self.figures().filter_map(|(_, figures)| figures.stale.as_ref()).collect();
        let entries = known.iter().map(|stale| stale.entries).sum();
        let expires = known.iter().filter_map(|stale| stale.expires).max();
        let endpoints = known.iter().flat_map(|stale| stale.endpoints.clone()).collect();
        (!known.is_empty()).then_some(Stale { entries, expires, endpoints })
    }

    /// The pods that left, what all nodes know of each put together.
    pub fn pods(&self) -> Vec<Pod> {
        let mut pods: Vec<Pod> = Vec::new();
        for (node, figures) in self.figures() {
            for seen in &figures.convergence {
                let known = pods.iter_mut().position(|pod| pod.name == seen.pod);
                let at = known.unwrap_or_else(|| {
                    pods.push(Pod { name: seen.pod.clone(), ..Pod::default() });
                    pods.len() - 1
                });
                pods[at].add(node, seen);
            }
        }
        pods.sort_by(|one, other| (one.deleted, &one.name).cmp(&(other.deleted, &other.name)));
        pods
    }

    /// The port that its endpoints serve.
    pub fn port(&self) -> Option<u16> {
        let mut left = self.figures().flat_map(|(_, figures)| &figures.convergence);
        left.find_map(|seen| seen.endpoint).map(|endpoint| endpoint.port)
    }

    /// The template of the pods that leave by it.
    pub fn old_template(&self) -> Option<&TemplateFacts> {
        self.from.as_ref()?.template.as_ref()
    }

    /// The template of the pods that arrive by it: what the next rollout starts from.
    pub fn new_template(&self) -> Option<&TemplateFacts> {
        self.to.template.as_ref()
    }
}

/// A pod that left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Name.
    pub name: String,
    /// Deletion: the earliest that a node knew.
    pub deleted: Option<Timestamp>,
    /// How much later the deletion may have been, in seconds.
    pub precision: f64,
    /// The longest that a node sent fresh connections after the deletion, and which.
    pub converged: Option<(f64, String)>,
    /// How long after the deletion the last node was told of it, and which that is.
    pub told: Option<(f64, String)>,
    /// Fresh SYNs after the deletion, all nodes.
    pub fresh_syns: u64,
    /// Deletion → first refused SYN.
    pub listener_gap: Option<f64>,
    /// Deletion → gone.
    pub gone: Option<f64>,
    /// Exit codes by container.
    pub exit_codes: BTreeMap<String, i32>,
}

impl Pod {
    fn add(&mut self, node: &str, seen: &Leaving) {
        let earliest = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        // The API's time is the same for all; the best bound of it is the best that any node has.
        self.precision = match self.deleted {
            None => seen.precision_seconds,
            Some(_) => self.precision.min(seen.precision_seconds),
        };
        self.deleted = self.deleted.into_iter().chain(seen.deleted).min();
        for (longest, seconds) in
            [(&mut self.converged, seen.seconds), (&mut self.told, seen.control_plane_lag_seconds)]
        {
            if let Some(seconds) = seconds
                && longest.as_ref().is_none_or(|(known, _)| *known < seconds)
            {
                *longest = Some((seconds, node.to_owned()));
            }
        }
        self.fresh_syns += seen.fresh_syns_after;
        self.listener_gap = earliest(self.listener_gap, seen.listener_gap_seconds);
        self.gone = earliest(self.gone, seen.gone_seconds);
        for (container, code) in &seen.exit_codes {
            self.exit_codes.insert(container.clone(), *code);
        }
    }

    /// Whether a container of it was killed (128 + SIGKILL).
    pub fn was_killed(&self) -> bool {
        self.exit_codes.values().any(|code| *code == 137)
    }
}
