//! `bench probe`: what a packet costs in each program.
//!
//! The kernel times every run of a program (`BPF_ENABLE_STATS`). That timing costs more than
//! the programs themselves, so an empty program is attached beside each of them, sees the same
//! packets, and is subtracted. The packets are made by hand and counted, so that each batch is of
//! one class. A batch that too many foreign packets got into (the tracepoints see all namespaces) is
//! thrown away, and further rounds are made in its place.
//!
//! # Layout
//! - [`world`]: a client, a node that DNATs, a backend
//! - [`frames`]: the packets
//! - [`wire`]: putting them on a link in batches
//! - [`measure`]: rounds of batches, timed
//! - [`report`]: median and spread, a table, a file, a comparison with an earlier one

mod frames;
mod measure;
mod report;
mod wire;
mod world;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;

use self::report::Report;

/// Options of `probe`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench probe --json before.json
  cargo xtask bench probe --against before.json     # after a change of the programs

Exit code: 0 if every bar is met, 1 if one is missed, 70 if it could not be measured. Needs root.")]
pub struct Args {
    /// Rounds; each sends a batch of every class
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// Packets of a batch
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u16).range(100..=20_000))]
    packets: u16,
    /// Another build of the eBPF object than the one the agent carries
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
    /// Read packets by the helper, as on kernels before 6.2; the bars are for plain loads
    #[arg(long)]
    helper: bool,
    /// Write the result to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Compare with an earlier result
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
}

/// Measures and reports.
///
/// # Errors
/// If it cannot measure.
pub fn run(args: &Args) -> Result<ExitCode> {
    let earlier = args.against.as_deref().map(Report::read).transpose()?;
    let report = Report::new(
        measure::rounds(args.rounds, args.packets, args.object.as_deref(), args.helper)?,
        args.packets,
    );
    println!("{}", report.table(earlier.as_ref()));
    if let Some(path) = &args.json {
        report.write(path)?;
    }
    let missed = report.missed();
    for line in &missed {
        println!("{line}");
    }
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
