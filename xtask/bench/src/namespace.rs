//! Network namespaces held by a descriptor: gone with the process, however it ends.

use std::{
    fs::{self, File},
    io::Write as _,
    os::fd::AsRawFd as _,
    panic,
    process::{self, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace without a name; it lives as long as one of its clones.
#[derive(Clone, Debug)]
pub struct Namespace {
    file: Arc<File>,
}

impl Namespace {
    /// A new one, its loopback up.
    ///
    /// # Errors
    /// Without the right to make one.
    pub fn new() -> Result<Self> {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .context("make a network namespace (run it as root)")?;
            File::open("/proc/thread-self/ns/net").context("open the new network namespace")
        });
        let file =
            made.join().map_err(|_| anyhow!("the thread that makes a namespace panicked"))??;
        let namespace = Self { file: Arc::new(file) };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Runs something in a thread that lives there.
    ///
    /// # Errors
    /// What the work says, or that the namespace cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                self.enter()?;
                work()
            });
            worker.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread there.
    ///
    /// # Errors
    /// Without the right to.
    pub fn enter(&self) -> Result<()> {
        setns(self.file.as_ref(), CloneFlags::CLONE_NEWNET).context("enter a network namespace")
    }

    /// What `ip` takes as the name of this namespace.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd())
    }

    /// Runs lines of `ip -batch`.
    ///
    /// # Errors
    /// If one of them fails.
    pub fn ip(&self, lines: &str) -> Result<()> {
        self.tool("ip", &["-batch", "-"], lines).map(drop)
    }

    /// Runs a program to its end with `input`; what it printed.
    ///
    /// # Errors
    /// If it is missing or fails, with what it said.
    pub fn tool(&self, program: &str, arguments: &[&str], input: &str) -> Result<String> {
        let output = self.run(|| {
            let mut child = Command::new(program)
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .with_context(|| format!("run {program} (`cargo xtask setup` installs it)"))?;
            let mut stdin = child.stdin.take().context("a child's standard input")?;
            stdin.write_all(input.as_bytes()).with_context(|| format!("write to {program}"))?;
            drop(stdin);
            child.wait_with_output().with_context(|| format!("wait for {program}"))
        })?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            bail!("{program} {arguments:?} failed: {}\ninput:\n{input}", told.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until a link carries packets: the kernel gives it its queue only after its peer is up,
    /// by a work of its own, and drops what comes sooner.
    ///
    /// # Errors
    /// If it is not up after 10 s.
    pub fn await_link(&self, name: &str) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let link = self.tool("ip", &["-oneline", "link", "show", "dev", name], "")?;
            if link.contains(" state UP ") {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the link {name} does not come up: {link}");
            }
            thread::yield_now();
        }
    }

    /// Sets a kernel parameter of the namespace.
    ///
    /// # Errors
    /// If there is no such parameter.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/{key}");
        // /proc/sys shows the namespace of the thread that opens it.
        self.run(|| fs::write(&path, value).with_context(|| format!("write {value} to {path}")))
    }
}
