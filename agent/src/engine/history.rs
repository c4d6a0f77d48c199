//! What outlives the agent: decided failures, rollouts, and the evidence by which a tail that began
//! before a restart is still attributed after it.
//!
//! Within one boot everything goes on as it was, on the same monotonic clock. After a reboot no
//! conntrack entry is left and that clock began anew: what was decided is kept as it is told.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Config, FailureReport, GapReason, GapReport, MAX_GAPS, Outputs, RolloutReport, State, Watch,
    announce, ask, coverage::KeptCoverage,
};
use crate::{
    endpoints::{Lifetime, Name},
    model::{Clock, Failure, Mono, Wall, last_happened},
    owners::KeptOwners,
    rollouts::{KeptRollouts, MAX_ROLLOUTS},
};

/// How long what was decided is kept.
const KEPT: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);

/// What one agent leaves to the next on its node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Its node.
    pub node: Arc<str>,
    /// The two clocks when it was taken.
    pub clock: Clock,
    /// Everything that began before this is in it.
    pub whole_until: Mono,
    coverage: KeptCoverage,
    failures: VecDeque<Failure>,
    rollouts: KeptRollouts,
    owners: KeptOwners,
    lifetimes: Vec<Lifetime>,
    dialled: Vec<Name>,
    past: Past,
    /// Pods and lifetimes that there was no room for.
    pub left_out: u64,
}

/// What was decided before this boot, as it is told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// Failures, oldest first.
    pub failures: VecDeque<FailureReport>,
    /// Rollouts, oldest first.
    pub rollouts: VecDeque<RolloutReport>,
    /// Gaps, oldest first; the last one is the reboot.
    pub gaps: VecDeque<GapReport>,
    /// Since when there was any coverage.
    pub since: Option<Wall>,
    /// Where the history of the boot before ended, until this boot's coverage begins.
    pub ended: Option<Wall>,
}

/// An agent takes up what an earlier one left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recalled {
    /// What it left.
    pub history: History,
    /// The machine has not been booted since.
    pub same_boot: bool,
}

impl State {
    /// What a later agent on this node should know.
    pub fn history(&self) -> History {
        let horizon = self.horizon();
        let since = self.clock.mono(horizon);
        let (lifetimes, lives_left_out) = self.endpoints.kept(self.dialled.iter());
        let rollouts = self.rollouts.kept(since);
        let (owners, pods_left_out) = self.owners.kept(
            &self.config.node,
            lifetimes.iter().filter_map(|life| life.pod.as_ref()).map(|pod| &*pod.uid),
            rollouts.workloads(),
        );
        let mut past = self.past.clone();
        past.forget(horizon);
        History {
            node: self.config.node.clone(),
            clock: self.clock,
            whole_until: self.whole_until(),
            coverage: self.coverage.kept(),
            failures: self
                .failures
                .iter()
                .filter(|failure| failure.ended >= since)
                .cloned()
                .collect(),
            rollouts,
            owners,
            lifetimes,
            dialled: self.dialled.iter().cloned().collect(),
            past,
            left_out: lives_left_out + pods_left_out,
        }
    }

    /// What ended before this is not kept.
    fn horizon(&self) -> Wall {
        self.clock.wall(self.now).saturating_sub(KEPT).unwrap_or(Wall::MIN)
    }

    /// Before this everything is decided.
    fn whole_until(&self) -> Mono {
        let held = self.held.iter().map(super::verdicts::Held::began);
        held.chain(self.attempts.earliest()).min().unwrap_or(self.now).min(self.now)
    }
}

/// Takes up what an earlier agent left, before anything else is heard.
pub(super) fn recall(state: &mut State, recalled: Recalled, out: &mut Outputs) {
    let Recalled { history, same_boot } = recalled;
    if same_boot {
        take_up(state, history, out);
        return;
    }
    // As its own engine would have told it.
    let ended = history.clock.wall(history.whole_until);
    let mut before = State::new(Config::clone(&state.config));
    before.clock = history.clock;
    before.now = history.clock.mono;
    take_up(&mut before, history, &mut Outputs::default());
    before.coverage.is_past();
    state.events.lost += u64::try_from(before.events_open()).unwrap_or(u64::MAX);
    let mut past = std::mem::take(&mut before.past);
    past.failures.extend(before.failures().map(|failure| before.failure_report(failure)));
    past.rollouts.extend(before.rollouts().all().map(|rollout| before.rollout_report(rollout)));
    let coverage = before.coverage_report();
    past.gaps.extend(coverage.gaps);
    past.since = coverage.since;
    past.ended = Some(ended);
    past.forget(state.horizon());
    state.past = past;
}

fn take_up(state: &mut State, history: History, out: &mut Outputs) {
    let at = history.whole_until;
    state.coverage.recall(history.coverage, at);
    state.failures.extend(history.failures);
    state.past = history.past;
    state.dialled.extend(history.dialled);
    state.endpoints.recall(history.lifetimes, at);
    state.owners.recall(history.owners);
    state.rollouts.recall(history.rollouts, state.now);
    announce::recall(state);
    ask::follow_unsettled(state, out);
    let mut endpoints: Vec<_> = state.endpoints.all().map(|life| life.endpoint).collect();
    endpoints.dedup();
    out.watch.extend(endpoints.into_iter().map(Watch::Endpoint));
}

impl Past {
    /// The boot before is covered until its end; then comes a gap, until this one's coverage.
    pub(super) fn close(&mut self, since: Wall) {
        let Some(ended) = self.ended.take() else { return };
        self.gaps.push_back(GapReport {
            from: ended,
            until: since,
            reason: GapReason::Stopped.name().to_owned(),
            why: "the machine was booted".to_owned(),
        });
        while self.gaps.len() > MAX_GAPS {
            self.gaps.pop_front();
        }
    }

    fn forget(&mut self, horizon: Wall) {
        self.failures.retain(|failure| failure.ended >= horizon);
        self.rollouts.retain(|rollout| {
            let later = [rollout.completed, rollout.last_failure, rollout.last_old_pod_gone];
            last_happened(rollout.started, later) >= horizon
        });
        self.gaps.retain(|gap| gap.until >= horizon);
        while self.failures.len() > super::MAX_FAILURES {
            self.failures.pop_front();
        }
        while self.rollouts.len() > MAX_ROLLOUTS {
            self.rollouts.pop_front();
        }
        if self.failures.is_empty() && self.rollouts.is_empty() && self.gaps.is_empty() {
            self.since = None;
        }
    }
}
