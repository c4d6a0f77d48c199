//! The rollrace agents of a lab, one real process a node, and what they report.

mod exposure;
mod looks;
mod program;
mod readiness;
pub mod report;
mod usage;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

pub use self::exposure::Exposure;
use self::exposure::MetricsWatch;
pub use self::program::Program;
pub use self::readiness::{Readiness, ReadinessWatch};
use self::report::{Failures, Rollouts, Status};
pub use self::usage::Usage;
use crate::net::{HttpAnswer, Namespace, NodeAddresses, http_get};

/// Port of `/metrics`, `/livez`, `/readyz`.
const METRICS_PORT: u16 = 9465;
/// Port of `/api/v1`.
const API_PORT: u16 = 9466;
/// An agent is ready within this time, or the run fails.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Evidence is in by then: the attempt deadline (10 s), the wait for evidence (30 s), slack.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// A Kubernetes Event is written up to 30 s after the first failure's verdict; and slack.
const EVENTS_WITHIN: Duration = Duration::from_secs(45);
/// The agent's promise after SIGTERM.
const GONE_WITHIN: Duration = Duration::from_secs(5);
/// Pause between two looks at an agent's state, which offers no event to wait for.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// An authority that signed nothing: the lab's server speaks plain HTTP. But a cluster's account brings
/// one, and without any the agent would look for the system's, which an image from scratch lacks.
const AUTHORITY: &str = include_str!("authority.pem");

/// An agent process.
#[derive(Debug)]
pub struct Agent {
    node: String,
    address: SocketAddr,
    api: SocketAddr,
    program: Program,
    arguments: Vec<String>,
    out: PathBuf,
    child: Child,
    log: PathBuf,
    at_ready: Option<Usage>,
    exposures: Option<MetricsWatch>,
}

/// Everything that an agent says at the end of a run.
#[derive(Debug, Clone)]
pub struct AgentReport {
    /// Its node.
    pub node: String,
    /// Its last status.
    pub status: Status,
    /// The failures it has decided.
    pub failures: Failures,
    /// The rollouts it has seen.
    pub rollouts: Rollouts,
    /// When its failures became visible on `/metrics`; empty unless that was watched.
    pub exposures: Vec<Exposure>,
    /// What it used up to when it was ready.
    pub usage_at_ready: Option<Usage>,
    /// What it used up to the end.
    pub usage_at_end: Usage,
}

impl Agent {
    /// Starts the agent of a node inside the node's namespace.
    pub fn start(
        program: &Program,
        node: &NodeAddresses,
        namespace: &Namespace,
        server: &str,
        out: &Path,
        further_arguments: &[&str],
    ) -> Result<Self> {
        let name = &node.name;
        let kubeconfig = out.join(format!("kubeconfig-{name}.yaml"));
        std::fs::write(&kubeconfig, kubeconfig_text(server, &format!("rollrace-agent-{name}")))
            .with_context(|| format!("write {}", kubeconfig.display()))?;
        let authority = out.join("authority.pem");
        std::fs::write(&authority, AUTHORITY)
            .with_context(|| format!("write {}", authority.display()))?;
        let log = out.join(format!("agent-{name}.log"));
        let record = out.join(format!("agent-{name}.record.jsonl"));
        let address = SocketAddr::new(node.address, METRICS_PORT);
        let api = SocketAddr::new(node.address, API_PORT);
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is not UTF-8");
        let mut arguments = Vec::new();
        for [option, value] in [
            ["--kubeconfig", &text(&kubeconfig)?],
            ["--node-name", name],
            ["--listen", &address.to_string()],
            ["--api-listen", &api.to_string()],
            ["--record", &text(&record)?],
        ] {
            arguments.extend([option.to_owned(), value.to_owned()]);
        }
        arguments.extend(further_arguments.iter().map(|&argument| argument.to_owned()));
        let child = program.start(name, namespace, &arguments, out, &log)?;
        Ok(Self {
            node: name.clone(),
            address,
            api,
            program: program.clone(),
            arguments,
            out: out.to_owned(),
            child,
            log,
            at_ready: None,
            exposures: None,
        })
    }

    /// Kills the process and starts another in its place, with a log and a recording of its own.
    pub async fn kill_and_start_anew(&mut self, namespace: &Namespace) -> Result<()> {
        self.child.kill().await.with_context(|| format!("kill the agent of {}", self.node))?;
        self.start_anew(namespace)
    }

    /// As an upgrade does it: SIGTERM, and another in its place.
    pub async fn stop_and_start_anew(&mut self, namespace: &Namespace) -> Result<()> {
        self.terminate().await?;
        self.start_anew(namespace)
    }

    fn start_anew(&mut self, namespace: &Namespace) -> Result<()> {
        self.log.set_extension("2.log");
        let record = self.arguments.iter().position(|argument| argument == "--record");
        if let Some(path) = record.and_then(|index| self.arguments.get_mut(index + 1)) {
            path.push_str(".2");
        }
        self.child =
            self.program.start(&self.node, namespace, &self.arguments, &self.out, &self.log)?;
        Ok(())
    }

