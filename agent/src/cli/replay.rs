//! `rollrace replay FILE`

use std::{io::Write as _, path::PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use super::Failed;
use crate::{
    engine::{FailureReport, RolloutReport, State, step},
    record::Recording,
};

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  rollrace agent --record n1.jsonl …\n  rollrace replay n1.jsonl | jq .failure"
)]
pub struct Args {
    /// The recording
    file: PathBuf,
}

/// A line of the output.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Failure(Box<FailureReport>),
    Rollout(Box<RolloutReport>),
    CutOff { line: usize },
}

/// Runs it. The same recording gives the same output to the byte.
pub fn run(args: &Args) -> Result<(), Failed> {
    let recording = Recording::read(&args.file).map_err(Failed::unavailable)?;
    let mut state = State::new(recording.config);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut print = |line: &Line| -> anyhow::Result<()> {
        serde_json::to_writer(&mut out, line)?;
        out.write_all(b"\n")?;
        Ok(())
    };
    for input in recording.inputs {
        let outputs = step(&mut state, input);
        for failure in outputs.failures {
            let report = Box::new(state.failure_report(&failure));
            print(&Line::Failure(report)).context("cannot write the output")?;
        }
    }
    for rollout in state.rollouts().all() {
        let report = Box::new(state.rollout_report(rollout));
        print(&Line::Rollout(report)).context("cannot write the output")?;
    }
    if let Some(line) = recording.cut_off_at {
        eprintln!(
            "rollrace: {} is cut off at line {line}: what came before was used",
            args.file.display()
        );
        print(&Line::CutOff { line }).context("cannot write the output")?;
    }
    Ok(())
}
