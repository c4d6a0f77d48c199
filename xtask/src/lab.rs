//! `cargo xtask lab …`: builds what the lab runs, then hands over.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use crate::shell::{self, Build};

/// Arguments of `lab`: the lab's own.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What the lab is told; `cargo xtask lab --help` lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds agent and lab.
pub fn build() -> anyhow::Result<PathBuf> {
    shell::build_beside_agent("rollrace-lab", Build::Fast)
}

/// Runs the lab and takes over its exit code. What `rest` measures is a release build's.
pub fn hand_over(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let is_rest = arguments.first().is_some_and(|command| command == "rest");
    let build = if is_rest { Build::Release } else { Build::Fast };
    shell::hand_over(shell::build_beside_agent("rollrace-lab", build)?, arguments)
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    hand_over(&args.arguments)
}