    /// Waits for `/readyz`.
    pub async fn ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        let mut last = String::from("no answer");
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().context("look at the agent")? {
                bail!(
                    "the agent of {} ended ({status}): {}; see {}",
                    self.node,
                    self.last_words(),
                    self.log.display()
                );
            }
            match http_get(self.address, "/readyz").await {
                Ok(answer) if answer.status == 200 => {
                    self.at_ready = Some(self.usage()?);
                    return Ok(());
                }
                Ok(answer) => last = format!("{} {}", answer.status, answer.body.trim()),
                Err(error) => last = format!("{error:#}"),
            }
            sleep(LOOK_AGAIN).await;
        }
        bail!(
            "the agent of {} is not ready after {READY_WITHIN:?} ({last}): see {}",
            self.node,
            self.log.display()
        )
    }

    /// The last line of its log.
    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().last().unwrap_or("it said nothing").to_owned()
    }

    /// The node it runs on.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Where it answers `/readyz` and `/metrics`, and where `/api/v1`.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.address, self.api)
    }

    /// What the process had used when it was ready.
    pub fn usage_at_ready(&self) -> Option<Usage> {
        self.at_ready
    }

    /// Notes from now on when failures become visible on `/metrics`.
    pub fn watch_metrics(&mut self) {
        self.exposures = Some(MetricsWatch::start(self.address));
    }

    /// What it says of itself.
    pub async fn status(&self) -> Result<Status> {
        Ok(self.get("/api/v1/status").await?.0)
    }

    /// The failures it has decided.
    pub async fn failures(&self) -> Result<Failures> {
        Ok(self.get("/api/v1/failures").await?.0)
    }

    /// The rollouts it has seen.
    pub async fn rollouts(&self) -> Result<Rollouts> {
        Ok(self.get("/api/v1/rollouts").await?.0)
    }

    /// Waits until nothing is pending or undecided; false when that takes too long.
    pub async fn settled(&self) -> Result<bool> {
        let decided =
            |status: &Status| status.pending_attempts == 0 && status.undecided_failures == 0;
        self.says(SETTLED_WITHIN, decided).await
    }

    /// Waits until every Kubernetes Event that it owes is written; false when that takes too long.
    pub async fn events_written(&self) -> Result<bool> {
        let written = |status: &Status| status.events.get("open").is_none_or(|open| *open == 0);
        self.says(EVENTS_WITHIN, written).await
    }

    /// Waits until it tells that its node's conntrack table had no room and no source port; false when
    /// that takes too long.
    pub async fn crowded(&self) -> Result<bool> {
        let told = |status: &Status| {
            let scan = &status.conntrack_scan;
            scan.table_drops.unwrap_or(0) > 0 && scan.insert_failed.unwrap_or(0) > 0
        };
        self.says(SETTLED_WITHIN, told).await
    }

    async fn says(&self, within: Duration, what: impl Fn(&Status) -> bool) -> Result<bool> {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            if what(&self.status().await?) {
                return Ok(true);
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(false)
    }

    /// Reads everything the agent has to say, and keeps the raw answers in the out directory.
    pub async fn report(&mut self, out: &Path) -> Result<AgentReport> {
        let exposures = match self.exposures.take() {
            Some(watch) => watch
                .stop()
                .await
                .with_context(|| format!("watch /metrics of the agent of {}", self.node))?,
            None => Vec::new(),
        };
        let (status, status_text) = self.get("/api/v1/status").await?;
        let (failures, failures_text) = self.get("/api/v1/failures").await?;
        let (rollouts, rollouts_text) = self.get("/api/v1/rollouts").await?;
        let metrics = self.ask(self.address, "/metrics").await?.body;
        for (what, text) in [
            ("status.json", status_text),
            ("failures.json", failures_text),
            ("rollouts.json", rollouts_text),
            ("metrics.txt", metrics),
        ] {
            let path = out.join(format!("agent-{}.{what}", self.node));
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(AgentReport {
            node: self.node.clone(),
            status,
            failures,
            rollouts,
            exposures,
            usage_at_ready: self.at_ready,
            usage_at_end: self.usage()?,
        })
    }

    /// What the process uses now.
    pub fn usage(&self) -> Result<Usage> {
        let id = self.child.id().with_context(|| format!("the agent of {} is gone", self.node))?;
        Usage::of(id).with_context(|| format!("read what the agent of {} uses", self.node))
    }

    /// SIGTERM, and the proof that the agent keeps its promise to be gone in time.
    pub async fn stop(mut self) -> Result<()> {
        self.terminate().await
    }

    async fn terminate(&mut self) -> Result<()> {
        let id = self.child.id().with_context(|| format!("the agent of {} is gone", self.node))?;
        kill(Pid::from_raw(i32::try_from(id).context("a process id")?), Signal::SIGTERM)
            .with_context(|| format!("send SIGTERM to the agent of {}", self.node))?;
        match timeout(GONE_WITHIN, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => bail!(
                "the agent of {} ended with {status} after SIGTERM: see {}",
                self.node,
                self.log.display()
            ),
            Ok(Err(error)) => Err(error).context("wait for the agent"),
            Err(_) => bail!("the agent of {} still runs {GONE_WITHIN:?} after SIGTERM", self.node),
        }
    }

    async fn ask(&self, address: SocketAddr, path: &str) -> Result<HttpAnswer> {
        let answer = timeout(Duration::from_secs(10), http_get(address, path))
            .await
            .with_context(|| format!("the agent of {} does not answer {path}", self.node))??;
        if answer.status != 200 {
            bail!(
                "the agent of {} answered {path} with {}: {}",
                self.node,
                answer.status,
                answer.body.trim()
            );
        }
        Ok(answer)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<(T, String)> {
        let body = self.ask(self.api, path).await?.body;
        let parsed = serde_json::from_str(&body)
            .with_context(|| format!("read {path} of the agent of {}", self.node))?;
        Ok((parsed, body))
    }
}

/// A kubeconfig for a user, with the authority beside it.
pub fn kubeconfig_text(server: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: lab\n  cluster:\n    server: {server}\n    certificate-authority: authority.pem\n\
         users:\n\
         - name: {user}\n  user:\n    token: {user}\n\
         contexts:\n\
         - name: lab\n  context:\n    cluster: lab\n    user: {user}\n\
         current-context: lab\n"
    )
}
