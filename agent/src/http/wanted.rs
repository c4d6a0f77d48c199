//! Which rollouts and failures are wanted: the queries of `/api/v1/rollouts` and `/api/v1/failures`.

use std::collections::VecDeque;

use serde::Deserialize;

use crate::engine::{FailureReport, RolloutReport, State, WorkloadName};

/// What is wanted; nothing set: everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// Of this namespace.
    pub namespace: Option<String>,
    /// Of a workload of this kind.
    pub kind: Option<String>,
    /// Of a workload of this name.
    pub name: Option<String>,
    /// Of this class; failures only.
    pub class: Option<String>,
    /// Of this rollout, by its id; failures only.
    pub rollout: Option<String>,
    /// From this one on, as `next` of an earlier answer; failures only.
    pub since: Option<u64>,
    /// At most so many, the newest; failures only.
    pub limit: Option<usize>,
}

/// Failures that are wanted.
pub struct Found {
    /// They, oldest first.
    pub failures: Vec<FailureReport>,
    /// Where to go on from.
    pub next: u64,
    /// Asked for by `since`, and not listed any more.
    pub skipped: u64,
}

impl Wanted {
    fn is(wanted: Option<&String>, it: &str) -> bool {
        wanted.is_none_or(|wanted| wanted.eq_ignore_ascii_case(it))
    }

    /// Whether a rollout is wanted.
    pub fn takes_rollout(&self, rollout: &RolloutReport) -> bool {
        Self::is(self.namespace.as_ref(), &rollout.namespace)
            && Self::is(self.kind.as_ref(), &rollout.kind)
            && Self::is(self.name.as_ref(), &rollout.name)
    }

    fn takes(&self, failure: &FailureReport) -> bool {
        let workload = failure.workload.as_ref();
        let is_of = |wanted: Option<&String>, of: fn(&WorkloadName) -> &str| {
            wanted.is_none() || workload.is_some_and(|it| Self::is(wanted, of(it)))
        };
        Self::is(self.namespace.as_ref(), &failure.namespace)
            && Self::is(self.class.as_ref(), failure.class.name())
            && is_of(self.kind.as_ref(), |it| &it.kind)
            && is_of(self.name.as_ref(), |it| &it.name)
            && self.rollout.as_ref().is_none_or(|wanted| {
                failure.rollout.as_ref().is_some_and(|rollout| rollout.to_string() == *wanted)
            })
    }

    /// The failures that are wanted. Each of this boot has a number, counted from the first that was
    /// decided; those of earlier boots come before all numbers.
    pub fn failures(&self, state: &State) -> Found {
        let first = state.failures_unlisted();
        let past = state.past().failures.iter().filter(|_| self.since.is_none()).cloned();
        let mut failures: VecDeque<FailureReport> = VecDeque::new();
        let limit = self.limit.unwrap_or(usize::MAX);
        let mut take = |report: FailureReport| {
            if self.takes(&report) {
                failures.push_back(report);
                if failures.len() > limit {
                    failures.pop_front();
                }
            }
        };
        past.for_each(&mut take);
        let mut next = first;
        for failure in state.failures() {
            if self.since.is_none_or(|since| next >= since) {
                take(state.failure_report(failure));
            }
            next += 1;
        }
        let skipped = self.since.map_or(0, |since| first.saturating_sub(since));
        Found { failures: failures.into(), next, skipped }
    }
}
