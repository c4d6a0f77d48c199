//! The command line of `rest`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::cli::RunArgs;

const EXAMPLES: &str = "\
Example:
    rollrace-lab rest --seconds 20

Exit code: 0 when every agent stays below 40 MiB resident and 1 % of a core, and no connection
fails; 1 when not, 64 for bad usage, 69 without the rights or the agent that it needs, 70 when the
lab itself failed. Needs root; the figures are those of a release build.";

/// Options of `rest`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct RestArgs {
    /// How long each of the two phases is measured, in seconds
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub seconds: u64,
    /// Threads of each of the two clients in the phase with traffic, each with 20 requests a second
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub threads: usize,
    /// Print the result as one JSON object, as the last line
    #[arg(long)]
    pub json: bool,
    /// Directory for logs and results [default: a fresh one under target/lab]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The rollrace binary [default: the `rollrace` beside this one]
    #[arg(long, value_name = "PATH")]
    pub agent: Option<PathBuf>,
    /// This process is already the first one of the lab's own namespaces
    #[arg(long, hide = true)]
    pub inside: bool,
    /// Which addresses to use: no two labs that run at the same time have the same
    #[arg(long, hide = true, default_value_t = 0)]
    pub lab_number: u8,
}

impl RestArgs {
    /// The options of a run with the same cluster and load.
    pub fn run_args(&self) -> Result<RunArgs> {
        let options = [
            ("setup", "readiness".to_owned()),
            ("mode", "fresh".to_owned()),
            ("seconds", self.seconds.to_string()),
            ("threads", self.threads.to_string()),
            ("lab-number", self.lab_number.to_string()),
        ];
        RunArgs::of_options(&options, self.agent.as_deref())
    }
}
