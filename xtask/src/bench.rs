//! `cargo xtask bench …`: builds what is measured, then hands over.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use crate::shell::{self, Build};

/// Arguments of `bench`: the benchmark's own.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What the benchmark is told; `cargo xtask bench --help` lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds the agent and the benchmark.
pub fn build(build: Build) -> anyhow::Result<PathBuf> {
    shell::build_beside_agent("rollrace-bench", build)
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    shell::hand_over(build(Build::Release)?, &args.arguments)
}
