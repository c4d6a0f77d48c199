//! The real agent, in a node's namespace.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, SysconfVar, sysconf},
};
use serde_json::Value;

use crate::namespace::Namespace;

/// The node's name.
pub const NODE: &str = "n1";
/// Where the API server listens, in the node's namespace.
pub const API_SERVER: &str = "127.0.0.1:6443";
/// Ready, and later settled (its attempt deadline is 10 s, its wait for evidence 30 s), by then.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Its promise after SIGTERM.
const GONE_WITHIN: Duration = Duration::from_secs(5);
/// Pause between two looks at its state, which offers no event to wait for.
pub const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What a process has in memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Now, in MiB.
    pub resident_mib: f64,
    /// The most up to now.
    pub peak_mib: f64,
}

/// The agent's binary: the one that was named, or the one beside this program.
///
/// # Errors
/// If this program's own place is not known.
pub fn binary(named: Option<&Path>) -> Result<PathBuf> {
    let beside = || {
        let own = std::env::current_exe().context("find the own executable")?;
        anyhow::Ok(own.with_file_name("rollrace"))
    };
    named.map_or_else(beside, |path| Ok(path.to_owned()))
}

/// An agent process.
pub struct Agent {
    child: Child,
    node: Namespace,
    folder: PathBuf,
}

/// A folder of this process's own for the files of one agent after the other.
pub fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("rollrace-bench-{}", std::process::id()))
}

impl Agent {
    /// Starts it, with further arguments.
    ///
    /// # Errors
    /// If there is no such program.
    pub fn start(binary: &Path, node: &Namespace, further: &[&str]) -> Result<Self> {
        let folder = folder();
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let kubeconfig = folder.join("kubeconfig.yaml");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: bench\n\
             clusters: [{{name: bench, cluster: {{server: 'http://{API_SERVER}'}}}}]\n\
             users: [{{name: bench, user: {{}}}}]\n\
             contexts: [{{name: bench, context: {{cluster: bench, user: bench}}}}]\n"
        );
        fs::write(&kubeconfig, text).with_context(|| format!("write {}", kubeconfig.display()))?;
        let log = File::create(folder.join("agent.log")).context("create the agent's log")?;
        let mut command = Command::new(binary);
        command
            .args(["agent", "--node-name", NODE, "--listen", "127.0.0.1:9465"])
            // The bench's API server takes nothing.
            .args(["--events", "off", "--api-listen", "127.0.0.1:9466", "--kubeconfig"])
            .arg(&kubeconfig)
            .args(further)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let namespace = node.clone();
        // SAFETY: only system calls, which touch no memory of the parent's.
        unsafe {
            command.pre_exec(move || {
                namespace.enter().map_err(std::io::Error::other)?;
                // It does not outlive this process, however that ends.
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(Into::into)
            });
        }
        let child = command.spawn().with_context(|| {
            format!("start {}: build it, or give its path with --agent", binary.display())
        })?;
        Ok(Self { child, node: node.clone(), folder })
    }

    /// Waits for `/readyz`.
    ///
    /// # Errors
    /// If it ends, or is not ready in time.
    pub fn ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().context("look at the agent")? {
                bail!("the agent ended ({status}): {}", self.log());
            }
            if self.get(9465, "/readyz").is_ok_and(|(code, _)| code == 200) {
                return Ok(());
            }
            thread::sleep(LOOK_AGAIN);
        }
        bail!("the agent is not ready after {PATIENCE:?}: {}", self.log())
    }

    /// Seconds of a processor that it used up to now.
    ///
    /// # Errors
    /// If it is gone.
    pub fn cpu(&self) -> Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
            .context("read the agent's stat")?;
        // Fields 14 and 15, counted from behind the name, which ends with the last parenthesis.
        let rest = text.rsplit(')').next().unwrap_or_default();
        let ticks: u32 = rest
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u32>().ok())
            .sum();
        let hertz =
            sysconf(SysconfVar::CLK_TCK).context("ask for the clock's ticks")?.unwrap_or(100);
        Ok(f64::from(ticks) / f64::from(u32::try_from(hertz).unwrap_or(100)))
    }

    /// Stops it from running, so that nobody reads the ring buffer.
    ///
    /// # Errors
    /// If it is gone.
    pub fn hold(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it run on.
    ///
    /// # Errors
    /// If it is gone.
    pub fn go_on(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// SIGTERM, and it is gone in time.
    ///
    /// # Errors
    /// If it is not.
    pub fn stop(mut self) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
        let deadline = Instant::now() + GONE_WITHIN;
        while self.child.try_wait().context("wait for the agent")?.is_none() {
            if Instant::now() > deadline {
                bail!("the agent still runs {GONE_WITHIN:?} after SIGTERM");
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).context("a process id")?);
        kill(pid, signal).with_context(|| format!("send {signal} to the agent"))
    }

    /// What it has in memory.
    ///
    /// # Errors
    /// If it is gone.
    pub fn memory(&self) -> Result<Memory> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .context("read the agent's status")?;
        let kib = |key: &str| -> Result<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
            kib.with_context(|| format!("no {key} in the agent's status"))
        };
        Ok(Memory { resident_mib: kib("VmRSS:")? / 1_024.0, peak_mib: kib("VmHWM:")? / 1_024.0 })
    }

    /// Memory of the BPF maps that it holds, in MiB, as the kernel accounts for it.
    ///
    /// # Errors
    /// If it is gone.
    pub fn maps_mib(&self) -> Result<f64> {
        let folder = format!("/proc/{}/fdinfo", self.child.id());
        let mut bytes = 0.0;
        let mut seen = BTreeSet::new();
        for entry in fs::read_dir(&folder).with_context(|| format!("list {folder}"))? {
            // A descriptor may be closed meanwhile.
            let Ok(text) = fs::read_to_string(entry.context("a descriptor")?.path()) else {
                continue;
            };
            let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
            if let (Some(_), Some(id), Some(locked)) =
                (field("map_type:"), field("map_id:"), field("memlock:"))
                && seen.insert(id.trim().to_owned())
            {
                bytes += locked.trim().parse::<f64>().context("a map's memory")?;
            }
        }
        Ok(bytes / f64::from(1 << 20))
    }

    /// What it wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("agent.log"))
            .unwrap_or_else(|error| format!("no log: {error}"))
    }

    /// What it answers under its API address.
    ///
    /// # Errors
    /// If it does not.
    pub fn json(&self, path: &str) -> Result<Value> {
        let (code, body) = self.get(9466, path)?;
        if code != 200 {
            bail!("the agent answers {path} with {code}: {body}");
        }
        serde_json::from_str(&body).with_context(|| format!("read {path}"))
    }

    /// The code and body of an answer.
    ///
    /// # Errors
    /// If there is none.
    pub fn get(&self, port: u16, path: &str) -> Result<(u16, String)> {
        let answer = self.node.run(|| {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let mut stream =
                TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
            stream.set_read_timeout(Some(Duration::from_secs(10))).context("set a timeout")?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {NODE}\r\nConnection: close\r\n\r\n")
                .context("ask")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).with_context(|| format!("read {path}"))?;
            Ok(answer)
        })?;
        let code = answer
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .context("no HTTP answer")?;
        Ok((code, answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned()))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Both fail if it has ended, and then there is nothing to do.
        drop((self.child.kill(), self.child.wait()));
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("rollrace-bench: {} stays: {error}", self.folder.display());
        }
    }
}
