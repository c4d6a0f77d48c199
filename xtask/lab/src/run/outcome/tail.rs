//! The tail of a rollout in figures: stale entries and failures over time, by both sides.

use std::net::SocketAddr;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::super::tail::{Sample, Tail, peak};
use crate::compare::Comparison;

/// Seconds after the rollout's start at which the windows of the histogram end.
const WINDOWS: [i64; 4] = [10, 60, 120, 165];
/// The predicted end of the tail is that close to the end of its last entry.
const PREDICTED_WITHIN: f64 = 2.0;
/// With eviction no failure begins later than this after the last old pod is gone.
const EVICTED_WITHIN: f64 = 3.0;

/// Failures that began in one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Seconds after the rollout's start.
    pub from: i64,
    /// Seconds after the rollout's start.
    pub until: i64,
    /// By the clients' own logs.
    pub clients: u64,
    /// By the agents' reports.
    pub agents: u64,
}

/// Stale entries, of all nodes together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleEntries {
    /// The most at a time that the nodes' tables listed; looked at every 5 s.
    pub peak: u64,
    /// The most at a time that the agents said.
    pub agents_peak: u64,
    /// What the nodes' tables listed at the end.
    pub at_end: u64,
    /// What the agents said at the end.
    pub agents_at_end: u64,
}

/// When the last stale entry went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TailEnd {
    /// As the agents last predicted it.
    pub predicted: Option<Timestamp>,
    /// As the kernel told it; nothing while there are some.
    pub destroyed: Option<Timestamp>,
    /// How far the two are apart, in seconds.
    pub apart_seconds: Option<f64>,
}

/// The tail in figures.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TailOutcome {
    /// Stale entries.
    pub stale_entries: StaleEntries,
    /// From completion to the begin of the last failure, in seconds; nothing if none began later.
    pub tail_seconds: Option<f64>,
    /// From the moment when the last old pod was gone to the begin of the last failure, in seconds.
    pub last_failure_after_old_pods_seconds: Option<f64>,
    /// The end of the tail.
    pub tail_end: TailEnd,
    /// Failures by when they began; later ones belong to the last window.
    pub histogram: Vec<Window>,
}

/// What the figures are made from.
pub struct Facts<'a> {
    /// What was seen of the tables, with agents only.
    pub tail: Option<&'a Tail>,
    /// When each old pod was removed: its backend.
    pub removed: &'a [(Timestamp, SocketAddr)],
    /// When the rollout started and was complete.
    pub rollout: (Timestamp, Timestamp),
    /// When the last old pod's network was gone.
    pub old_pods_gone: Option<Timestamp>,
    /// Both sides' failures.
    pub comparison: &'a Comparison,
    /// When each of the clients' failures of the compared classes began.
    pub begun: &'a [Timestamp],
}

impl TailOutcome {
    /// Sums up.
    pub fn of(facts: &Facts<'_>) -> Self {
        let last = facts.begun.iter().max();
        let since = |of: Timestamp| {
            last.map(|last| last.duration_since(of).as_secs_f64()).filter(|seconds| *seconds > 0.0)
        };
        let (started, completed) = facts.rollout;
        Self {
            stale_entries: facts.tail.map(|tail| entries(tail, facts.removed)).unwrap_or_default(),
            tail_seconds: since(completed),
            last_failure_after_old_pods_seconds: facts.old_pods_gone.and_then(since),
            tail_end: facts.tail.map(|tail| end(tail, facts.removed)).unwrap_or_default(),
            histogram: histogram(started, facts),
        }
    }

