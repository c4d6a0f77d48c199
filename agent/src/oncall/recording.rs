//! Recordings as the answers of the agents that made them.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::{
    answers::{self, Coverage, Failures, Rollouts, Status},
    gather::{Answered, Gathered},
};
use crate::{
    engine::{State, step},
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
    let node = state.node().to_string();
    let mut gathered = Gathered::default();
    if let Some(line) = recording.cut_off_at {
        gathered.notes.push(format!(
            "{} is cut off at line {line}: what came before was used",
            path.display()
        ));
    }
    let status = Status {
        node: node.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kubernetes: state.kubernetes().map(|version| answers::plain(version)),
        started: started.unwrap_or_default(),
        coverage: answers::as_told::<_, Coverage>(&state.coverage_report()),
        ready: true,
        failures: u64::try_from(decided).unwrap_or(u64::MAX),
        lower_bound: state.lost() > 0 || state.overflowed() > 0,
        losses: [("recorded".to_owned(), state.lost()), ("engine".to_owned(), state.overflowed())]
            .into(),
        ..Status::default()
    };
    let rollouts = state.rollouts().all().rev();
    let rollouts = rollouts.map(|rollout| answers::as_told(&state.rollout_report(rollout)));
    let rollouts =
        rollouts.chain(state.past().rollouts.iter().rev().map(answers::as_told)).collect();
    let failures = state.failures().map(|failure| answers::as_told(&state.failure_report(failure)));
    let failures = state.past().failures.iter().map(answers::as_told).chain(failures).collect();
    gathered.answered.push(Answered {
        agent: path.display().to_string(),
        status,
        rollouts: Rollouts { node: node.clone(), rollouts },
        failures: Failures { node, failures, ..Failures::default() },
    });
    Ok(gathered)
}
