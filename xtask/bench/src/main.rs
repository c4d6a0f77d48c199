//! `rollrace-bench`: what the probes cost a packet, and whether anything is lost under load.
//!
//! # Layout
//! - [`probe`]: the cost of each program above an empty one on the same tracepoint
//! - [`loss`]: thousands of new connections a second, and every one of them accounted for
//! - [`conntrack`]: what one scan of a large conntrack table costs
//! - [`namespace`]: network namespaces held by descriptors; nothing outlives a run

mod conntrack;
mod loss;
mod namespace;
mod probe;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures rollrace's probes in network namespaces of its own.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Cost of a packet in each program, above an empty program on the same tracepoint
    Probe(probe::Args),
    /// Thousands of new connections a second through a Service while a backend leaves
    Loss(loss::Args),
    /// Processor time of one scan of a large conntrack table
    Conntrack(conntrack::Args),
}

/// `EX_USAGE` of sysexits.h.
const BAD_USAGE: u8 = 64;
/// `EX_SOFTWARE`.
const INTERNAL: u8 = 70;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to tell when the terminal is gone.
            drop(error.print());
            return if error.use_stderr() { ExitCode::from(BAD_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let result = match cli.command {
        Command::Probe(args) => probe::run(&args),
        Command::Loss(args) => loss::run(&args),
        Command::Conntrack(args) => conntrack::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("rollrace-bench: {error:#}");
        ExitCode::from(INTERNAL)
    })
}
