//! Isolation by construction: a lab lives in pid, mount and network namespaces of its own.
//!
//! The command that a person started (outside) only starts itself again as PID 1 of a new pid
//! namespace (inside) and waits. When the outside process ends, however it ends, the kernel kills
//! that PID 1 (`PR_SET_PDEATHSIG`, and a pipe for the moment before it), and with it every process
//! of the lab; the network namespaces, links and rules have no other holder and go too. Nothing is
//! ever made outside, so there is nothing to clean up, and several labs can run at once.

use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;

use crate::net::LabNumber;

/// Exit code when something needed is not there, from sysexits.h.
const UNAVAILABLE: u8 = 69;

/// Options of every command that plays one lab.
#[derive(Debug, Clone, clap::Args)]
pub struct LabArgs {
    /// Print the result as one JSON object, as the last line
    #[arg(long)]
    pub json: bool,
    /// Directory for logs and results [default: a fresh one under target/lab]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The rollrace binary [default: the `rollrace` beside this one]
    #[arg(long, value_name = "PATH")]
    pub agent: Option<PathBuf>,
    /// This process is already the first one of the lab's own namespaces
    #[arg(long, hide = true)]
    pub inside: bool,
    /// Which addresses to use: no two labs that run at the same time have the same
    #[arg(long = "lab-number", hide = true, default_value_t = 0)]
    pub number: u8,
}

/// What the outside process has to know of a lab before it starts it.
#[derive(Debug)]
pub struct Outside<'a> {
    /// Part of the out directory's name, when that is made here.
    pub name: &'a str,
    /// The out directory, when it was given.
    pub out: Option<&'a Path>,
    /// The agent's binary, unless the lab runs none.
    pub agent: Option<PathBuf>,
}

impl Outside<'_> {
    /// What the lab needs and does not have.
    fn lacking(&self) -> Option<String> {
        if !nix::unistd::geteuid().is_root() {
            return Some(
                "the lab makes network namespaces: run it as root, or with sudo".to_owned(),
            );
        }
        let agent = self.agent.as_ref().filter(|agent| !agent.is_file())?;
        Some(format!(
            "there is no agent at {}: build it (`cargo build -p rollrace`), give its path with --agent, or use --no-agent",
            agent.display()
        ))
    }
}

/// Starts the lab inside new namespaces, with this process's own arguments, and waits for it.
pub fn run(outside: &Outside<'_>) -> Result<ExitCode> {
    if let Some(lacking) = outside.lacking() {
        eprintln!("rollrace-lab: {lacking}");
        return Ok(ExitCode::from(UNAVAILABLE));
    }
    let out = match outside.out {
        Some(out) => out.to_owned(),
        None => fresh_out_dir(outside.name)?,
    };
    let number = LabNumber::take()?;
    // The write end stays here, open as long as this process lives.
    let (lifeline, _held) = std::io::pipe().context("make the lifeline pipe")?;
    let status = first_process(outside.out.is_some(), &out, number.number)?
        .stdin(lifeline)
        .status()
        .context("start the lab's first process")?;
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(70))),
        (None, signal) => bail!("the lab's first process was ended by signal {signal:?}"),
    }
}

/// The command that runs the lab as PID 1 of a new pid namespace. The next child of this process
/// is that PID 1, so a process can do this once only.
fn first_process(out_given: bool, out: &Path, number: u8) -> Result<Command> {
    fs::create_dir_all(out).with_context(|| format!("create the directory {}", out.display()))?;
    let out = fs::canonicalize(out)
        .with_context(|| format!("resolve the directory {}", out.display()))?;
    let mut command = Command::new("/proc/self/exe");
    command
        .args(std::env::args_os().skip(1))
        .arg("--inside")
        .arg("--lab-number")
        .arg(number.to_string());
    if !out_given {
        command.arg("--out").arg(&out);
    }
    unshare(CloneFlags::CLONE_NEWPID)
        .context("make a pid namespace (needs root or CAP_SYS_ADMIN)")?;
    die_with_parent(&mut command);
    Ok(command)
}

/// Has the kernel kill a child as soon as the thread that starts it is gone.
pub fn die_with_parent(command: &mut Command) {
    // SAFETY: prctl is async-signal-safe and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            Ok(())
        });
    }
}

/// Ends this process when the outside one is gone: the lifeline is its standard input. It covers
/// the moment before `PR_SET_PDEATHSIG` is in force.
fn hold_lifeline() {
    std::thread::spawn(|| {
        let mut byte = [0_u8; 1];
        while matches!(std::io::stdin().read(&mut byte), Ok(1..)) {}
        std::process::exit(70);
    });
}

/// Completes the isolation from within: called first by PID 1, while it has a single thread.
pub fn complete() -> Result<()> {
    ensure!(
        std::process::id() == 1,
        "`--inside` is for the lab's own first process: run without it"
    );
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
        .context("make a mount and a network namespace")?;
    let nothing: Option<&str> = None;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)
        .context("make the mounts private")?;
    // A fresh /proc for the new pid namespace; the old one shows the wrong processes.
    if let Err(error) = umount2("/proc", MntFlags::MNT_DETACH) {
        tracing::debug!(%error, "the old /proc stays below the new one");
    }
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), nothing)
        .context("mount a fresh /proc")?;
    // The named network namespaces, and the lock of iptables, live in /run.
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), nothing)
        .context("mount a private /run")?;
    fs::create_dir("/run/netns").context("create /run/netns")?;
    hold_lifeline();
    Ok(())
}

/// Completes the isolation and plays something in the lab, as PID 1 with its log in the out directory.
pub fn play<T>(out: &Path, what: impl Future<Output = Result<T>>) -> Result<T> {
    complete()?;
    crate::run::log_to(&out.join("lab.log"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the lab's runtime")?;
    runtime.block_on(what)
}

/// Shows the cgroups of version 2 alone, to this process and its children: crun refuses a mixture, and
/// makes none of its own here.
pub fn unify_cgroups() -> Result<()> {
    let (nothing, folder): (Option<&str>, _) = (None, "/sys/fs/cgroup");
    if let Err(error) = umount2(folder, MntFlags::MNT_DETACH) {
        tracing::debug!(%error, "no cgroups are mounted");
    }
    mount(Some("none"), folder, Some("cgroup2"), MsFlags::empty(), nothing)
        .context("mount the cgroups of version 2, for crun")
}

/// A directory of its own for each run: `target/lab/<time>-<name>-<pid>`.
pub fn fresh_out_dir(name: &str) -> Result<PathBuf> {
    let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let out = Path::new("target/lab").join(format!("{now}-{name}-{}", std::process::id()));
    fs::create_dir_all(&out).with_context(|| format!("create the directory {}", out.display()))?;
    Ok(out)
}
