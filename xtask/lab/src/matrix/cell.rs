//! One cell: a lab as a process of its own.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use super::args::MatrixArgs;
use super::plan::Cell;
use super::record::{Counts, Outcome};
use crate::isolate::die_with_parent;

/// Plays a cell. A lab that failed itself (the machine was too busy for its rollout) says nothing
/// about the agents: it is played once more.
pub fn play(cell: &Cell, args: &MatrixArgs, out: &Path) -> Result<Outcome> {
    let mut outcome = play_once(cell, args, out)?;
    if let Some(first) = outcome.failure.take() {
        let took = outcome.took_seconds;
        outcome = play_once(cell, args, out)?;
        outcome.took_seconds += took;
        outcome.played_again = Some(first);
    }
    Ok(outcome)
}

/// Plays a cell and reads its result; an error only when no lab can be started at all.
fn play_once(cell: &Cell, args: &MatrixArgs, out: &Path) -> Result<Outcome> {
    let out = out.join(&cell.name);
    std::fs::create_dir_all(&out).with_context(|| format!("create {}", out.display()))?;
    let progress = out.join("progress.txt");
    let stderr =
        File::create(&progress).with_context(|| format!("create {}", progress.display()))?;
    let mut command = Command::new("/proc/self/exe");
    command.args(&cell.arguments).arg("--json").arg("--out").arg(&out);
    if cell.arguments.first().is_some_and(|first| first == "run") {
        command.arg("--threads").arg(args.threads.to_string());
    }
    if let Some(agent) = &args.agent {
        let agent = std::path::absolute(agent)
            .with_context(|| format!("resolve the agent's path {}", agent.display()))?;
        command.arg("--agent").arg(agent);
    }
    command.stdin(Stdio::null()).stderr(stderr);
    die_with_parent(&mut command);
    let began = Instant::now();
    let output = command.output().with_context(|| format!("start the cell {}", cell.name))?;
    let took_seconds = began.elapsed().as_secs();
    let text = String::from_utf8_lossy(&output.stdout);
    let parsed = serde_json::from_str::<Counts>(text.lines().last().unwrap_or_default());
    let (counts, failure) = match (output.status.code(), parsed) {
        (Some(0 | 1), Ok(counts)) => (counts, None),
        (Some(0 | 1), Err(error)) => (Counts::default(), Some(format!("its result: {error}"))),
        _ => (Counts::default(), Some(last_words(&progress, &output.status.to_string()))),
    };
    Ok(Outcome {
        name: cell.name.clone(),
        exact: output.status.success() && failure.is_none(),
        took_seconds,
        counts,
        failure,
        played_again: None,
        out: out.display().to_string(),
    })
}

/// What a lab that failed said last.
fn last_words(progress: &Path, status: &str) -> String {
    match std::fs::read_to_string(progress) {
        Ok(text) => {
            let last = text.lines().rev().find(|line| !line.trim().is_empty());
            format!("the lab failed ({status}): {}", last.unwrap_or("without a word"))
        }
        Err(error) => format!("the lab failed ({status}), and its words cannot be read: {error}"),
    }
}
