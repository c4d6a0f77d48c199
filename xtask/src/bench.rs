//! `cargo xtask bench …`: builds what is measured, then hands over.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use crate::shell::{self, as_root, cargo, status, workspace};

/// Arguments of `bench`: the benchmark's own.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What the benchmark is told; `cargo xtask bench --help` lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds the agent and the benchmark.
pub fn build() -> anyhow::Result<PathBuf> {
    shell::run(cargo().args([
        "build",
        "--release",
        "--quiet",
        "--package",
        "rollrace",
        "--package",
        "rollrace-bench",
    ]))?;
    Ok(workspace().join("target/release/rollrace-bench"))
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let program = build()?;
    let ended = status(as_root(program).args(&args.arguments).current_dir(workspace()))?;
    Ok(ended
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
