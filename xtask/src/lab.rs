//! `cargo xtask lab …`: builds what the lab runs, then hands over.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use crate::shell::{self, as_root, cargo, status, workspace};

/// Arguments of `lab`: the lab's own.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What the lab is told; `cargo xtask lab --help` lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds agent and lab.
pub fn build() -> anyhow::Result<PathBuf> {
    shell::run(cargo().args([
        "build",
        "--release",
        "--quiet",
        "--package",
        "rollrace",
        "--package",
        "rollrace-lab",
    ]))?;
    Ok(workspace().join("target/release/rollrace-lab"))
}

/// Runs the lab and takes over its exit code.
pub fn hand_over(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let lab = build()?;
    let ended = status(as_root(lab).args(arguments).current_dir(workspace()))?;
    Ok(ended
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    hand_over(&args.arguments)
}
