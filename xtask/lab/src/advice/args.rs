//! The command lines of `advice` and of its cells.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::api::VERSION;
use crate::setup::Setup;

const EXAMPLES: &str = "\
Examples:
  Every setup, two at a time:
    rollrace-lab advice

  Two of them, as JSON:
    rollrace-lab advice --setup naive --setup prestop --json

In each setup the Deployment rolls out under load, half of it a connection for each request, half of it
connections that are kept. Then what `rollrace explain` prints is done: its patch goes to the API server
as kubectl patch would send it, and where it advises to drain, the application drains. When the pods of
before are gone, the patched ones roll out under the same load.

Exit code: 0 only if no request failed the second time where anything was advised, and nothing was
advised where nothing had failed; 1 when not, 64 for bad usage, 69 without the rights or the agent that it
needs, 70 when the lab itself failed. Needs root.";

/// Options of `advice`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct AdviceArgs {
    /// Only this setup; repeatable
    #[arg(long, value_enum)]
    pub setup: Vec<Setup>,
    /// The version that the API server says it is: before v1.30 explain advises an exec, not the sleep
    /// action
    #[arg(long, value_name = "VERSION", default_value = VERSION)]
    pub kubernetes: String,
    /// Labs at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub jobs: u8,
    /// Print the outcomes as one JSON array, as the last line
    #[arg(long)]
    pub json: bool,
    /// Directory for logs and results [default: a fresh one under target/lab]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The rollrace binary [default: the `rollrace` beside this one]
    #[arg(long, value_name = "PATH")]
    pub agent: Option<PathBuf>,
}

impl AdviceArgs {
    /// The setups to play, in the order of the reference experiment.
    pub fn setups(&self) -> Vec<Setup> {
        let wanted = |setup: &&Setup| self.setup.is_empty() || self.setup.contains(setup);
        Setup::value_variants().iter().filter(wanted).copied().collect()
    }
}

/// Options of one setup's lab.
#[derive(Debug, Clone, Args)]
pub struct CellArgs {
    /// How the pods begin and end
    #[arg(long, value_enum)]
    pub setup: Setup,
    /// The version that the API server says it is
    #[arg(long, value_name = "VERSION", default_value = VERSION)]
    pub kubernetes: String,
    /// Directory for logs and results
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The rollrace binary
    #[arg(long, value_name = "PATH")]
    pub agent: Option<PathBuf>,
    /// This process is already the first one of the lab's own namespaces
    #[arg(long, hide = true)]
    pub inside: bool,
    /// Which addresses to use
    #[arg(long, hide = true, default_value_t = 0)]
    pub lab_number: u8,
}
