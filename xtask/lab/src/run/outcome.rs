//! A run's result: the JSON object of the last line, and the same for people.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Findings;
use super::workload::RolloutTruth;
use crate::agent::AgentReport;
use crate::compare::attribution::{Expectation, PodTruth};
use crate::compare::convergence::{
    FreshSyns, NodeConvergence, OldEndpoint, Quantiles, on_node, quantiles,
};
use crate::compare::{Comparison, Difference, Reported, compare};
use crate::journal::{Entry, Event};

/// A request counts as "after the rollout" when it began this long after completion.
const AFTER_ROLLOUT_SECONDS: i64 = 5;

/// The result of a run.
#[derive(Debug, Serialize)]
pub struct RunResult {
    setup: &'static str,
    mode: &'static str,
    proxy: &'static str,
    requests: u64,
    failed: u64,
    #[serde(flatten)]
    comparison: Comparison,
    after_rollout: u64,
    rollout: Value,
    convergence_ms: Quantiles,
    true_convergence_ms: Quantiles,
    convergence: Vec<NodeConvergence>,
    /// From the client's own error to the agent's decision.
    decision_delay_ms: Quantiles,
    per_node: BTreeMap<String, Value>,
    clients: BTreeMap<String, Value>,
    /// What makes the result doubtful, in words.
    doubts: Vec<String>,
    #[serde(skip)]
    removals: Value,
}

/// The part of a result's JSON that a caller of `run --json` reads.
#[derive(Debug, Deserialize)]
pub struct Summary {
    /// Requests of all clients.
    pub requests: u64,
    /// The clients' failures of the compared classes.
    pub truth: BTreeMap<String, u64>,
    /// The agents' failures of the compared classes.
    pub agent: BTreeMap<String, u64>,
    /// Client failures that no agent reported.
    pub missed: BTreeMap<String, u64>,
    /// Reports without a client failure.
    pub extra: BTreeMap<String, u64>,
    /// Failures blamed on something else.
    pub misattributed: u64,
    /// Connections reported more than once.
    pub doubles: u64,
    /// Failures that are not compared.
    pub not_compared: BTreeMap<String, u64>,
    /// The rollout.
    pub rollout: Value,
    /// Measured convergence.
    pub convergence_ms: Quantiles,
    /// True convergence.
    pub true_convergence_ms: Quantiles,
}

impl RunResult {
    pub(super) fn new(findings: Findings<'_>) -> Result<Self> {
        let entries = findings.cluster.journal.entries()?;
        let removals = findings.cluster.api.removals();
        let rollout = &findings.rollout;
        let expected = expectation(rollout, &entries, &removals, &findings.agents);
        let reported: Vec<Reported> = findings
            .agents
            .iter()
            .flat_map(|agent| {
                agent
                    .failures
                    .failures
                    .iter()
                    .map(|f| Reported { node: agent.node.clone(), failure: f.clone() })
            })
            .collect();
        let mut comparison = compare(&findings.clients.truth, &reported, &expected);
        if findings.args.no_agent {
            // There is no second side: the truth stands alone.
            comparison.missed.clear();
            comparison.differences.clear();
        }
        let mut fresh_syns = FreshSyns::new();
        for listener in &findings.listeners {
            listener.collect(&mut fresh_syns)?;
        }
        let convergence = convergence(&findings, &expected, &entries, &removals, &fresh_syns);
        let after = rollout.completed.as_second() + AFTER_ROLLOUT_SECONDS;
        let after = Timestamp::new(after, rollout.completed.subsec_nanosecond())
            .context("the end of the rollout")?;
        let truth = &findings.clients.truth;
        let began_after =
            truth.iter().filter(|t| i128::from(t.failure.start) > after.as_nanosecond()).count();
        let summaries = findings.clients.summaries.values();
        Ok(Self {
            setup: findings.args.setup.name(),
            mode: findings.args.mode.name(),
            proxy: findings.args.proxy.name(),
            requests: summaries.clone().map(|s| s.requests).sum(),
            failed: summaries.map(|s| s.failed).sum(),
            decision_delay_ms: quantiles(comparison.decision_delays.iter().copied()),
            comparison,
            after_rollout: u64::try_from(began_after).unwrap_or(u64::MAX),
            rollout: rollout_json(rollout, &findings.agents)?,
            convergence_ms: quantiles(convergence.iter().filter_map(|c| c.measured_ms)),
            true_convergence_ms: quantiles(convergence.iter().filter_map(|c| c.true_ms)),
            convergence,
            per_node: findings.agents.iter().map(|a| (a.node.clone(), node_json(a))).collect(),
            clients: findings
                .clients
                .summaries
                .iter()
                .map(|(name, summary)| (name.clone(), json!(summary)))
                .collect(),
            doubts: findings.unsettled,
            removals: json!(removals),
        })
    }

