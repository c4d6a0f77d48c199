//! `rollrace replay FILE`

use std::{io::Write as _, net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Failed, local};
use crate::{
    engine::{FailureReport, RolloutReport, State, step},
    http::{self, Playback},
    record::Recording,
};

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rollrace agent --record n1.jsonl …
  rollrace replay n1.jsonl | jq .failure
  rollrace replay n1.jsonl --serve                 # the page, as that agent would show it
  rollrace replay n1.jsonl --serve --speed 10      # as it happened, ten times as fast")]
pub struct Args {
    /// The recording
    file: PathBuf,
    /// Show it in the browser: serve the page and the API of the agent that recorded it
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:9467")]
    serve: Option<SocketAddr>,
    /// Play it so many times as fast as it happened; without it all of it is played at once
    #[arg(long, value_name = "TIMES", requires = "serve", value_parser = speed)]
    speed: Option<f64>,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if (0.01..=10_000.0).contains(&speed) => Ok(speed),
        _ => Err("not a number from 0.01 to 10000".to_owned()),
    }
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
    if let Some(line) = recording.cut_off_at {
        eprintln!(
            "rollrace: {} is cut off at line {line}: what came before is used",
            args.file.display()
        );
    }
    match args.serve {
        Some(address) => serve(args, address, recording),
        None => print(recording),
    }
}

fn print(recording: Recording) -> Result<(), Failed> {
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
        print(&Line::CutOff { line }).context("cannot write the output")?;
    }
    Ok(())
}

fn serve(args: &Args, address: SocketAddr, recording: Recording) -> Result<(), Failed> {
    let playback = Playback::new(args.file.display().to_string(), recording, args.speed);
    local::serve(address, "--serve", async |shutdown: CancellationToken| {
        let (queries_out, queries) = mpsc::channel(64);
        tokio::spawn(playback.run(queries, shutdown));
        Ok(http::api(queries_out))
    })
}
