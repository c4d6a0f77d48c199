//! What the API answers, and how it asks the engine for it.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{
    agent::HistoryStatus,
    cluster::ClusterSnapshot,
    engine::{CoverageReport, FailureReport, RolloutReport, StaleReport},
};

/// A question to the engine's task.
pub enum Query {
    /// `/metrics`
    Metrics(oneshot::Sender<Answer<Vec<u8>>>),
    /// `/api/v1/status`, `/readyz`
    Status(oneshot::Sender<Answer<StatusAnswer>>),
    /// `/api/v1/rollouts`
    Rollouts(oneshot::Sender<Answer<RolloutsAnswer>>),
    /// `/api/v1/failures`
    Failures(oneshot::Sender<Answer<FailuresAnswer>>),
}

/// An answer, or why there is none.
pub type Answer<T> = Result<T, String>;

/// `/api/v1/status`
#[derive(Clone, Debug, Serialize)]
pub struct StatusAnswer {
    /// This node.
    pub node: Arc<str>,
    /// Version of the agent.
    pub version: &'static str,
    /// When it started.
    pub started: Timestamp,
    /// What it was there for: it cannot know of anything else.
    pub coverage: CoverageReport,
    /// Ready: probes attached, watches in step.
    pub ready: bool,
    /// What it is not ready for, in words; empty if it is ready.
    pub not_ready: Vec<String>,
    /// Attempts in trouble, not yet decided.
    pub pending_attempts: usize,
    /// Failures that wait for evidence.
    pub undecided_failures: usize,
    /// Failures decided since the start.
    pub failures: u64,
    /// Attempts given up by their client before they could fail.
    pub cancelled_attempts: u64,
    /// Failed direct connections that no Service sent: kubelet's probes and the like.
    pub undirected_attempts: u64,
    /// Attempts given up of whose begin nothing was seen: they began before the agent.
    pub unseen_attempts: u64,
    /// Counts since the start are lower bounds: something below was lost.
    pub lower_bound: bool,
    /// What was lost, by reason.
    pub losses: BTreeMap<&'static str, u64>,
    /// What was forgotten before its time for want of room: verdicts that lack it are `unknown`.
    pub forgotten: BTreeMap<&'static str, u64>,
    /// Probes and whether they are attached.
    pub probes: BTreeMap<&'static str, bool>,
    /// Whether conntrack is there: without it Services cannot be told apart.
    pub conntrack: bool,
    /// Stale conntrack entries now: new connections that reuse their ports go nowhere.
    pub stale: StaleReport,
    /// The scans that find them.
    pub conntrack_scan: ScanStatus,
    /// The API server's side.
    pub cluster: ClusterSnapshot,
    /// What is kept for the next agent; null without `--state-dir`.
    pub history: Option<HistoryStatus>,
    /// Failure lines left out of the log by its rate limit.
    pub log_suppressed: u64,
}

/// Scans of the conntrack table.
#[derive(Clone, Debug, Serialize)]
pub struct ScanStatus {
    /// Scans made.
    pub scans: u64,
    /// Scans that failed.
    pub failed: u64,
    /// Why the last one did.
    pub error: Option<String>,
    /// Processor time of the last one.
    pub last_cost_seconds: f64,
    /// Entries in the table of this namespace.
    pub table_entries: Option<u64>,
    /// The most that it may hold.
    pub table_limit: Option<u64>,
}

/// `/api/v1/rollouts`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RolloutsAnswer {
    /// This node.
    pub node: Arc<str>,
    /// Rollouts, newest first.
    pub rollouts: Vec<RolloutReport>,
}

/// `/api/v1/failures`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FailuresAnswer {
    /// This node.
    pub node: Arc<str>,
    /// Failures, newest last; the last 10,000.
    pub failures: Vec<FailureReport>,
}