    /// Both sides say the same, and nothing makes the result doubtful.
    pub fn agrees(&self) -> bool {
        self.comparison.agrees() && self.doubts.is_empty()
    }

    /// The JSON object in one line.
    pub fn json_line(&self) -> Result<String> {
        serde_json::to_string(self).context("encode the result")
    }

    /// Writes the result, the removals and each difference to the out directory.
    pub fn write(&self, out: &Path) -> Result<()> {
        let mut differences = String::new();
        for difference in &self.comparison.differences {
            differences += &serde_json::to_string(difference).context("encode a difference")?;
            differences.push('\n');
        }
        for (name, text) in [
            ("result.json", serde_json::to_string_pretty(self).context("encode the result")?),
            ("removals.json", serde_json::to_string_pretty(&self.removals)?),
            ("differences.jsonl", differences),
        ] {
            let path = out.join(name);
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }

    /// The result for people.
    pub fn text(&self, out: &Path) -> String {
        let comparison = &self.comparison;
        let mut text = format!(
            "setup {}, mode {}, proxy {}: {} requests, {} failed ({} began over 5 s after the rollout)\n",
            self.setup, self.mode, self.proxy, self.requests, self.failed, self.after_rollout
        );
        for (what, counts) in [
            ("clients saw", &comparison.truth),
            ("agents reported", &comparison.agent),
            ("missed", &comparison.missed),
            ("extra", &comparison.extra),
            ("not compared", &comparison.not_compared),
        ] {
            line(&mut text, format_args!("  {what:<16} {}", counts_text(counts)));
        }
        line(
            &mut text,
            format_args!(
                "  misattributed {}, reported twice {}",
                comparison.misattributed, comparison.doubles
            ),
        );
        for (what, found) in
            [("measured", &self.convergence_ms), ("true", &self.true_convergence_ms)]
        {
            let figure = |value: Option<f64>| {
                value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0} ms"))
            };
            line(
                &mut text,
                format_args!(
                    "  convergence, {what:<8} p50 {}, p99 {}, max {} ({} samples)",
                    figure(found.p50),
                    figure(found.p99),
                    figure(found.max),
                    found.samples
                ),
            );
        }
        for doubt in &self.doubts {
            line(&mut text, format_args!("  {doubt}"));
        }
        if !comparison.differences.is_empty() {
            line(
                &mut text,
                format_args!("  the differences: {}", out.join("differences.jsonl").display()),
            );
            for difference in comparison.differences.iter().take(3) {
                line(&mut text, format_args!("  - {}", in_words(difference)));
            }
        }
        line(&mut text, format_args!("  everything: {}", out.display()));
        text
    }
}

