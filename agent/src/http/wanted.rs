//! Which rollouts and failures are wanted: the queries of `/api/v1/rollouts` and `/api/v1/failures`.

use serde::Deserialize;

use crate::{
    engine::State,
    model::{Failure, Rollout},
};

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
pub struct Found<'a> {
    /// They, oldest first.
    pub failures: Vec<&'a Failure>,
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
    pub fn takes_rollout(&self, rollout: &Rollout) -> bool {
        let workload = &rollout.workload;
        Self::is(self.namespace.as_ref(), &workload.namespace)
            && Self::is(self.kind.as_ref(), &workload.kind)
            && Self::is(self.name.as_ref(), &workload.name)
    }

    fn takes(&self, failure: &Failure) -> bool {
        let workload = failure.workload.as_ref();
        Self::is(self.namespace.as_ref(), &failure.namespace)
            && Self::is(self.class.as_ref(), failure.class.name())
            && (self.kind.is_none()
                || workload.is_some_and(|it| Self::is(self.kind.as_ref(), &it.kind)))
            && (self.name.is_none()
                || workload.is_some_and(|it| Self::is(self.name.as_ref(), &it.name)))
            && self.rollout.as_ref().is_none_or(|wanted| {
                failure.rollout.as_ref().is_some_and(|rollout| rollout.to_string() == *wanted)
            })
    }

    /// The failures that are wanted. Each has a number, counted from the first that was ever decided.
    pub fn failures<'a>(&self, state: &'a State) -> Found<'a> {
        let first = state.failures_unlisted();
        let mut next = first;
        let mut failures = Vec::new();
        for failure in state.failures() {
            if self.since.is_none_or(|since| next >= since) && self.takes(failure) {
                failures.push(failure);
            }
            next += 1;
        }
        let surplus = failures.len().saturating_sub(self.limit.unwrap_or(usize::MAX));
        failures.drain(..surplus);
        let skipped = self.since.map_or(0, |since| first.saturating_sub(since));
        Found { failures, next, skipped }
    }
}
