//! What watches connections while they are made: nothing, the agent, and others that could tell of them.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    thread,
};

use anyhow::{Context as _, Result};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::signal::Signal,
};

use crate::{agent::Agent, namespace::Namespace};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// Nobody.
    Nobody,
    /// rollrace.
    Agent,
    /// A program, its arguments, and what it says on standard error once it watches; nothing: it says
    /// nothing, and watches at once.
    Program(&'static str, &'static [&'static str], Option<&'static str>),
}

/// All of them, nobody first.
pub const ALL: [Watcher; 5] = [
    Watcher::Nobody,
    Watcher::Agent,
    Watcher::Program(
        "bpftrace",
        &[
            "-B",
            "none",
            "-e",
            "BEGIN { printf(\"begun\\n\"); } tracepoint:sock:inet_sock_set_state { @[args->newstate] = count(); }",
        ],
        Some("begun"),
    ),
    Watcher::Program(
        "tcpdump",
        &["-i", "any", "-n", "-w", "/dev/null", "tcp[tcpflags] & (tcp-syn|tcp-rst) != 0"],
        Some("listening on"),
    ),
    Watcher::Program("conntrack", &["-E", "-p", "tcp"], None),
];

/// One that watches.
pub enum Watching {
    /// See [`Watcher::Nobody`].
    Nobody,
    /// The agent's process.
    Agent(Agent),
    /// The program's.
    Program(Child),
}

impl Watcher {
    /// The name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Agent => "rollrace",
            Self::Program("bpftrace", ..) => "bpftrace on connect states",
            Self::Program("tcpdump", ..) => "tcpdump on SYN and RST",
            Self::Program("conntrack", ..) => "conntrack -E",
            Self::Program(program, ..) => program,
        }
    }

    /// Whether it is there.
    pub fn is_installed(self) -> bool {
        let Self::Program(program, ..) = self else { return true };
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let usual = ["/usr/sbin", "/sbin"].map(Into::into);
        std::env::split_paths(&folders).chain(usual).any(|folder| folder.join(program).exists())
    }

    /// Lets it watch the node, and waits until it does.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(self, node: &Namespace, agent: &Path) -> Result<Watching> {
        Ok(match self {
            Self::Nobody => Watching::Nobody,
            Self::Agent => {
                let mut agent = Agent::start(agent, node, &[])?;
                agent.ready()?;
                Watching::Agent(agent)
            }
            Self::Program(program, arguments, says) => {
                let namespace = node.clone();
                let mut command = Command::new(program);
                command
                    .args(arguments)
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped());
                // SAFETY: only system calls, which touch no memory of the parent's.
                unsafe {
                    command.pre_exec(move || {
                        namespace.enter().map_err(std::io::Error::other)?;
                        show_tracepoints()?;
                        // It does not outlive this process, however that ends.
                        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(Into::into)
                    });
                }
                let mut child = command.spawn().with_context(|| format!("start {program}"))?;
                let mut out = child.stdout.take().context("a child's output")?;
                let errors = child.stderr.take().context("a child's errors")?;
                // bpftrace prints its first line to standard output, tcpdump to standard error.
                if let Some(says) = says {
                    await_words(&mut out, errors, says)
                        .with_context(|| format!("wait until {program} watches"))?;
                } else {
                    drain(errors);
                }
                drain(out);
                Watching::Program(child)
            }
        })
    }
}

/// bpftrace looks tracepoints up in tracefs, which need not be mounted: here it is, for this process alone.
fn show_tracepoints() -> nix::Result<()> {
    let nothing = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
    mount(Some("tracefs"), "/sys/kernel/tracing", Some("tracefs"), MsFlags::empty(), nothing)
}

/// Reads until a line begins so, on either of the two; standard error is read on in any case.
fn await_words(out: &mut impl std::io::Read, errors: ChildStderr, says: &str) -> Result<()> {
    let mut lines = BufReader::new(errors);
    let mut line = String::new();
    if says == "listening on" {
        while !line.contains(says) {
            line.clear();
            anyhow::ensure!(lines.read_line(&mut line)? > 0, "it ended");
        }
        drain(lines);
        return Ok(());
    }
    drain(lines);
    let mut seen = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&seen).contains(says) {
        anyhow::ensure!(out.read(&mut byte)? > 0, "it ended");
        seen.push(byte[0]);
    }
    Ok(())
}

/// Reads what somebody says, as a terminal or a pipe would, so that it is not held up.
fn drain(mut from: impl std::io::Read + Send + 'static) {
    thread::spawn(move || std::io::copy(&mut from, &mut std::io::sink()));
}

impl Watching {
    /// Ends it.
    ///
    /// # Errors
    /// If the agent does not end in time.
    pub fn stop(self) -> Result<()> {
        match self {
            Self::Nobody => Ok(()),
            Self::Agent(agent) => agent.stop(),
            Self::Program(mut child) => {
                child.kill().context("end a program")?;
                child.wait().map(drop).context("wait for a program")
            }
        }
    }
}
