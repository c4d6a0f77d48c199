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
//! - `steps`: what is run in it, one after the other in one boot

mod boot;
mod kernel;
mod steps;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::ValueEnum;

use self::{kernel::Kernel, steps::What};
use crate::setup;

/// What a machine is given before it counts as hung: everything takes an hour on a busy machine.
const LIMIT: Duration = Duration::from_secs(5_400);
/// The same for what CI runs.
const GATE_LIMIT: Duration = Duration::from_secs(900);

/// Arguments of `vm`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask vm --kernel 6.1                        what CI runs on Linux 6.1\n  cargo xtask vm --kernel 6.12 --what tests --only vlan\n  cargo xtask vm --kernel latest --what all\n  cargo xtask vm --kernel 6.1 -- uname -a            any command"
)]
pub struct Args {
    /// Which kernel
    #[arg(long, value_enum)]
    kernel: Version,
    /// What is run in it
    #[arg(long, value_enum, default_value_t = What::Gate)]
    what: What,
    /// With `--what tests` or `cells`: only those whose name contains this
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

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    setup::ensure(setup::For::Vm, args.yes)?;
    let command = if args.command.is_empty() {
        steps::script(args.what, args.only.as_deref())?
    } else {
        args.command.join(" ")
    };
    played(args.kernel, &command, LIMIT).map(ExitCode::from)
}

/// What CI runs on a kernel.
///
/// # Errors
/// If the machine does not come to its end, or a step of it fails.
pub fn gate(version: Version) -> anyhow::Result<()> {
    setup::ensure(setup::For::Vm, std::env::var_os("CI").is_some())?;
    match played(version, &steps::script(What::Gate, None)?, GATE_LIMIT)? {
        0 => Ok(()),
        code => anyhow::bail!("it ended with {code}: its steps are named above"),
    }
}

fn played(version: Version, command: &str, limit: Duration) -> anyhow::Result<u8> {
    let kernel = Kernel::get(version)?;
    println!("=== Linux {} in qemu", kernel.release);
    let began = Instant::now();
    let code = boot::run(&kernel, command, limit)?;
    println!(
        "=== Linux {} ended with {code} after {} s",
        kernel.release,
        began.elapsed().as_secs()
    );
    Ok(code)
}
