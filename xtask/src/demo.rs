//! `cargo xtask demo`

use std::process::ExitCode;

use crate::{lab, setup};

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Install what is missing without asking
    #[arg(long, short)]
    yes: bool,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    setup::ensure(setup::For::Lab, args.yes)?;
    println!(
        "Building the eBPF object, the agent and the lab (minutes the first time, seconds after)"
    );
    lab::hand_over(&["demo".into()])
}
