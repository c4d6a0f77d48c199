//! The real agent, in the node's namespace, and what it says.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
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
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{api::ADDRESS, objects::NODE, world::SERVICE};
use crate::namespace::Namespace;

/// Ready, and later settled (its attempt deadline is 10 s, its wait for evidence 30 s), by then.
const PATIENCE: Duration = Duration::from_secs(60);
/// Its promise after SIGTERM.
const GONE_WITHIN: Duration = Duration::from_secs(5);
/// Pause between two looks at its state, which offers no event to wait for.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What the agent says at the end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Told {
    /// Attempts to the Service, by its metrics.
    pub attempts: u64,
    /// Attempts to the Service, by the kernel's counters.
    pub counted: Counted,
    /// Failures by class, by its metrics.
    pub failures: BTreeMap<String, u64>,
    /// Failures that its rollouts took, over all of them.
    pub of_rollouts: u64,
    /// What was lost, by reason.
    pub losses: BTreeMap<String, u64>,
    /// Whether its status says that counts are lower bounds.
    pub lower_bound: bool,
    /// Gaps that its status lists.
    pub gaps: usize,
    /// Whether each rollout says that its counts are lower bounds.
    pub rollouts_lower_bound: Vec<bool>,
    /// Most memory it had, in MiB.
    pub peak_mib: u64,
}

/// The kernel's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// SYNs of a new ISN.
    pub attempts: u64,
    /// Of these, answered.
    pub answered: u64,
    /// Of these, refused.
    pub refused: u64,
}

/// An agent process.
pub struct Agent {
    child: Child,
    node: Namespace,
    folder: PathBuf,
}

impl Agent {
    /// Starts it.
    ///
    /// # Errors
    /// If there is no such program.
    pub fn start(binary: &Path, node: &Namespace, tiny: bool) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("rollrace-bench-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let kubeconfig = folder.join("kubeconfig.yaml");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: bench\n\
             clusters: [{{name: bench, cluster: {{server: 'http://{ADDRESS}'}}}}]\n\
             users: [{{name: bench, user: {{}}}}]\n\
             contexts: [{{name: bench, context: {{cluster: bench, user: bench}}}}]\n"
        );
        fs::write(&kubeconfig, text).with_context(|| format!("write {}", kubeconfig.display()))?;
        let log = File::create(folder.join("agent.log")).context("create the agent's log")?;
        let mut command = Command::new(binary);
        command
            .args(["agent", "--node-name", NODE, "--listen", "127.0.0.1:9465"])
            .args(["--api-listen", "127.0.0.1:9466", "--kubeconfig"])
            .arg(&kubeconfig)
            .arg("--record")
            .arg(folder.join("record.jsonl"))
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        if tiny {
            command.args(["--ring-buffer", "4", "--max-attempts", "16"]);
        }
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

    /// Waits until nothing is pending or undecided, and asks for everything.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn settled(&self) -> Result<Told> {
        let deadline = Instant::now() + PATIENCE;
        // A sweep and a tick of the engine: counts that are still on their way arrive.
        thread::sleep(Duration::from_secs(2));
        let mut status = self.json("/api/v1/status")?;
        while status["pending_attempts"] != 0 || status["undecided_failures"] != 0 {
            if Instant::now() > deadline {
                bail!("the agent is undecided after {PATIENCE:?}: {status}");
            }
            thread::sleep(LOOK_AGAIN);
            status = self.json("/api/v1/status")?;
        }
        let rollouts = self.json("/api/v1/rollouts")?;
        let rollouts = rollouts["rollouts"].as_array().cloned().unwrap_or_default();
        let (_, metrics) = self.get(9465, "/metrics")?;
        let mut told = Told {
            lower_bound: status["lower_bound"] == true,
            gaps: status["coverage"]["gaps"].as_array().map_or(0, Vec::len),
            rollouts_lower_bound: rollouts
                .iter()
                .map(|rollout| rollout["lower_bound"] == true)
                .collect(),
            ..Told::default()
        };
        for (reason, count) in status["losses"].as_object().into_iter().flatten() {
            told.losses.insert(reason.clone(), count.as_u64().unwrap_or(0));
        }
        for rollout in &rollouts {
            let failures = rollout["failures"].as_object().into_iter().flatten();
            told.of_rollouts += failures.filter_map(|(_, count)| count.as_u64()).sum::<u64>();
        }
        for line in metrics.lines() {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<u64>() else { continue };
            if series.starts_with("rollrace_connection_attempts_total{") {
                told.attempts += value;
            } else if series.starts_with("rollrace_connection_failures_total{") && value > 0 {
                let class = series.split("class=\"").nth(1).and_then(|rest| rest.split('"').next());
                *told.failures.entry(class.unwrap_or_default().to_owned()).or_default() += value;
            }
        }
        told.counted = self.counted()?;
        told.peak_mib = self.peak()?;
        Ok(told)
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

    /// The kernel's last counts for the Service, which only the recording has in full.
    fn counted(&self) -> Result<Counted> {
        let path = self.folder.join("record.jsonl");
        let file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
        let service = SERVICE.to_string();
        let mut last = Counted::default();
        for line in BufReader::new(file).lines() {
            let line = line.context("read the recording")?;
            if !line.contains(r#""input":"attempts""#) || !line.contains(&service) {
                continue;
            }
            let record: Value = serde_json::from_str(&line).context("a line of the recording")?;
            last = serde_json::from_value(record["content"].clone())
                .context("counts in the recording")?;
        }
        Ok(last)
    }

    fn peak(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .context("read the agent's status")?;
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.context("no VmHWM in the agent's status")? / 1_024)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("agent.log"))
            .unwrap_or_else(|error| format!("no log: {error}"))
    }

    fn json(&self, path: &str) -> Result<Value> {
        let (code, body) = self.get(9466, path)?;
        if code != 200 {
            bail!("the agent answers {path} with {code}: {body}");
        }
        serde_json::from_str(&body).with_context(|| format!("read {path}"))
    }

    fn get(&self, port: u16, path: &str) -> Result<(u16, String)> {
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