fn expectation(
    rollout: &RolloutTruth,
    entries: &[Entry],
    removals: &[crate::api::Removal],
    agents: &[AgentReport],
) -> Expectation {
    let prefix = format!("{}/{}-", rollout.namespace, rollout.name);
    let mut pods: BTreeMap<IpAddr, PodTruth> = BTreeMap::new();
    for entry in entries {
        let Event::PodStarted { pod, uid, address, .. } = &entry.event else {
            continue;
        };
        // `<namespace>/<deployment>-<hash>-<suffix>`
        let hash = pod.strip_prefix(&prefix).and_then(|rest| rest.split_once('-'));
        let (Some((hash, _)), Ok(address)) = (hash, address.parse()) else {
            continue;
        };
        let name = pod.split_once('/').map_or(pod.as_str(), |(_, name)| name);
        pods.insert(
            address,
            PodTruth {
                name: name.to_owned(),
                hash: hash.to_owned(),
                removed_by: removals.iter().find(|r| r.uid == *uid).map(|r| r.user.clone()),
            },
        );
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

fn convergence(
    findings: &Findings<'_>,
    expected: &Expectation,
    entries: &[Entry],
    removals: &[crate::api::Removal],
    fresh_syns: &FreshSyns,
) -> Vec<NodeConvergence> {
    let mut found = Vec::new();
    for (address, pod) in expected.pods.iter().filter(|(_, pod)| pod.hash != expected.hash) {
        let removal =
            removals.iter().find(|r| r.pod == pod.name && r.namespace == expected.namespace);
        // The port comes with the proxies' rules.
        let endpoint = entries.iter().find_map(|entry| match &entry.event {
            Event::RuleAdded { backend, .. } if backend.ip() == *address => Some(*backend),
            _ => None,
        });
        let (Some(removal), Some(endpoint)) = (removal, endpoint) else {
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
                .find(|measured| measured.endpoint.socket() == endpoint)
                .and_then(|measured| measured.seconds);
            found.push(on_node(node, &old, gone, measured, fresh_syns));
        }
    }
    found
}

fn rollout_json(rollout: &RolloutTruth, agents: &[AgentReport]) -> Result<Value> {
    let mut value = serde_json::to_value(rollout).context("encode the rollout")?;
    let reported: Vec<Value> = agents
        .iter()
        .flat_map(|agent| {
            agent.rollouts.rollouts.iter().map(|r| {
                json!({
                    "node": agent.node, "id": r.id, "namespace": r.namespace, "kind": r.kind,
                    "name": r.name, "to": r.to, "started": r.started, "completed": r.completed,
                })
            })
        })
        .collect();
    value["reported"] = json!(reported);
    Ok(value)
}

fn node_json(agent: &AgentReport) -> Value {
    let mut by_class = BTreeMap::new();
    for failure in &agent.failures.failures {
        crate::compare::add(&mut by_class, &failure.class);
    }
    json!({
        "failures": by_class,
        "losses": agent.status.losses,
        "usage_at_ready": agent.usage_at_ready,
        "usage_at_end": agent.usage_at_end,
    })
}

fn in_words(difference: &Difference) -> String {
    match difference {
        Difference::Missed { truth, .. } => format!(
            "missed: {} of {} from {}",
            truth.failure.class.name(),
            truth.client,
            truth.failure.local
        ),
        Difference::Extra { reported, .. } => format!(
            "extra: {} from {} reported by {}",
            reported.failure.class,
            reported.failure.client.socket(),
            reported.node
        ),
        Difference::Misattributed { truth, why, .. } => {
            format!(
                "misattributed: {} from {}: {}",
                truth.failure.class.name(),
                truth.failure.local,
                why.join("; ")
            )
        }
        Difference::Double { first, again } => format!(
            "twice: {} from {}, by {} and {}",
            first.failure.class,
            first.failure.client.socket(),
            first.node,
            again.node
        ),
    }
}

/// Counts by class in words.
pub fn counts_text(counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        return "nothing".to_owned();
    }
    counts.iter().map(|(class, n)| format!("{n} {class}")).collect::<Vec<_>>().join(", ")
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(text, "{arguments}");
}
