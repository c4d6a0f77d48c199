//! What the run's own records say the agents should have found.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::super::Findings;
use super::super::workload::RolloutTruth;
use crate::agent::AgentReport;
use crate::api::Removal;
use crate::compare::Comparison;
use crate::compare::attribution::{Expectation, PodTruth};
use crate::compare::convergence::{FreshSyns, NodeConvergence, OldEndpoint, on_node};
use crate::compare::timeliness::{Known, Timeliness};
use crate::journal::{Entry, Event};

/// What every failure must be blamed on.
pub fn expectation(
    rollout: &RolloutTruth,
    entries: &[Entry],
    removals: &[Removal],
    agents: &[AgentReport],
) -> Expectation {
    let prefix = format!("{}/{}-", rollout.namespace, rollout.name);
    let mut pods: BTreeMap<IpAddr, PodTruth> = BTreeMap::new();
    for entry in entries {
        let Event::PodStarted { pod, uid, addresses, .. } = &entry.event else {
            continue;
        };
        // `<namespace>/<deployment>-<hash>-<suffix>`
        let hash = pod.strip_prefix(&prefix).and_then(|rest| rest.split_once('-'));
        let Some((hash, _)) = hash else {
            continue;
        };
        let name = pod.split_once('/').map_or(pod.as_str(), |(_, name)| name);
        let truth = PodTruth {
            name: name.to_owned(),
            hash: hash.to_owned(),
            removed_by: removals.iter().find(|r| r.uid == *uid).map(|r| r.user.clone()),
        };
        pods.extend(addresses.iter().map(|address| (*address, truth.clone())));
    }
    let rollouts =
        agents.iter().flat_map(|agent| {
            agent.rollouts.rollouts.iter().map(|r| {
                ((agent.node.clone(), r.id.clone()), r.to.hash.clone().unwrap_or_default())
            })
        });
    Expectation {
        namespace: rollout.namespace.clone(),
        kind: rollout.kind.clone(),
        name: rollout.name.clone(),
        revision: rollout.to.revision.clone(),
        hash: rollout.to.hash.clone(),
        pods,
        rollouts: rollouts.collect(),
    }
}

/// When each old pod was removed, and its backends.
pub fn removed_backends(
    expected: &Expectation,
    entries: &[Entry],
    removals: &[Removal],
) -> Vec<(Timestamp, SocketAddr)> {
    let old = expected.pods.iter().filter(|(_, pod)| pod.hash != expected.hash);
    let removed = old.filter_map(|(address, pod)| {
        let is_it = |r: &&Removal| r.pod == pod.name && r.namespace == expected.namespace;
        let removal = removals.iter().find(is_it)?;
        Some((removal.at, backend(*address, entries)?))
    });
    removed.collect()
}

/// When the last old pod's network was gone.
pub fn old_pods_gone(expected: &Expectation, entries: &[Entry]) -> Option<Timestamp> {
    let is_old = |name: &str| {
        let (_, name) = name.split_once('/').unwrap_or(("", name));
        expected.pods.values().any(|pod| pod.name == name && pod.hash != expected.hash)
    };
    let gone = entries.iter().filter_map(|entry| match &entry.event {
        Event::PodNetworkGone { pod, .. } if is_old(pod) => Some(entry.at),
        _ => None,
    });
    gone.max()
}

/// When the clients' failures of the compared classes began.
pub fn begun(comparison: &Comparison) -> Result<Vec<Timestamp>> {
    let begun = comparison.begun.iter();
    begun
        .map(|at| Timestamp::from_nanosecond((*at).into()).context("the time of a failure"))
        .collect()
}

/// The port comes with the proxies' rules.
fn backend(address: IpAddr, entries: &[Entry]) -> Option<SocketAddr> {
    entries.iter().find_map(|entry| match &entry.event {
        Event::RuleAdded { backend, .. } if backend.ip() == address => Some(*backend),
        _ => None,
    })
}

/// The convergence of each old endpoint on each node.
pub fn convergence(
    findings: &Findings<'_>,
    expected: &Expectation,
    entries: &[Entry],
    removals: &[Removal],
    fresh_syns: &FreshSyns,
) -> Vec<NodeConvergence> {
    let mut found = Vec::new();
    for (address, pod) in expected.pods.iter().filter(|(_, pod)| pod.hash != expected.hash) {
        let removal =
            removals.iter().find(|r| r.pod == pod.name && r.namespace == expected.namespace);
        let (Some(removal), Some(endpoint)) = (removal, backend(*address, entries)) else {
            continue;
        };
        let old = OldEndpoint { pod: pod.name.clone(), endpoint, deleted: removal.at };
        for node in findings.cluster.nodes.iter().map(|node| &node.addresses.name) {
            let gone = entries.iter().find_map(|entry| {
                let gone = Event::RuleGone { node: node.clone(), backend: endpoint };
                (entry.event == gone && entry.at > removal.at).then_some(entry.at)
            });
            let measured = findings
                .agents
                .iter()
                .filter(|agent| agent.node == *node)
                .flat_map(|agent| &agent.rollouts.rollouts)
                .flat_map(|rollout| &rollout.convergence)
                .find(|measured| measured.endpoint.socket() == endpoint);
            found.push(on_node(node, &old, gone, measured, fresh_syns));
        }
    }
    found
}

/// When the failures that both sides know were on `/metrics`.
pub fn timeliness(agents: &[AgentReport], comparison: &Comparison) -> Timeliness {
    let mut found = Timeliness::default();
    for agent in agents {
        // The API tells the latest failures only, in the order in which they were decided.
        let listed = &agent.failures.failures;
        let total = agent.exposures.last().map_or(0, |exposure| exposure.total);
        let left_out = total.saturating_sub(as_count(listed.len()));
        let nth: BTreeMap<_, _> = (left_out + 1..)
            .zip(listed)
            .map(|(nth, failure)| ((failure.client.socket(), failure.first_syn), nth))
            .collect();
        let known: Vec<Known> = comparison
            .matched
            .iter()
            .filter(|(_, reported)| reported.node == agent.node)
            .filter_map(|(truth, reported)| {
                let report = &reported.failure;
                Some(Known {
                    what: format!("{} from {}", report.class, report.client.socket()),
                    nth: *nth.get(&(report.client.socket(), report.first_syn))?,
                    client_error: Timestamp::from_nanosecond(truth.failure.end.into()).ok()?,
                    ended: report.ended?,
                    decided: report.decided?,
                })
            })
            .collect();
        found.add(&agent.node, &known, &agent.exposures);
    }
    found
}

fn as_count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
