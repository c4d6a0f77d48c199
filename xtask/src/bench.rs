//! `cargo xtask bench …`: builds what is measured, then hands over.

use std::{ffi::OsString, process::ExitCode};

use crate::shell::{self, as_root, cargo, status, workspace};

/// Arguments of `bench`: the benchmark's own.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What the benchmark is told; `cargo xtask bench --help` lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds the agent and the benchmark, and runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    shell::run(cargo().args([
        "build",
        "--release",
        "--quiet",
        "--package",
        "rollrace",
        "--package",
        "rollrace-bench",
    ]))?;
    let program = workspace().join("target/release/rollrace-bench");
    let ended = status(as_root(program).args(&args.arguments).current_dir(workspace()))?;
    Ok(ended
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
