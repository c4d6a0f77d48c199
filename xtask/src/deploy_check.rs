//! `cargo xtask deploy-check`: whether what `deploy/` holds is what it should be.

use std::process::ExitCode;

use crate::{
    setup,
    shell::{self, cargo},
};

/// Arguments of `deploy-check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Install what is missing without asking
    #[arg(long, short)]
    yes: bool,
}

/// Runs it: manifests, chart, rules and dashboards are checked by tests of their own package.
///
/// # Errors
/// If a check fails.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    setup::ensure(setup::For::Deploying, args.yes)?;
    check()?;
    Ok(ExitCode::SUCCESS)
}

/// The checks alone.
///
/// # Errors
/// If one fails.
pub fn check() -> anyhow::Result<()> {
    shell::run(cargo().args(["test", "--package", "rollrace-deploy"]))
}