    /// Bars that were missed, in words.
    pub fn objections(&self, evicts: bool) -> Vec<String> {
        let mut missed = Vec::new();
        let StaleEntries { at_end, agents_at_end, .. } = self.stale_entries;
        if at_end != agents_at_end {
            missed.push(format!(
                "the agents count {agents_at_end} stale entries, the nodes' tables have {at_end}"
            ));
        }
        if let Some(apart) = self.tail_end.apart_seconds.filter(|apart| *apart > PREDICTED_WITHIN)
            && !evicts
        {
            missed.push(format!("the end of the tail was predicted {apart:.1} s off"));
        }
        for window in self.histogram.iter().filter(|window| window.clients != window.agents) {
            missed.push(format!(
                "from {} s to {} s the clients saw {} failures begin, the agents {}",
                window.from, window.until, window.clients, window.agents
            ));
        }
        if evicts
            && let Some(late) =
                self.last_failure_after_old_pods_seconds.filter(|late| *late > EVICTED_WITHIN)
        {
            missed.push(format!(
                "a failure began {late:.1} s after the last old pod was gone, though stale entries are deleted"
            ));
        }
        missed
    }
}

fn entries(tail: &Tail, removed: &[(Timestamp, SocketAddr)]) -> StaleEntries {
    let listed = |sample: &Sample| {
        let listed = sample.listed.as_ref()?;
        let is_stale = |to: &&SocketAddr| {
            removed.iter().any(|(at, backend)| backend == *to && *at <= sample.at)
        };
        let count = u64::try_from(listed.iter().filter(is_stale).count()).unwrap_or(u64::MAX);
        Some((sample.at, sample.node.clone(), count))
    };
    let told = |sample: &Sample| (sample.at, sample.node.clone(), sample.agent.entries);
    let all = || tail.samples.iter().chain(&tail.last);
    StaleEntries {
        peak: peak(all().filter_map(listed)),
        agents_peak: peak(all().map(told)),
        at_end: tail.last.iter().filter_map(listed).map(|(.., count)| count).sum(),
        agents_at_end: tail.last.iter().map(|sample| sample.agent.entries).sum(),
    }
}

fn end(tail: &Tail, removed: &[(Timestamp, SocketAddr)]) -> TailEnd {
    let all = || tail.samples.iter().chain(&tail.last);
    // Each node's last word on the end, while there was one to predict.
    let of_node = |node: &String| {
        all()
            .filter(|sample| sample.node == *node)
            .filter_map(|sample| sample.agent.expires)
            .next_back()
    };
    let predicted = tail.last.iter().filter_map(|sample| of_node(&sample.node)).max();
    let is_over = tail.last.iter().all(|sample| sample.agent.entries == 0);
    let is_old = |to: SocketAddr| removed.iter().any(|(_, backend)| *backend == to);
    let destroyed = tail.destroyed.iter().filter(|(_, to)| is_old(*to)).map(|(at, _)| *at).max();
    let destroyed = destroyed.filter(|_| is_over);
    let apart = predicted.zip(destroyed).map(|(predicted, destroyed)| {
        // The kernel tells timers in whole seconds, rounded down.
        destroyed.duration_since(predicted).abs().as_secs_f64()
    });
    TailEnd { predicted, destroyed, apart_seconds: apart }
}

fn histogram(started: Timestamp, facts: &Facts<'_>) -> Vec<Window> {
    let window_of = |began: Timestamp| {
        let after: SignedDuration = began.duration_since(started);
        let index = WINDOWS.iter().position(|end| after.as_secs() < *end);
        index.unwrap_or(WINDOWS.len() - 1)
    };
    let mut windows: Vec<Window> = Vec::new();
    for until in WINDOWS {
        let from = windows.last().map_or(0, |window| window.until);
        windows.push(Window { from, until, clients: 0, agents: 0 });
    }
    for began in facts.begun {
        windows[window_of(*began)].clients += 1;
    }
    let nanoseconds = |at: i64| Timestamp::from_nanosecond(at.into()).unwrap_or(Timestamp::MAX);
    for (truth, _) in &facts.comparison.matched {
        windows[window_of(nanoseconds(truth.failure.connect_start))].agents += 1;
    }
    for extra in facts.comparison.extra_reports() {
        windows[window_of(extra.failure.first_syn)].agents += 1;
    }
    windows
}
