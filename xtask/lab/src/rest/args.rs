//! The command line of `rest`.

use anyhow::Result;
use clap::Args;

use crate::cli::RunArgs;
use crate::isolate::LabArgs;

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
    /// Where it is played, and with what.
    #[command(flatten)]
    pub lab: LabArgs,
}

impl RestArgs {
    /// The options of a run with the same cluster and load.
    pub fn run_args(&self) -> Result<RunArgs> {
        let options = [
            ("setup", "readiness".to_owned()),
            ("mode", "fresh".to_owned()),
            ("seconds", self.seconds.to_string()),
            ("threads", self.threads.to_string()),
            ("lab-number", self.lab.number.to_string()),
        ];
        RunArgs::of_options(&options, self.lab.agent.as_deref())
    }
}
