//! A scenario's result: the JSON object of the last line, and the same for people.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Value, json};

use super::catalogue::Scenario;
use super::gap::{Excused, Gap};
use super::truth::Ledger;
use crate::agent::AgentReport;
use crate::compare::{Comparison, Difference, Reported, add, compare};
use crate::run::clients::Clients;
use crate::run::counts_text;

/// The result of a scenario.
#[derive(Debug, Serialize)]
pub struct ScenarioResult {
    scenario: &'static str,
    requests: u64,
    failed: u64,
    #[serde(flatten)]
    comparison: Comparison,
    /// The causes that the lab's log shows, by failure; `or` where it allows several.
    expected: BTreeMap<String, u64>,
    /// The causes that the agents gave.
    reported: BTreeMap<String, u64>,
    /// What fell into an agent's absence.
    #[serde(skip_serializing_if = "Option::is_none")]
    excused: Option<Excused>,
    /// What makes the result doubtful, in words.
    doubts: Vec<String>,
    #[serde(skip)]
    judged: Vec<Value>,
    #[serde(skip)]
    log: Value,
}

impl ScenarioResult {
    pub(super) fn new(
        scenario: Scenario,
        clients: &Clients,
        agents: &[AgentReport],
        ledger: &Ledger,
        mut doubts: Vec<String>,
        gap: Option<&Gap>,
    ) -> Self {
        let mut reported: Vec<Reported> = agents
            .iter()
            .flat_map(|agent| {
                let node = &agent.node;
                agent
                    .failures
                    .failures
                    .iter()
                    .map(|failure| Reported { node: node.clone(), failure: failure.clone() })
            })
            .collect();
        if let Some(gap) = gap {
            let node = &gap.node;
            reported.extend(
                gap.decided
                    .iter()
                    .map(|failure| Reported { node: node.clone(), failure: failure.clone() }),
            );
        }
        let mut comparison = compare(&clients.truth, &reported, ledger);
        let excused = gap.map(|gap| gap.excuse(&mut comparison, &mut doubts));
        if comparison.truth.is_empty() {
            doubts.push("no client failed: the scenario showed nothing".to_owned());
        }
        let (mut expected, mut causes) = (BTreeMap::new(), BTreeMap::new());
        let mut judged = Vec::new();
        for (truth, reported) in &comparison.matched {
            let verdict = ledger.judge(truth);
            let texts: Vec<String> =
                verdict.expected.iter().map(super::truth::Expected::text).collect();
            add(&mut expected, &texts.join(" or "));
            let failure = &reported.failure;
            let side = failure.side.as_ref().map(|side| format!(" ({side})")).unwrap_or_default();
            add(&mut causes, &format!("{}{side}", failure.cause.as_deref().unwrap_or("none")));
            judged.push(json!({"truth": truth, "verdict": verdict, "reported": reported}));
        }
        let summaries = clients.summaries.values();
        Self {
            scenario: scenario.name(),
            requests: summaries.clone().map(|summary| summary.requests).sum(),
            failed: summaries.map(|summary| summary.failed).sum(),
            comparison,
            expected,
            reported: causes,
            excused,
            doubts,
            judged,
            log: json!({
                "actions": ledger.actions,
                "removals": ledger.removals,
                "pods": ledger.pods,
            }),
        }
    }

    /// Everything was found and blamed as the lab's log says, and nothing is doubtful.
    pub fn agrees(&self) -> bool {
        self.comparison.agrees() && self.doubts.is_empty()
    }

    /// The JSON object in one line.
    pub fn json_line(&self) -> Result<String> {
        let mut value = serde_json::to_value(self).context("encode the result")?;
        value["agrees"] = json!(self.agrees());
        Ok(value.to_string())
    }

    /// Writes the result, each verdict, each difference and the lab's log to the out directory.
    pub fn write(&self, out: &Path) -> Result<()> {
        let differences: Vec<Value> =
            self.comparison.differences.iter().map(|difference| json!(difference)).collect();
        for (name, text) in [
            ("result.json", self.json_line()?),
            ("log.json", serde_json::to_string_pretty(&self.log)?),
            ("judged.jsonl", lines(&self.judged)),
            ("differences.jsonl", lines(&differences)),
        ] {
            let path = out.join(name);
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }

    /// The result for people.
    pub fn text(&self, out: &Path) -> String {
        let comparison = &self.comparison;
        let mut lines = vec![format!(
            "scenario {}: {} requests, {} failed",
            self.scenario, self.requests, self.failed
        )];
        for (what, counts) in [
            ("clients saw", &comparison.truth),
            ("agents reported", &comparison.agent),
            ("missed", &comparison.missed),
            ("extra", &comparison.extra),
            ("not compared", &comparison.not_compared),
            ("causes by log", &self.expected),
            ("causes reported", &self.reported),
        ] {
            lines.push(format!("  {what:<16} {}", counts_text(counts)));
        }
        lines.push(format!(
            "  misattributed {}, reported twice {}",
            comparison.misattributed, comparison.doubles
        ));
        if let Some(Excused { gap_ms, undecided, unseen, seen_late }) = &self.excused {
            lines.push(format!(
                "  no agent for {gap_ms} ms: {undecided} failures not decided before, {unseen} in it; \
                 {seen_late} of them seen late"
            ));
        }
        lines.extend(self.doubts.iter().map(|doubt| format!("  doubtful: {doubt}")));
        lines.extend(self.objections().into_iter().map(|(why, n)| format!("  {n} times: {why}")));
        let verdict = if self.agrees() { "the two sides agree" } else { "the two sides DISAGREE" };
        lines.push(format!("  {verdict}; details: {}", out.display()));
        lines.join("\n") + "\n"
    }

    /// What is wrong with attributions, counted.
    fn objections(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for difference in &self.comparison.differences {
            if let Difference::Misattributed { why, .. } = difference {
                add(&mut counts, &why.join("; "));
            }
        }
        counts
    }
}

fn lines(values: &[Value]) -> String {
    values.iter().flat_map(|value| [value.to_string(), "\n".to_owned()]).collect()
}
