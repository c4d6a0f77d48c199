//! The reference experiment: the six setups in both modes, beside the counts that were published of it.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets};

use super::args::MatrixArgs;
use super::plan::{self, Cell};
use super::record::{Outcome, Record};
use crate::cli::Mode;
use crate::isolate::fresh_out_dir;
use crate::run::counts_text;
use crate::setup::Setup;

const EXAMPLES: &str = "\
Examples:
  The whole table, one lab at a time:
    rollrace-lab table --jobs 1

The published counts are of a real cluster, two runs each; here they depend on the machine, and only
their kind can be compared: which setup fails in which mode, and in which classes.

Exit code: 0 only if every cell is exact, 1 when one is not, 70 when the lab itself failed. Needs root.";

/// Options of `table`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct TableArgs {
    /// How long the clients of a cell make requests, in seconds
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(18..))]
    pub seconds: u64,
    /// Labs at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub jobs: u8,
    /// Directory for logs and results [default: a fresh one under target/lab]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The rollrace binary [default: the `rollrace` beside this one]
    #[arg(long, value_name = "PATH")]
    pub agent: Option<PathBuf>,
}

/// Failed requests as published, two runs: all, and those that began over 5 s after the rollout.
struct Published {
    failed: [u32; 2],
    after: Option<[u32; 2]>,
}

/// The counts of a cell. The last column was published for fresh connections.
fn published(setup: Setup, mode: Mode) -> Published {
    let (keepalive, fresh, after) = match setup {
        Setup::Naive => ([35, 43], [42, 29], [11, 3]),
        Setup::Readiness => ([17, 23], [37, 54], [4, 13]),
        Setup::Drain => ([3, 2], [45, 50], [7, 12]),
        Setup::Prestop => ([11, 11], [0, 0], [0, 0]),
        Setup::PrestopDrain => ([0, 0], [0, 0], [0, 0]),
        Setup::Ignore => ([10, 10], [0, 0], [0, 0]),
    };
    match mode {
        Mode::Keepalive => Published { failed: keepalive, after: None },
        Mode::Fresh => Published { failed: fresh, after: Some(after) },
    }
}

/// Plays the twelve cells and prints the table.
pub fn run(args: &TableArgs) -> Result<ExitCode> {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => fresh_out_dir("table")?,
    };
    std::fs::create_dir_all(&out).with_context(|| format!("create {}", out.display()))?;
    let cells: Vec<(Setup, Mode, Cell)> = Setup::value_variants()
        .iter()
        .flat_map(|setup| [Mode::Keepalive, Mode::Fresh].map(|mode| (*setup, mode)))
        .map(|(setup, mode)| (setup, mode, plan::rollout(setup, mode, 0, 0, args.seconds)))
        .collect();
    let due: Vec<Cell> = cells.iter().map(|(.., cell)| cell.clone()).collect();
    let mut record = Record::open(&out.join("cells.jsonl"))?;
    let options = MatrixArgs {
        seconds: args.seconds,
        jobs: args.jobs,
        threads: 10,
        only: Vec::new(),
        resume: None,
        list: false,
        out: Some(out.clone()),
        agent: args.agent.clone(),
    };
    let due: Vec<Cell> = due.into_iter().filter(|cell| !record.is_exact(&cell.name)).collect();
    super::play(&due, &options, &out, &mut record, Instant::now())?;
    let mut rows = Vec::new();
    for (setup, mode, cell) in &cells {
        rows.push((*setup, *mode, record.outcome(&cell.name)));
    }
    println!("{}", table(&rows));
    let exact = rows.iter().all(|(.., outcome)| outcome.is_some_and(|outcome| outcome.exact));
    for outcome in rows.iter().filter_map(|(.., outcome)| *outcome).filter(|o| !o.exact) {
        println!("{}: {}: {}", outcome.word(), outcome.name, outcome.why());
    }
    println!("everything: {}", out.display());
    Ok(if exact { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn table(rows: &[(Setup, Mode, Option<&Outcome>)]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header([
            "setup",
            "mode",
            "published",
            "failed here",
            "after, published",
            "after, here",
            "clients saw",
            "agents reported",
            "missed",
            "extra",
            "misattributed",
            "",
        ]);
    for (setup, mode, outcome) in rows {
        let was = published(*setup, *mode);
        let two = |[first, second]: [u32; 2]| format!("{first} / {second}");
        let after = was.after.map_or_else(|| "-".to_owned(), two);
        let mut row = vec![setup.name().to_owned(), mode.name().to_owned(), two(was.failed)];
        let Some(outcome) = outcome else {
            row.extend(["-".to_owned(), after]);
            table.add_row(row);
            continue;
        };
        let counts = &outcome.counts;
        let mut saw = counts_text(&counts.truth);
        for (what, count) in &counts.not_compared {
            // Writing to a String cannot fail.
            let _infallible = write!(saw, "; {count} {what} not compared");
        }
        row.extend([
            counts.failed.to_string(),
            after,
            counts.after_rollout.to_string(),
            saw,
            counts_text(&counts.agent),
            counts.missed.values().sum::<u64>().to_string(),
            counts.extra.values().sum::<u64>().to_string(),
            counts.misattributed.to_string(),
            outcome.word().to_owned(),
        ]);
        table.add_row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_for_each_setup_and_mode_even_without_a_result() {
        let rows: Vec<_> = Setup::value_variants()
            .iter()
            .flat_map(|setup| [Mode::Keepalive, Mode::Fresh].map(|mode| (*setup, mode, None)))
            .collect();
        let text = table(&rows).to_string();
        assert!(text.contains("37 / 54") && text.contains("17 / 23"));
        assert_eq!(text.matches("keepalive").count(), 6);
    }
}
