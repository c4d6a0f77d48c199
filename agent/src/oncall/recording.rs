//! Recordings as the answers of the agents that made them.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    answers::{self, Coverage, Failures, Rollouts, Status},
    gather::{Answered, Gathered},
};
use crate::{
    engine::{State, step},
    model::{RolloutId, WorkloadKey},
    record::{RecordError, Recording},
};

/// Replays them to their ends, and asks the engine what agents would be asked.
pub(super) fn gather(paths: &[PathBuf]) -> Result<Gathered, RecordError> {
    let mut all = Gathered::default();
    for path in paths {
        let one = replay(path)?;
        all.answered.extend(one.answered);
        all.notes.extend(one.notes);
    }
    Ok(all)
}

fn replay(path: &Path) -> Result<Gathered, RecordError> {
    let recording = Recording::read(path)?;
    let mut state = State::new(recording.config);
    let mut started: Option<Timestamp> = None;
    let mut decided = 0;
    for input in recording.inputs {
        decided += step(&mut state, input).failures.len();
        started.get_or_insert_with(|| state.clock().wall);
    }
    let mut gathered = of_state(&state, path.display().to_string(), |_| true, |_| true);
    if let Some(line) = recording.cut_off_at {
        gathered.notes.push(format!(
            "{} is cut off at line {line}: what came before was used",
            path.display()
        ));
    }
    if let Some(answered) = gathered.answered.first_mut() {
        answered.status.started = started.unwrap_or_default();
        answered.status.failures = u64::try_from(decided).unwrap_or(u64::MAX);
    }
    Ok(gathered)
}

/// What an agent in this state answers of the rollouts and failures that are wanted.
pub(crate) fn of_state(
    state: &State,
    agent: String,
    rollout_is_wanted: impl Fn(&RolloutId) -> bool,
    failure_is_wanted: impl Fn(Option<&WorkloadKey>) -> bool,
) -> Gathered {
    let node = state.node().to_string();
    let status = Status {
        node: node.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kubernetes: state.kubernetes().map(|version| answers::plain(version)),
        coverage: as_answered::<_, Coverage>(&state.coverage_report()),
        ready: true,
        lower_bound: state.lost() > 0 || state.overflowed() > 0,
        losses: [("recorded".to_owned(), state.lost()), ("engine".to_owned(), state.overflowed())]
            .into(),
        ..Status::default()
    };
    let rollouts = state.rollouts().all().rev().filter(|rollout| rollout_is_wanted(&rollout.id));
    let rollouts = rollouts.map(|rollout| as_answered(&state.rollout_report(rollout)));
    let past = state.past().rollouts.iter().rev();
    let past = past.filter(|rollout| rollout_is_wanted(&rollout.id)).map(as_answered);
    let rollouts = rollouts.chain(past).collect();
    let failures = state.failures();
    let failures = failures.filter(|failure| failure_is_wanted(failure.workload.as_ref()));
    let failures = failures.map(|failure| as_answered(&state.failure_report(failure)));
    let past = state.past().failures.iter().map(as_answered);
    let failures = past.chain(failures).collect();
    let answered = Answered {
        agent,
        status,
        rollouts: Rollouts { node: node.clone(), rollouts },
        failures: Failures { node, failures, ..Failures::default() },
    };
    Gathered { answered: vec![answered], ..Gathered::default() }
}

/// The same report as it would have come over the wire.
fn as_answered<R: Serialize, T: DeserializeOwned>(report: &R) -> T {
    let bytes = serde_json::to_vec(report).expect("a report has only text as keys");
    answers::read(&bytes).expect("this version reads what it writes")
}
