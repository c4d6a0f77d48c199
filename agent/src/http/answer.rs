//! What the API answers, and how it asks the engine for it.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::wanted::Wanted;
use crate::{
    cluster::ClusterSnapshot,
    engine::{
        ClosedReport, CoverageReport, FailureReport, LaneReport, LanesReport, RolloutReport,
        StaleReport, State,
    },
    feature::Lacking,
    model::{Failure, RolloutId},
};

/// A question to the engine's task.
pub enum Query {
    /// `/metrics`; only brought up to date, and encoded elsewhere
    Metrics(oneshot::Sender<Answer<Encode>>),
    /// `/api/v1/status`, `/readyz`
    Status(oneshot::Sender<Answer<StatusAnswer>>),
    /// `/api/v1/rollouts`
    Rollouts(Wanted, oneshot::Sender<Answer<RolloutsAnswer>>),
    /// `/api/v1/failures`
    Failures(Wanted, oneshot::Sender<Answer<FailuresAnswer>>),
    /// `/api/v1/lanes`; no such rollout: `None`
    Lanes(RolloutId, oneshot::Sender<Answer<Option<LanesAnswer>>>),
}

/// Encodes what is scraped; for a thread that may block.
pub type Encode = Box<dyn FnOnce() -> Answer<Vec<u8>> + Send>;

/// An answer, or why there is none.
pub type Answer<T> = Result<T, String>;

/// `/api/v1/status`
#[derive(Clone, Debug, Serialize)]
pub struct StatusAnswer {
    /// This node.
    pub node: Arc<str>,
    /// Version of the agent.
    pub version: &'static str,
    /// Version of the API server, once it has said it.
    pub kubernetes: Option<Arc<str>>,
    /// When it started.
    pub started: Timestamp,
    /// The node's civil time at which this was so.
    pub now: Timestamp,
    /// Set where this is a recording that is played back.
    pub playback: Option<PlaybackReport>,
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
    /// Answered connections that leaving endpoints closed, of which the wire cannot tell whether anything
    /// was lost: no failures.
    pub closed_connections: u64,
    /// The same by the Service that was dialled.
    pub closed_by_service: Vec<ClosedReport>,
    /// Answered connections that endpoints which did not leave ended without an answer: no failures.
    pub stayed_connections: u64,
    /// Memory of the kernel's map of answered connections, in bytes.
    pub flows_memory_bytes: u64,
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
    /// What the kernel side does without, and what that means.
    pub lacks: Vec<Lacking>,
    /// Stale conntrack entries now: new connections that reuse their ports go nowhere.
    pub stale: StaleReport,
    /// Kubernetes Events of rollouts, by what became of them; `open`: still to be written.
    pub events: BTreeMap<&'static str, u64>,
    /// The scans that find them.
    pub conntrack_scan: ScanStatus,
    /// The API server's side.
    pub cluster: ClusterSnapshot,
    /// What is kept for the next agent; null without `--state-dir`.
    pub history: Option<HistoryStatus>,
    /// Failure lines left out of the log by its rate limit.
    pub log_suppressed: u64,
}

/// How it stands with the history, as `/api/v1/status` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryStatus {
    /// The file.
    pub path: Arc<Path>,
    /// When it was last written; null: not yet.
    pub written: Option<Timestamp>,
    /// Its size then.
    pub bytes: u64,
    /// How often it could not be written; a restart now loses what came since `written`.
    pub failed: u64,
    /// Pods and endpoint lifetimes that there was no room for in it.
    pub left_out: u64,
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
    /// Packets dropped for want of room in it, early drops included, since the agent started.
    pub table_drops: Option<u64>,
    /// Entries that could not be inserted since then: another had taken the tuple.
    pub insert_failed: Option<u64>,
}

/// `/api/v1/rollouts`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RolloutsAnswer {
    /// This node.
    pub node: Arc<str>,
    /// The node's civil time at which this was so.
    pub now: Timestamp,
    /// How many fit the question, those past its limit included.
    pub matching: usize,
    /// Rollouts, newest first.
    pub rollouts: Vec<RolloutReport>,
}

/// `/api/v1/failures`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FailuresAnswer {
    /// This node.
    pub node: Arc<str>,
    /// How many fit the question, those past its limit included.
    pub matching: usize,
    /// Where to go on from with `?since=`.
    #[serde(default)]
    pub next: u64,
    /// Asked for by `since`, and not listed any more.
    #[serde(default)]
    pub skipped: u64,
    /// Failures, newest last; the last 10,000.
    pub failures: Vec<FailureReport>,
}

