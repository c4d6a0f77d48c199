//! The command lines of `soak`, and of its processes.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::cli::RunArgs;
use crate::isolate::LabArgs;

const EXAMPLES: &str = "\
Examples:
  Five minutes of every kind of traffic without a rollout, then an orderly one:
    rollrace-lab soak

  A minute, and a JSON object as the last line:
    rollrace-lab soak --seconds 60 --json

Exit code: 0 when nothing was reported but the real failures, and all of these, 1 when not, 64 for bad
usage, 69 without the rights or the agent that it needs, 70 when the lab itself failed. Needs root.";

/// Options of `soak`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct SoakArgs {
    /// How long the traffic goes on before the rollout, in seconds
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub seconds: u64,
    /// Where it is played, and with what.
    #[command(flatten)]
    pub lab: LabArgs,
}

impl SoakArgs {
    /// The options of a run with the same cluster.
    pub fn run_args(&self) -> Result<RunArgs> {
        let options = [
            ("setup", "prestop-drain".to_owned()),
            ("mode", "keepalive".to_owned()),
            ("seconds", self.seconds.to_string()),
            ("lab-number", self.lab.number.to_string()),
        ];
        RunArgs::of_options(&options, self.lab.agent.as_deref())
    }
}

/// Options of the server that a soak's pods run.
#[derive(Debug, Clone, Args)]
pub struct SoakServerArgs {
    /// The pod's name, told in each answer
    #[arg(long, env = "HOSTNAME")]
    pub pod: String,
}

/// Options of the client of a soak.
#[derive(Debug, Clone, Args)]
pub struct SoakClientArgs {
    /// What its logs' names begin with
    #[arg(long)]
    pub name: String,
    /// Folder of its logs
    #[arg(long)]
    pub logs: PathBuf,
    /// The Services, one for each kind of traffic, in their order
    #[arg(long, required = true)]
    pub target: Vec<SocketAddr>,
}
