//! What the agent says at the end.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::world::SERVICE;
use crate::agent::{Agent, LOOK_AGAIN, PATIENCE};

/// What the agent says at the end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Told {
    /// Attempts to the Service, by its metrics.
    pub attempts: u64,
    /// Attempts to the Service, by the kernel's counters.
    pub counted: Counted,
    /// Failures by class, by its metrics.
    pub failures: BTreeMap<String, u64>,
    /// Failures that its rollouts took, over all of them.
    pub of_rollouts: u64,
    /// What was lost, by reason.
    pub losses: BTreeMap<String, u64>,
    /// Whether its status says that counts are lower bounds.
    pub lower_bound: bool,
    /// Gaps that its status lists.
    pub gaps: usize,
    /// Whether each rollout says that its counts are lower bounds.
    pub rollouts_lower_bound: Vec<bool>,
    /// Most memory it had, in MiB.
    pub peak_mib: f64,
}

/// The kernel's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// SYNs of a new ISN.
    pub attempts: u64,
    /// Of these, answered.
    pub answered: u64,
    /// Of these, refused.
    pub refused: u64,
}

impl Told {
    /// Waits until nothing is pending or undecided, and asks for everything.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn of(agent: &Agent, record: &Path) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        // A sweep and a tick of the engine: counts that are still on their way arrive.
        thread::sleep(Duration::from_secs(2));
        let mut status = agent.json("/api/v1/status")?;
        while status["pending_attempts"] != 0 || status["undecided_failures"] != 0 {
            if Instant::now() > deadline {
                bail!("the agent is undecided after {PATIENCE:?}: {status}");
            }
            thread::sleep(LOOK_AGAIN);
            status = agent.json("/api/v1/status")?;
        }
        let rollouts = agent.json("/api/v1/rollouts")?;
        let rollouts = rollouts["rollouts"].as_array().cloned().unwrap_or_default();
        let (_, metrics) = agent.get(9465, "/metrics")?;
        let mut told = Self {
            lower_bound: status["lower_bound"] == true,
            gaps: status["coverage"]["gaps"].as_array().map_or(0, Vec::len),
            rollouts_lower_bound: rollouts
                .iter()
                .map(|rollout| rollout["lower_bound"] == true)
                .collect(),
            ..Self::default()
        };
        for (reason, count) in status["losses"].as_object().into_iter().flatten() {
            told.losses.insert(reason.clone(), count.as_u64().unwrap_or(0));
        }
        for rollout in &rollouts {
            let failures = rollout["failures"].as_object().into_iter().flatten();
            told.of_rollouts += failures.filter_map(|(_, count)| count.as_u64()).sum::<u64>();
        }
        for line in metrics.lines() {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<u64>() else { continue };
            if series.starts_with("rollrace_connection_attempts_total{") {
                told.attempts += value;
            } else if series.starts_with("rollrace_connection_failures_total{") && value > 0 {
                let class = series.split("class=\"").nth(1).and_then(|rest| rest.split('"').next());
                *told.failures.entry(class.unwrap_or_default().to_owned()).or_default() += value;
            }
        }
        told.counted = counted(record)?;
        told.peak_mib = agent.memory()?.peak_mib;
        Ok(told)
    }
}

/// The kernel's last counts for the Service, which only the recording has in full.
fn counted(path: &Path) -> Result<Counted> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let service = SERVICE.to_string();
    let mut last = Counted::default();
    for line in BufReader::new(file).lines() {
        let line = line.context("read the recording")?;
        if !line.contains(r#""input":"attempts""#) || !line.contains(&service) {
            continue;
        }
        let record: Value = serde_json::from_str(&line).context("a line of the recording")?;
        last =
            serde_json::from_value(record["content"].clone()).context("counts in the recording")?;
    }
    Ok(last)
}
