//! A soak's result: a line for each kind of traffic.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{ContentArrangement, Table, presets};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::cluster::SoakClient;
use super::kind::Kind;
use super::truth::Counts;
use crate::agent::AgentReport;
use crate::compare::{Comparison, Judge, Reported, Truth, add, compare, is_compared};
use crate::run::counts_text;

/// One kind of traffic.
#[derive(Debug, Default, Serialize)]
struct Row {
    #[serde(flatten)]
    counts: Counts,
    /// The clients' failures by class.
    client: BTreeMap<String, u64>,
    /// The agents' failures by class.
    agent: BTreeMap<String, u64>,
    /// Connections that their endpoints ended, of which the wire cannot tell whether anything was lost.
    closed: u64,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct SoakResult {
    seconds: u64,
    /// When the rollout began.
    rollout: Timestamp,
    /// Failures that the agents reported of connections before that.
    reported_before: u64,
    traffic: BTreeMap<String, Row>,
    #[serde(flatten)]
    comparison: Comparison,
    /// What makes the result doubtful, in words.
    doubts: Vec<String>,
}

/// A failure must be of the Service that was dialled, and what no pod ever listened on was broken by no
/// rollout.
struct Expected;

impl Judge for Expected {
    fn objections(&self, truth: &Truth, reported: &Reported) -> Vec<String> {
        let mut why = Vec::new();
        let kind = kind_of(&truth.client);
        let service = reported.failure.service.as_deref().unwrap_or_default();
        if service != kind {
            why.push(format!("service is {service:?}, should be {kind}"));
        }
        let cause = reported.failure.cause.as_deref().unwrap_or_default();
        if kind == Kind::ClosedPort.name() && cause == "rollout" {
            why.push("no rollout closed this port: it never was open".to_owned());
        }
        why
    }
}

/// The kind in a client's full name.
fn kind_of(client: &str) -> &str {
    client.split_once('/').map_or(client, |(_, kind)| kind)
}

impl SoakResult {
    pub(super) fn new(
        seconds: u64,
        rollout: Timestamp,
        clients: &[SoakClient],
        agents: &[AgentReport],
        mut doubts: Vec<String>,
    ) -> Result<Self> {
        let mut traffic: BTreeMap<String, Row> = BTreeMap::new();
        let mut truth = Vec::new();
        for kind in Kind::all() {
            let row = traffic.entry(kind.name()).or_default();
            for client in clients {
                let (counts, failures) = client.read(*kind)?;
                row.counts = [row.counts, counts].into_iter().sum();
                for failure in failures {
                    add(&mut row.client, failure.class.name());
                    if !is_compared(failure.class) {
                        doubts.push(format!(
                            "{} of {}: {} at {}, which no agent can see",
                            failure.class.name(),
                            kind.name(),
                            failure.error,
                            failure.local
                        ));
                    }
                    truth.push(Truth {
                        client: format!("{}/{}", client.name, kind.name()),
                        node: client.node.clone(),
                        failure,
                    });
                }
            }
            if kind.is_served() && row.counts.exchanges == 0 {
                doubts.push(format!("{} exchanged nothing", kind.name()));
            }
        }
        let mut reported = Vec::new();
        for agent in agents {
            for failure in &agent.failures.failures {
                let service = failure.service.clone().unwrap_or_default();
                add(&mut traffic.entry(service).or_default().agent, &failure.class);
                reported.push(Reported { node: agent.node.clone(), failure: failure.clone() });
            }
            for closed in &agent.status.closed_by_service {
                traffic.entry(closed.service.clone()).or_default().closed += closed.connections;
            }
            if !agent.status.coverage.gaps.is_empty() {
                doubts.push(format!("the agent of {} has gaps", agent.node));
            }
        }
        let before = reported.iter().filter(|one| one.failure.first_syn < rollout).count();
        Ok(Self {
            seconds,
            rollout,
            reported_before: u64::try_from(before)?,
            traffic,
            comparison: compare(&truth, &reported, &Expected),
            doubts,
        })
    }

    /// Nothing was reported but the real failures, and all of them.
    pub fn agrees(&self) -> bool {
        self.comparison.agrees() && self.doubts.is_empty()
    }

    /// The JSON object in one line.
    pub fn json_line(&self) -> Result<String> {
        let mut value = serde_json::to_value(self).context("encode the result")?;
        value["agrees"] = json!(self.agrees());
        Ok(value.to_string())
    }

    /// Writes the result and each difference to the out directory.
    pub fn write(&self, out: &Path) -> Result<()> {
        let differences = self.comparison.differences.iter();
        let lines: Vec<String> =
            differences.map(|difference| Value::to_string(&json!(difference)) + "\n").collect();
        for (name, text) in
            [("result.json", self.json_line()?), ("differences.jsonl", lines.concat())]
        {
            let path = out.join(name);
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }

    /// The result for people.
    pub fn text(&self, out: &Path) -> String {
        let mut table = Table::new();
        table
            .load_style(presets::UTF8_FULL)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_header([
                "traffic",
                "connections",
                "exchanges",
                "failed by the client",
                "failed by the agent",
                "doubtful",
            ]);
        for (kind, row) in &self.traffic {
            let Counts { connections, exchanges, .. } = row.counts;
            table.add_row([
                kind.clone(),
                connections.to_string(),
                exchanges.to_string(),
                counts_text(&row.client),
                counts_text(&row.agent),
                row.closed.to_string(),
            ]);
        }
        let Comparison { missed, extra, misattributed, doubles, .. } = &self.comparison;
        let mut text = format!(
            "{table}\n{} s without a rollout, then an orderly one: missed {}, extra {}, misattributed \
             {misattributed}, reported twice {doubles}\n",
            self.seconds,
            counts_text(missed),
            counts_text(extra),
        );
        text.extend(self.doubts.iter().map(|doubt| format!("  doubtful: {doubt}\n")));
        let verdict =
            if self.agrees() { "nothing but the real ones" } else { "NOT as it should be" };
        text + &format!("  {verdict}; details: {}\n", out.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_is_in_the_clients_name() {
        assert_eq!(kind_of("client-host/closed-port"), Kind::ClosedPort.name());
    }
}
