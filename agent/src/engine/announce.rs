//! The Kubernetes Event of a rollout that broke connections: when it is written, and what it says.
//!
//! Every node that saw a failure wants one and the same Event, by its name; each waits a while of its
//! own, and whoever comes first writes it.

use std::{collections::BTreeMap, sync::Arc};

use super::{Outputs, Request, State, ask, input::RolloutEvent};
use crate::{
    advise::words::{count_of, share_of},
    model::{EventResult, EventState, Mono, Rollout, RolloutId},
};

/// How long after the first failure it is written at the latest, by nodes that would otherwise write
/// at once.
const JITTER_NANOS: u64 = 30_000_000_000;
/// The most that the API server is asked to write at a time; the others wait for their turn.
pub(crate) const MAX_ASKED_EVENTS: usize = 64;
/// The longest name of a Kubernetes object.
const MAX_NAME: usize = 253;

/// What became of the Events so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    by_result: BTreeMap<EventResult, u64>,
    asked: usize,
    /// Never written: the machine was booted, or its rollout was forgotten, before it was.
    pub lost: u64,
}

impl EventCounts {
    /// Every result, 0 included.
    pub fn by_result(&self) -> impl Iterator<Item = (EventResult, u64)> {
        let count = |result| self.by_result.get(&result).copied().unwrap_or(0);
        EventResult::ALL.iter().map(move |result| (*result, count(*result)))
    }
}

/// A connection failed by this rollout.
pub(super) fn failed(rollout: &mut Rollout, node: &str, now: Mono) {
    if rollout.event == EventState::None {
        let jitter = hash(&[node, &rollout.id.to_string()]) % JITTER_NANOS;
        rollout.event = EventState::Due(now.plus(jitter));
    }
}

/// Asks for those that are due.
pub(super) fn tick(state: &mut State, out: &mut Outputs) {
    // Nobody would answer.
    if !state.synced {
        return;
    }
    let now = state.now;
    let is_due = |rollout: &&Rollout| matches!(rollout.event, EventState::Due(due) if due <= now);
    let room = MAX_ASKED_EVENTS.saturating_sub(state.events.asked);
    let due: Vec<RolloutId> =
        state.rollouts.all().filter(is_due).take(room).map(|rollout| rollout.id.clone()).collect();
    for id in due {
        if let Some(event) = state.rollouts.get(&id).map(|rollout| event(state, rollout)) {
            out.requests.push(Request::Event(Box::new(event)));
        }
        if let Some(rollout) = state.rollouts.get_mut(&id) {
            rollout.event = EventState::Asked;
            state.events.asked += 1;
        }
    }
}

/// The API server answered, or will not.
pub(super) fn answered(state: &mut State, id: &RolloutId, result: EventResult) {
    state.events.asked = state.events.asked.saturating_sub(1);
    *state.events.by_result.entry(result).or_insert(0) += 1;
    if let Some(rollout) = state.rollouts.get_mut(id) {
        rollout.event = EventState::Done;
    }
}

/// What an earlier agent did not come to, or was not answered, is done again.
pub(super) fn recall(state: &mut State) {
    for rollout in state.rollouts.all_mut() {
        if rollout.event == EventState::Asked {
            rollout.event = EventState::Due(state.now);
        }
    }
}

impl State {
    /// What became of the Events of rollouts.
    pub fn events(&self) -> EventCounts {
        let mut counts = self.events.clone();
        counts.lost += self.rollouts.forgotten_events;
        counts
    }

    /// What became of them by name, and how many are still to be written (`open`).
    pub fn events_report(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.events();
        let open = u64::try_from(self.events_open()).unwrap_or(u64::MAX);
        let results = counts.by_result().map(|(result, count)| (result.name(), count));
        results.chain([("lost", counts.lost), ("open", open)]).collect()
    }

    /// Rollouts whose Event is not written yet.
    pub fn events_open(&self) -> usize {
        self.rollouts.all().filter(|rollout| rollout.event.is_open()).count()
    }
}

fn event(state: &State, rollout: &Rollout) -> RolloutEvent {
    RolloutEvent {
        rollout: rollout.id.clone(),
        name: name(&rollout.workload.name, &rollout.id),
        workload: rollout.workload.clone(),
        api_version: ask::api_version(state, &rollout.workload.uid),
        note: note(state, rollout),
        at: state.wall_now(),
    }
}

/// The same on every node: of the workload's UID, the revision and the ordinal.
fn name(workload: &str, id: &RolloutId) -> Arc<str> {
    let hash = format!(".{:016x}", hash(&[&id.to_string()]));
    // All ASCII: the API server takes no other name.
    let kept: String = workload.chars().take(MAX_NAME - hash.len()).collect();
    format!("{}{hash}", kept.trim_end_matches(['.', '-'])).into()
}

fn note(state: &State, rollout: &Rollout) -> String {
    let failures = rollout.failures();
    let broken: u64 = failures.values().sum();
    let classes: Vec<String> =
        failures.iter().map(|(class, count)| format!("{count} {class}")).collect();
    let is_partial = state.coverage().of(rollout, state.now).is_partial();
    let at_least = if is_partial { "at least " } else { "" };
    let counted = match rollout.attempts {
        // Without a Service nobody counts them; a connection may be older than all that were.
        attempts if attempts < broken => count_of(broken, "connection"),
        attempts => format!("{} connections", share_of(broken, attempts)),
    };
    let after = match rollout.failures_after() {
        0 => String::new(),
        after => format!(", {after} of them after it was complete"),
    };
    let (key, revision) = (&rollout.workload, rollout.revision());
    format!(
        "The rollout to revision {revision} broke {at_least}{counted} on node {node} so far: \
         {classes}{after}. All nodes, why, and what to change: kubectl rollrace explain {kind}/{name} \
         -n {namespace} --revision {revision}",
        node = state.config.node,
        classes = classes.join(", "),
        kind = key.kind.to_lowercase(),
        name = key.name,
        namespace = key.namespace,
    )
}

/// FNV-1a, 64 bits: agents of any version and machine must come to the same.
fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_that_kubernetes_takes_and_tells_rollouts_apart() {
        let id = |ordinal| RolloutId {
            workload_uid: "0c5b1b4e".into(),
            target: "66995f776".into(),
            ordinal,
        };
        assert_ne!(name("api", &id(1)), name("api", &id(2)));
        assert!(name("api", &id(1)).starts_with("api."));
        let long = format!("{}.{}", "a".repeat(235), "b".repeat(17));
        assert!(name(&long, &id(1)).len() <= MAX_NAME && !name(&long, &id(1)).contains(".."));
    }
}
