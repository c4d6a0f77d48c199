//! Builds, tests, demonstrates and measures rollrace: one enum, one file a command.
//!
//! It has next to no dependencies, so that `cargo xtask …` speaks a few seconds after a fresh clone.

mod bench;
mod checks;
mod demo;
mod deploy_check;
mod image;
mod lab;
mod setup;
mod shell;
mod test;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, tests and demonstrates rollrace.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    max_term_width = 100,
    after_help = "Examples:\n  cargo xtask demo           see it work, in under 3 minutes once built\n  cargo xtask test           everything that CI runs\n  cargo xtask lab run --setup readiness --mode fresh --seconds 30"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what building and running needs (asks first on a terminal)
    Setup(setup::Args),
    /// Roll out a Deployment under load, twice, with an agent on each node, and compare
    Demo(demo::Args),
    /// Everything that CI runs: lints, documentation, unit, kernel and lab tests
    Test(test::Args),
    /// Manifests, chart, rules and dashboards: valid, the same, and of metrics that there are
    DeployCheck(deploy_check::Args),
    /// A static binary, and an image from scratch around it
    Image(image::Args),
    /// The lab: a Kubernetes cluster on one machine, out of network namespaces
    #[command(disable_help_flag = true)]
    Lab(lab::Args),
    /// What the probes cost a packet, and whether anything is lost under load
    #[command(disable_help_flag = true)]
    Bench(bench::Args),
    /// The kernel tests, or a rollout in the lab, on another kernel, in qemu
    Vm(vm::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Setup(args) => setup::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => test::run(&args),
        Command::DeployCheck(args) => deploy_check::run(&args),
        Command::Image(args) => image::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Vm(args) => vm::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(70)
        }
    }
}
