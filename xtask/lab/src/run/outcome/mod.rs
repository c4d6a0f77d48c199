//! A run's result: the JSON object of the last line, and the same for people.

mod tail;
mod truth;
mod words;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::tail::{Facts, TailOutcome};
use super::Findings;
use super::control_plane::Spent;
use super::workload::RolloutTruth;
use crate::agent::AgentReport;
use crate::compare::convergence::{FreshSyns, NodeConvergence, Quantiles, quantiles};
use crate::compare::{Comparison, Reported, compare};
use crate::fault::{Observed, objections};
pub use words::{counts_text, not_compared_text};

/// A request counts as "after the rollout" when it began this long after completion.
const AFTER_ROLLOUT_SECONDS: i64 = 5;

/// The result of a run.
#[derive(Debug, Serialize)]
pub struct RunResult {
    setup: &'static str,
    mode: &'static str,
    proxy: &'static str,
    ip_family: &'static str,
    requests: u64,
    failed: u64,
    #[serde(flatten)]
    comparison: Comparison,
    after_rollout: u64,
    #[serde(flatten)]
    tail: TailOutcome,
    rollout: Value,
    convergence_ms: Quantiles,
    true_convergence_ms: Quantiles,
    convergence: Vec<NodeConvergence>,
    /// From the client's error to the count on `/metrics`, the wait for evidence taken off.
    on_time_ms: Quantiles,
    /// From the outcome to the verdict.
    evidence_wait_ms: Quantiles,
    /// Bars that were missed, in words: being on time, convergence, what Prometheus shows, and what
    /// the agents asked the API server for beyond their role.
    bars_missed: Vec<String>,
    per_node: BTreeMap<String, Value>,
    clients: BTreeMap<String, Value>,
    /// What an agent asked of the API server, by phase.
    control_plane: Vec<Spent>,
    /// What makes the result doubtful, in words.
    doubts: Vec<String>,
    /// What the agents said of themselves while a fault lasted.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<Observed>,
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
    /// From the client's error to the count on `/metrics`, the wait for evidence taken off.
    pub on_time_ms: Quantiles,
    /// From the outcome to the verdict.
    pub evidence_wait_ms: Quantiles,
    /// Bars that were missed, in words.
    pub bars_missed: Vec<String>,
    /// What makes the result doubtful, in words.
    pub doubts: Vec<String>,
}

impl RunResult {
    pub(super) fn new(findings: Findings<'_>) -> Result<Self> {
        let entries = findings.cluster.journal.entries()?;
        let removals = findings.cluster.api.removals();
        let rollout = &findings.rollout;
        let expected = truth::expectation(rollout, &entries, &removals, &findings.agents);
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
        let convergence =
            truth::convergence(&findings, &expected, &entries, &removals, &fresh_syns);
        let after = rollout.completed.as_second() + AFTER_ROLLOUT_SECONDS;
        let after = Timestamp::new(after, rollout.completed.subsec_nanosecond())
            .context("the end of the rollout")?;
        let timeliness = truth::timeliness(&findings.agents, &comparison);
        let (on_time_ms, evidence_wait_ms) = timeliness.quantiles();
        let mut bars_missed = timeliness.late;
        bars_missed.extend(findings.objections.iter().cloned());
        bars_missed.extend(findings.cluster.api.overstepped());
        if !findings.args.no_agent {
            // Where the history was forgotten, a deletion in it may never be known.
            let forgotten = findings.fault.as_ref().is_some_and(Observed::loses_history);
            let measured = convergence.iter().filter(|c| c.measured_ms.is_some() || !forgotten);
            bars_missed.extend(measured.filter_map(NodeConvergence::objection));
            if findings.fault.is_none() {
                let delay = Duration::from_millis(findings.args.agent_watch_delay);
                let lag = |known: &NodeConvergence| known.lag_objection(delay.as_secs_f64() * 1e3);
                bars_missed.extend(convergence.iter().filter_map(lag));
            }
        }
        if let Some(observed) = &findings.fault {
            bars_missed.extend(objections(observed, &findings.agents));
        }
        let tail = TailOutcome::of(&Facts {
            tail: findings.tail.as_ref(),
            removed: &truth::removed_backends(&expected, &entries, &removals),
            rollout: (rollout.started, rollout.completed),
            old_pods_gone: truth::old_pods_gone(&expected, &entries),
            comparison: &comparison,
            begun: &truth::begun(&comparison)?,
        });
        if findings.tail.is_some() {
            bars_missed.extend(tail.objections(findings.args.evict_stale == "on"));
        }
        let shown = |class: &&String| comparison.agent.contains_key(*class);
        let not_shown = findings.args.must_show.iter().filter(|class| !shown(class));
        let mut doubts = findings.unsettled;
        doubts.extend(
            not_shown.map(|class| format!("no {class} was reported: it showed nothing of that")),
        );
        let truth = &findings.clients.truth;
        let began_after =
            truth.iter().filter(|t| i128::from(t.failure.start) > after.as_nanosecond()).count();
        let summaries = findings.clients.summaries.values();
        Ok(Self {
            setup: findings.args.setup.name(),
            mode: findings.args.mode.name(),
            proxy: findings.args.proxy.name(),
            ip_family: findings.args.ip_family.name(),
            requests: summaries.clone().map(|s| s.requests).sum(),
            failed: summaries.map(|s| s.failed).sum(),
            on_time_ms,
            evidence_wait_ms,
            bars_missed,
            tail,
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
            control_plane: findings.control_plane,
            doubts,
            fault: findings.fault,
            removals: json!(removals),
        })
    }

    /// Both sides say the same, every bar is met, and nothing makes the result doubtful.
    pub fn agrees(&self) -> bool {
        self.comparison.agrees() && self.bars_missed.is_empty() && self.doubts.is_empty()
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
