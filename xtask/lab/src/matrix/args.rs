//! The command line of `matrix`.

use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  Everything, and again what was not exact or not reached:
    rollrace-lab matrix --out target/lab/matrix
    rollrace-lab matrix --resume target/lab/matrix/cells.jsonl

  Some cells:
    rollrace-lab matrix --only readiness-fresh
    rollrace-lab matrix --list

Exit code: 0 only if every cell is exact, 1 when one is not, 64 for bad usage, 70 when the lab
itself failed. Needs root.";

/// Options of `matrix`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct MatrixArgs {
    /// How long the clients of a cell make requests, in seconds; longer where a setup needs it
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(18..))]
    pub seconds: u64,
    /// Labs at a time; on a machine that is too busy the clients' clocks are no truth any more
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub jobs: u8,
    /// Threads of each client
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub threads: usize,
    /// Only cells whose name has this in it; repeatable
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub only: Vec<String>,
    /// Skip the cells that are exact by this file, and add the others to it
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// List the cells
    #[arg(long)]
    pub list: bool,
    /// Directory for logs and results [default: a fresh one under target/lab]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The rollrace binary [default: the `rollrace` beside this one]
    #[arg(long, value_name = "PATH")]
    pub agent: Option<PathBuf>,
}

impl MatrixArgs {
    /// Whether a cell was asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|pattern| name.contains(pattern.as_str()))
    }
}
