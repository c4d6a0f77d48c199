//! `bench loss`
use std::process::ExitCode;
/// Options of `loss`.
#[derive(Debug, clap::Args)]
pub struct Args {}
/// Runs it.
pub fn run(_args: &Args) -> anyhow::Result<ExitCode> { Ok(ExitCode::SUCCESS) }
