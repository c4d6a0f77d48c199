//! The matrix: every cell of setup × mode × agent watch delay × proxy watch delay, some rollouts in
//! IPv6 and dual stack, and every attribution scenario and fault, several labs at a time.
//!
//! # Layout
//! - `args`: the command line
//! - `plan`: the cells, and how long each takes; pure
//! - `cell`: one cell as a lab of its own
//! - `record`: what became of the cells, line by line in a file, so that a matrix can be resumed
//! - [`mod@reference`]: the reference experiment's table, beside the published counts
//! - `table`: the table at the end

mod args;
mod cell;
mod plan;
mod record;
mod reference;
mod table;

pub use args::MatrixArgs;
pub use reference::{TableArgs, run as run_reference};

use std::collections::VecDeque;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use self::plan::{Cell, Pace};
use self::record::{Outcome, Record};
use crate::cli::BAD_USAGE;
use crate::isolate::fresh_out_dir;

/// Runs the matrix.
pub fn run(args: &MatrixArgs) -> Result<ExitCode> {
    let cells = plan::cells(args.seconds);
    let cells: Vec<Cell> = cells.into_iter().filter(|cell| args.wants(&cell.name)).collect();
    if cells.is_empty() {
        eprintln!("rollrace-lab: no cell is named so: `rollrace-lab matrix --list` names them");
        return Ok(ExitCode::from(BAD_USAGE));
    }
    if args.list {
        for cell in &cells {
            println!("{:<32} {}", cell.name, cell.arguments.join(" "));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let out = match &args.out {
        Some(out) => out.clone(),
        None => fresh_out_dir("matrix")?,
    };
    std::fs::create_dir_all(&out).with_context(|| format!("create {}", out.display()))?;
    let file = args.resume.clone().unwrap_or_else(|| out.join("cells.jsonl"));
    let mut record = Record::open(&file)?;
    let due: Vec<Cell> =
        cells.iter().filter(|cell| !record.is_exact(&cell.name)).cloned().collect();
    let expected = plan::expected(&due, args.jobs);
    println!(
        "{} cells, {} of them exact already; {} at a time: about {}",
        cells.len(),
        cells.len() - due.len(),
        args.jobs,
        in_words(expected)
    );
    println!("to resume it: --resume {}", file.display());
    let began = Instant::now();
    play(&due, args, &out, &mut record, began)?;
    let took = began.elapsed();

    let outcomes: Vec<&Outcome> =
        cells.iter().filter_map(|cell| record.outcome(&cell.name)).collect();
    println!("{}", table::table(&outcomes));
    let exact = outcomes.iter().filter(|outcome| outcome.exact).count();
    let path = out.join("matrix.json");
    let json = json!({
        "cells": outcomes, "exact": exact, "total": cells.len(),
        "jobs": args.jobs, "seconds": args.seconds, "took_seconds": took.as_secs(),
    });
    std::fs::write(&path, serde_json::to_string_pretty(&json)?)
        .with_context(|| format!("write {}", path.display()))?;
    println!("{exact} of {} cells are exact; took {}", cells.len(), in_words(took));
    for outcome in &outcomes {
        if !outcome.exact {
            println!("{}: {}: {}", outcome.word(), outcome.name, outcome.why());
        }
        if let Some(reason) = &outcome.played_again {
            println!("played again: {}: {reason}", outcome.name);
        }
    }
    println!("as JSON: {}", path.display());
    Ok(if exact == cells.len() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Plays the cells, each in a lab of its own, and notes each outcome as it comes.
fn play(
    due: &[Cell],
    args: &MatrixArgs,
    out: &Path,
    record: &mut Record,
    began: Instant,
) -> Result<()> {
    let queue: Mutex<VecDeque<&Cell>> = Mutex::new(due.iter().collect());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (tell, outcomes) = mpsc::sync_channel(due.len().max(1));
    std::thread::scope(|scope| {
        for job in 0..args.jobs {
            let (tell, next) = (tell.clone(), &next);
            scope.spawn(move || {
                // Labs that start at the same moment would build and roll out at the same moment.
                std::thread::sleep(plan::STAGGER * u32::from(job));
                while let Some(cell) = next() {
                    if tell.send(cell::play(cell, args, out)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(tell);
        let mut left = due.to_vec();
        let mut pace = Pace { jobs: args.jobs, elapsed: Duration::ZERO, expected: 0, took: 0 };
        for (done, outcome) in (1..).zip(outcomes) {
            let outcome = outcome?;
            let ended = left.iter().position(|cell| cell.name == outcome.name);
            pace.expected += ended.map_or(0, |at| left.remove(at).expected_seconds);
            pace.took += outcome.took_seconds;
            pace.elapsed = began.elapsed();
            let eta = plan::remaining(&left, pace);
            println!(
                "[{done:>3}/{}] {:<32} {:<9} {:>3} s  {}; {} left",
                due.len(),
                outcome.name,
                outcome.word(),
                outcome.took_seconds,
                outcome.counts(),
                in_words(eta)
            );
            record.add(outcome)?;
        }
        Ok(())
    })
}

fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..100 => format!("{seconds} s"),
        _ => format!("{} min", seconds.div_ceil(60)),
    }
}
