//! Since when this agent covers its node, and the gaps: an agent that was not there cannot know.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::dialled;
use crate::model::{Mono, Rollout};

/// The most gaps listed; the first go first, and are said to have been.
pub const MAX_GAPS: usize = 256;

/// The engine is told the time four times a second: after so long a silence the agent did not run.
const SUSPENDED_NANOS: u64 = 5_000_000_000;

/// Gaps of one kind that are no further apart are one.
const SAME_GAP_NANOS: u64 = 1_000_000_000;

/// A rollout may have begun this long before it was first observed: two watches lag differently.
const OBSERVED_LATE_NANOS: u64 = 10_000_000_000;

/// How much earlier one may have begun that was under way when it was first observed: the default
/// `progressDeadlineSeconds`.
const UNDATED_NANOS: u64 = 600_000_000_000;

/// Why something may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapReason {
    /// The probes were attached anew: what was in flight is not followed further.
    Probes,
    /// The agent was not given the processor (stopped, starved, its machine suspended).
    Suspended,
    /// Kernel events or map entries were lost.
    Lost,
    /// The agent itself had no room.
    Overflow,
    /// No agent ran: a restart, an upgrade, a crash.
    Stopped,
}

impl GapReason {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Probes, Self::Suspended, Self::Lost, Self::Overflow, Self::Stopped];

    /// Its name in the API and as a label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Probes => "probes",
            Self::Suspended => "suspended",
            Self::Lost => "lost",
            Self::Overflow => "overflow",
            Self::Stopped => "stopped",
        }
    }

    /// In words.
    pub const fn why(self) -> &'static str {
        match self {
            Self::Probes => "the probes were attached anew",
            Self::Suspended => "the agent did not run",
            Self::Lost => "kernel events or map entries were lost",
            Self::Overflow => "the agent had no room for all",
            Self::Stopped => "no agent ran",
        }
    }
}

/// A time of which something may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Not earlier than this.
    pub from: Mono,
    /// Not later than this.
    pub until: Mono,
    /// Why.
    pub reason: GapReason,
}

/// What this agent was there for.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    attached: Option<Mono>,
    since: Option<Mono>,
    gaps: VecDeque<Gap>,
    forgotten: u64,
    /// The end of the last gap that is not listed any more.
    forgotten_until: Mono,
    begun: [u64; GapReason::ALL.len()],
    ticked: Option<Mono>,
    /// What an earlier agent covered ended then, and this one is not in step yet.
    stopped: Option<Mono>,
}

/// What an earlier agent was there for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptCoverage {
    since: Option<Mono>,
    gaps: VecDeque<Gap>,
    forgotten: u64,
    forgotten_until: Mono,
}

impl Coverage {
    /// The probes were attached.
    pub(super) fn attached(&mut self, at: Mono) {
        if self.attached.replace(at).is_some() {
            self.note(Gap { from: at, until: at, reason: GapReason::Probes });
        }
    }

    /// When the probes were last attached.
    pub(super) fn attached_at(&self) -> Option<Mono> {
        self.attached
    }

    /// The watches are in step: from now on it is covered, if the probes are there.
    pub(super) fn in_step(&mut self, at: Mono) {
        if self.attached.is_none() {
            return;
        }
        if let Some(from) = self.stopped.take() {
            self.note(Gap { from, until: at, reason: GapReason::Stopped });
        }
        self.since.get_or_insert(at);
    }

    /// For the next agent.
    pub(super) fn kept(&self) -> KeptCoverage {
        KeptCoverage {
            since: self.since,
            gaps: self.gaps.clone(),
            forgotten: self.forgotten,
            forgotten_until: self.forgotten_until,
        }
    }

    /// Takes up what an earlier agent covered, until it stopped: from then until this one is in step
    /// there is a gap.
    pub(super) fn recall(&mut self, kept: KeptCoverage, stopped: Mono) {
        if kept.since.is_none() {
            return;
        }
        self.since = kept.since;
        self.gaps = kept.gaps;
        self.forgotten = kept.forgotten;
        self.forgotten_until = kept.forgotten_until;
        self.stopped = Some(stopped);
    }

    /// The agent's own tick.
    pub(super) fn tick(&mut self, at: Mono) {
        if let Some(before) = self.ticked.replace(at)
            && at.since(before) >= SUSPENDED_NANOS
        {
            self.note(Gap { from: before, until: at, reason: GapReason::Suspended });
        }
    }

    /// Takes note of a gap.
    pub(super) fn note(&mut self, gap: Gap) {
        let mut of_kind = self.gaps.iter_mut().rev();
        if let Some(known) = of_kind.find(|known| known.reason == gap.reason)
            && gap.from <= known.until.plus(SAME_GAP_NANOS)
        {
            known.from = known.from.min(gap.from);
            known.until = known.until.max(gap.until);
            return;
        }
        self.begun[gap.reason as usize] += 1;
        self.gaps.push_back(gap);
        if self.gaps.len() > MAX_GAPS
            && let Some(first) = self.gaps.pop_front()
        {
            self.forgotten += 1;
            self.forgotten_until = self.forgotten_until.max(first.until);
        }
    }

    /// Since when there is any coverage: probes attached, watches in step for the first time.
    pub fn since(&self) -> Option<Mono> {
        self.since
    }

    /// The gaps listed, oldest first.
    pub fn gaps(&self) -> impl ExactSizeIterator<Item = &Gap> {
        self.gaps.iter()
    }

    /// Gaps that are not listed any more.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// It is another boot's: nothing follows it here.
    pub(super) fn is_past(&mut self) {
        self.stopped = None;
    }

    /// Since when there is a gap that lasts: an earlier agent stopped, and this one is not in step.
    pub fn stopped(&self) -> Option<Mono> {
        self.stopped
    }

    /// How many gaps there were, by reason.
    pub fn counts(&self) -> impl Iterator<Item = (GapReason, u64)> {
        GapReason::ALL.into_iter().zip(self.begun)
    }

    /// The gaps that a rollout's counts may lack something for. None: everything was there.
    pub fn of(&self, rollout: &Rollout, now: Mono) -> Partly {
        let begin = Mono(rollout.started.0.saturating_sub(OBSERVED_LATE_NANOS));
        let end = dialled::counts_until(rollout).unwrap_or(now).min(now).max(begin);
        let end = rollout.last_failure.map_or(end, |last| last.max(end));
        let before = self.since.is_none_or(|since| {
            let undated = || Mono(rollout.started.0.saturating_sub(UNDATED_NANOS));
            rollout.not_before.unwrap_or_else(undated) < since
        });
        let unlisted = self.forgotten > 0 && begin <= self.forgotten_until;
        let overlaps = |gap: &&Gap| gap.from <= end && gap.until >= begin;
        // While this agent is not in step yet, the gap that the earlier one left is open.
        let open = self.stopped.map(|from| Gap { from, until: now, reason: GapReason::Stopped });
        let gaps = self.gaps.iter().chain(open.as_ref()).filter(overlaps).count();
        Partly { before, gaps: gaps + usize::from(unlisted) }
    }
}

/// What a rollout's counts may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partly {
    /// What came before the coverage.
    pub before: bool,
    /// What fell into so many gaps.
    pub gaps: usize,
}

impl Partly {
    /// Whether they may lack anything.
    pub fn is_partial(self) -> bool {
        self.before || self.gaps > 0
    }
}