/// `/api/v1/lanes?rollout=ID`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LanesAnswer {
    /// This node.
    pub node: Arc<str>,
    /// The node's civil time at which this was so.
    pub now: Timestamp,
    /// The rollout.
    pub rollout: RolloutReport,
    /// Whether its pods' lives are known: not those from before the machine was booted.
    pub known: bool,
    /// The pods that it replaced or brought, old ones first.
    pub lanes: Vec<LaneReport>,
    /// Pods left out for want of room.
    pub left_out: usize,
}

/// A recording that is played back rather than a node that is watched.
#[derive(Clone, Debug, Serialize)]
pub struct PlaybackReport {
    /// The file.
    pub file: String,
    /// All of it has been played.
    pub finished: bool,
    /// The line at which it is cut off, if it is.
    pub cut_off_at: Option<usize>,
}

/// The rollouts that are wanted, newest first.
pub(crate) fn rollouts(state: &State, wanted: &Wanted) -> RolloutsAnswer {
    let present = || {
        let all = state.rollouts().all().rev();
        all.filter(|rollout| wanted.takes_rollout(&rollout.workload))
    };
    let past =
        || state.past().rollouts.iter().rev().filter(|rollout| wanted.takes_past(rollout)).cloned();
    let matching = present().count() + past().count();
    let rollouts = present().map(|rollout| state.rollout_report(rollout)).chain(past());
    RolloutsAnswer {
        node: state.node().clone(),
        now: state.wall_now(),
        matching,
        rollouts: rollouts.take(wanted.limit.unwrap_or(usize::MAX)).collect(),
    }
}

/// The failures that are wanted. Each of this boot has a number, counted from the first that was
/// decided; those of earlier boots come before all numbers.
pub(crate) fn failures(state: &State, wanted: &Wanted) -> FailuresAnswer {
    let first = state.failures_unlisted();
    let since = wanted.since.unwrap_or(0);
    let unseen = usize::try_from(since.saturating_sub(first)).unwrap_or(usize::MAX);
    let past = || {
        let all = state.past().failures.iter().filter(|_| wanted.since.is_none());
        all.map(Listed::Past).filter(|failure| wanted.takes(failure))
    };
    let present = || {
        let new = state.failures().skip(unseen);
        new.map(Listed::Present).filter(|failure| wanted.takes(failure))
    };
    let matching = past().count() + present().count();
    let left_out = wanted.limit.map_or(0, |limit| matching.saturating_sub(limit));
    let listed = past().chain(present()).skip(left_out).map(|failure| failure.report(state));
    let count = u64::try_from(state.failures().count()).unwrap_or(u64::MAX);
    FailuresAnswer {
        node: state.node().clone(),
        matching,
        next: first + count,
        skipped: if wanted.since.is_some() { first.saturating_sub(since) } else { 0 },
        failures: listed.collect(),
    }
}

/// A failure before it is told: most need not be.
#[derive(Clone, Copy)]
pub(super) enum Listed<'a> {
    /// Of an earlier boot.
    Past(&'a FailureReport),
    /// Of this one.
    Present(&'a Failure),
}

impl Listed<'_> {
    fn report(self, state: &State) -> FailureReport {
        match self {
            Self::Past(report) => report.clone(),
            Self::Present(failure) => state.failure_report(failure),
        }
    }
}

/// The lanes of a rollout. Of one from before the machine was booted only the report is left.
pub(crate) fn lanes(state: &State, id: &RolloutId) -> Option<LanesAnswer> {
    let answer = |rollout: RolloutReport, lanes: Option<LanesReport>| {
        let known = lanes.is_some();
        let LanesReport { lanes, left_out } = lanes.unwrap_or_default();
        let (node, now) = (state.node().clone(), state.wall_now());
        LanesAnswer { node, now, rollout, known, lanes, left_out }
    };
    if let Some(rollout) = state.rollouts().get(id) {
        return Some(answer(state.rollout_report(rollout), state.lanes(id)));
    }
    let past = state.past().rollouts.iter().find(|rollout| rollout.id == *id)?;
    Some(answer(past.clone(), None))
}
