//! `rollrace-bench`: what the agent costs, and whether anything is lost under load.
//!
//! # Layout
//! - [`probe`]: the cost of each program above an empty one on the same tracepoint
//! - [`loss`]: thousands of new connections a second, and every one of them accounted for
//! - [`bulk`]: large transfers up and down through a Service
//! - [`engine`]: records of the ring buffer a second, decoded and decided
//! - [`scale`]: memory and time of an agent in a large cluster
//! - [`throughput`]: connections and bytes through a Service, with and without somebody who watches
//! - [`conntrack`]: what one scan of a large conntrack table costs
//! - [`agent`]: the real agent as a process
//! - [`figures`]: figures with their bars, as a table and as a file
//! - [`namespace`]: network namespaces held by descriptors; nothing outlives a run

mod agent;
mod bulk;
mod conntrack;
mod engine;
mod figures;
mod loss;
mod namespace;
mod probe;
mod scale;
mod throughput;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures what rollrace costs, in network namespaces of its own.
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
    /// Large transfers through a Service, up and down, with the probes and without
    Bulk(bulk::Args),
    /// Records of the ring buffer a second, decoded and decided on one core
    Engine(engine::Args),
    /// Memory and processor time of an agent in a large cluster; start, changes, a relist
    Scale(scale::Args),
    /// New connections and bytes through a Service: nobody watches, the agent does, others do
    Throughput(throughput::Args),
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
        Command::Bulk(args) => bulk::run(&args),
        Command::Engine(args) => engine::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Throughput(args) => throughput::run(&args),
        Command::Conntrack(args) => conntrack::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("rollrace-bench: {error:#}");
        ExitCode::from(INTERNAL)
    })
}
