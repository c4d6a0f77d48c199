//! `cargo xtask vm`: the kernel tests and a cell of the lab on another kernel, in qemu.
//!
//! The machine boots Debian's kernel with this machine's own file system beneath it, read-only, and a
//! memory file system on top: every program and library that is here is there, and nothing that is
//! done there stays. There is no KVM in it, so that it runs wherever qemu does; it is some ten times
//! slower than the machine itself.
//!
//! # Layout
//! - `kernel`: Debian's kernel packages, unpacked
//! - `boot`: the initial file system, and the machine

mod boot;
mod kernel;

use std::{
    path::PathBuf,
    process::{ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::ValueEnum;

use self::kernel::Kernel;
use crate::{
    setup,
    shell::{self, cargo, workspace},
};

/// What a machine is given before it counts as hung.
const KERNEL_TESTS: Duration = Duration::from_secs(1_500);

/// Arguments of `vm`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask vm --kernel 6.1                        the kernel tests on Linux 6.1\n  cargo xtask vm --kernel 6.12 --what cell           a rollout in the lab\n  cargo xtask vm --kernel 6.1 -- uname -a            any command"
)]
pub struct Args {
    /// Which kernel
    #[arg(long, value_enum)]
    kernel: Version,
    /// What is run in it
    #[arg(long, value_enum, default_value_t = What::Tests)]
    what: What,
    /// Only kernel tests whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Install what is missing without asking
    #[arg(long, short)]
    yes: bool,
    /// A command to run instead
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// A kernel of Debian.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Version {
    /// Debian 12's own
    #[value(name = "6.1")]
    V6_1,
    /// Debian 13's, for Debian 12
    #[value(name = "6.12")]
    V6_12,
    /// The newest in Debian 13's backports
    Latest,
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// The tests of the probes against the kernel
    Tests,
    /// A rollout in the lab: clients and agents must agree
    Cell,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    setup::ensure(setup::For::Vm, args.yes)?;
    let (command, limit) = if args.command.is_empty() {
        (commands(args.what, args.only.as_deref())?, KERNEL_TESTS)
    } else {
        (args.command.join(" "), KERNEL_TESTS)
    };
    let kernel = Kernel::get(args.kernel)?;
    println!("=== Linux {} in qemu: {command}", kernel.release);
    let began = Instant::now();
    let code = boot::run(&kernel, &command, limit)?;
    println!("=== it ended with {code} after {} s", began.elapsed().as_secs());
    Ok(ExitCode::from(code))
}

/// Builds what is to be run; the command for it.
fn commands(what: What, only: Option<&str>) -> anyhow::Result<String> {
    match what {
        What::Tests => {
            let tests = test_binary()?;
            let folder = workspace().join("agent");
            let only = only.unwrap_or_default();
            Ok(format!("cd {} && {} --test-threads=1 {only}", folder.display(), tests.display()))
        }
        What::Cell => {
            shell::run(cargo().args([
                "build",
                "--quiet",
                "--package",
                "rollrace",
                "--package",
                "rollrace-lab",
            ]))?;
            let (folder, lab) = (workspace(), workspace().join("target/debug/rollrace-lab"));
            let run = "run --setup readiness --mode fresh --seconds 40 --threads 4";
            Ok(format!("cd {} && {} {run}", folder.display(), lab.display()))
        }
    }
}

/// Builds the kernel tests.
fn test_binary() -> anyhow::Result<PathBuf> {
    let build = ["test", "--package", "rollrace", "--test", "kernel", "--no-run"];
    let output = cargo()
        .args(build)
        .arg("--message-format=json")
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the kernel tests do not build");
    }
    // One message a line; the last executable is the test's own.
    let text = String::from_utf8_lossy(&output.stdout);
    let marker = "\"executable\":\"";
    let path = text.lines().rev().find_map(|line| {
        let rest = &line[line.find(marker)? + marker.len()..];
        rest.split('"').next().filter(|path| path.contains("/kernel-"))
    });
    path.map(PathBuf::from).context("cargo did not say where the kernel tests are")
}
