//! The tail of a rollout: conntrack entries that still lead to its old pods. The truth is the kernel's,
//! through the conntrack tool: what it lists in each node, and its events when an entry goes.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::cluster::ClusterNode;
use crate::agent::Agent;
use crate::agent::report::{Stale, Status};
use crate::conntrack::Line;
use crate::net::{Family, Namespace, http_get};

/// Between two looks at the agents' figures.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two lists of a node's table: each costs as much as a scan of the agent.
const LIST_EVERY: u32 = 5;
/// An agent answers within milliseconds.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// A listed entry may have been made, or have gone, since the agent's last scan.
const SAME_WITHIN: u32 = 8;

/// What was seen at one moment on one node.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When.
    pub at: Timestamp,
    /// The node.
    pub node: String,
    /// What its agent said.
    pub agent: Stale,
    /// Where its table's unanswered, redirected entries lead; nothing if it was not listed then.
    pub listed: Option<Vec<SocketAddr>>,
}

/// Everything seen.
#[derive(Debug, Clone, Default)]
pub struct Tail {
    /// In the order of time.
    pub samples: Vec<Sample>,
    /// The last look at each node, once nothing changed any more.
    pub last: Vec<Sample>,
    /// When unanswered entries went, and where they led.
    pub destroyed: Vec<(Timestamp, SocketAddr)>,
}

/// The looks while the load runs.
pub struct TailWatch {
    listeners: Vec<(Child, PathBuf)>,
    stop: oneshot::Sender<()>,
    looks: JoinHandle<Result<Vec<Sample>>>,
    nodes: Vec<Node>,
}

#[derive(Clone)]
struct Node {
    name: String,
    namespace: Arc<Namespace>,
    services: Vec<IpAddr>,
    api: SocketAddr,
}

impl TailWatch {
    /// Looks from now on at the entries towards a Service's addresses, and at the agents' figures.
    pub fn start(
        nodes: &[ClusterNode],
        agents: &[Agent],
        services: &[IpAddr],
        out: &Path,
    ) -> Result<Self> {
        let mut listeners = Vec::new();
        for node in nodes {
            for service in services {
                listeners.push(listen(node, *service, out)?);
            }
        }
        let watched: Vec<Node> = nodes
            .iter()
            .filter_map(|node| {
                let agent = agents.iter().find(|agent| agent.node() == node.addresses.name)?;
                Some(Node {
                    name: node.addresses.name.clone(),
                    namespace: Arc::clone(&node.namespace),
                    services: services.to_vec(),
                    api: agent.addresses().1,
                })
            })
            .collect();
        let (stop, stopped) = oneshot::channel();
        let looks = tokio::spawn(look(watched.clone(), stopped));
        Ok(Self { listeners, stop, looks, nodes: watched })
    }

    /// Stops, looks a last time until the agents say what the tables do, and reads the events.
    async fn finish(self) -> Result<Tail> {
        // A watch that has already failed says why when it is joined.
        let _already_ended = self.stop.send(());
        let samples = self.looks.await.context("the watch of the tail panicked")??;
        settled(&self.nodes).await?;
        let mut last = Vec::new();
        for node in &self.nodes {
            last.push(node.sample(true).await?);
        }
        let mut destroyed = Vec::new();
        for (mut child, log) in self.listeners {
            if let Some(id) = child.id() {
                kill(Pid::from_raw(i32::try_from(id).context("a process id")?), Signal::SIGTERM)
                    .context("stop `conntrack -E`")?;
            }
            child.wait().await.context("wait for `conntrack -E`")?;
            let text =
                std::fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))?;
            for line in text.lines() {
                let event = Line::parse(line)
                    .with_context(|| format!("read a line of {}: {line}", log.display()))?;
                if event.unanswered {
                    destroyed.push((event.at.context("an event has a time")?, event.backend));
                }
            }
        }
        destroyed.sort_unstable();
        Ok(Tail { samples, last, destroyed })
    }
}

/// Stops looking, if anybody did.
pub async fn finish(watch: Option<TailWatch>) -> Result<Option<Tail>> {
    match watch {
        Some(watch) => watch.finish().await.map(Some),
        None => Ok(None),
    }
}

/// Waits until each agent's figure is that of its node's table, or some scans have passed.
async fn settled(nodes: &[Node]) -> Result<()> {
    for node in nodes {
        for _ in 0..SAME_WITHIN {
            let sample = node.sample(true).await?;
            let listed = sample.listed.map_or(0, |listed| listed.len());
            if usize::try_from(sample.agent.entries).ok() == Some(listed) {
                break;
            }
            sleep(LOOK_EVERY / 2).await;
        }
    }
    Ok(())
}

impl Node {
    async fn sample(&self, list: bool) -> Result<Sample> {
        let at = Timestamp::now();
        let answer = timeout(ANSWERS_WITHIN, http_get(self.api, "/api/v1/status")).await;
        let answer = answer.with_context(|| format!("the agent of {} is silent", self.name))??;
        let status: Status = serde_json::from_str(&answer.body)
            .with_context(|| format!("read the status of the agent of {}", self.name))?;
        let listed = if list { Some(self.list().await?) } else { None };
        Ok(Sample { at, node: self.name.clone(), agent: status.stale, listed })
    }

    async fn list(&self) -> Result<Vec<SocketAddr>> {
        let mut backends = Vec::new();
        for service in &self.services {
            let family = Family::of(*service).name().to_lowercase();
            let output = self
                .namespace
                .command("conntrack")
                .args(["-L", "-f", &family, "-p", "tcp", "-u", "UNREPLIED"])
                .args(["-d", &service.to_string()])
                .output()
                .await
                .context("run `conntrack -L` (install conntrack)")?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "`conntrack -L` failed: {said}");
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let entry = Line::parse(line)
                    .with_context(|| format!("read a line of `conntrack -L`: {line}"))?;
                if entry.unanswered && entry.backend != entry.dialled {
                    backends.push(entry.backend);
                }
            }
        }
        Ok(backends)
    }
}

async fn look(nodes: Vec<Node>, mut stopped: oneshot::Receiver<()>) -> Result<Vec<Sample>> {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut samples = Vec::new();
    for round in 0_u32.. {
        tokio::select! {
            _ = &mut stopped => break,
            _ = looks.tick() => {}
        }
        for node in &nodes {
            samples.push(node.sample(round.is_multiple_of(LIST_EVERY)).await?);
        }
    }
    Ok(samples)
}

fn listen(node: &ClusterNode, service: IpAddr, out: &Path) -> Result<(Child, PathBuf)> {
    let name = &node.addresses.name;
    let family = Family::of(service).name().to_lowercase();
    let log = out.join(format!("conntrack-destroy-{name}-{service}.txt"));
    let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
    let child = node
        .namespace
        .command("conntrack")
        .args(["-E", "-e", "DESTROY", "-f", &family, "-p", "tcp", "-d", &service.to_string()])
        .args(["-o", "timestamp"])
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("start `conntrack -E` (install conntrack)")?;
    Ok((child, log))
}

/// The most stale entries at a time, over all nodes: of those seen together.
pub fn peak(counts: impl Iterator<Item = (Timestamp, String, u64)>) -> u64 {
    let mut now: BTreeMap<String, u64> = BTreeMap::new();
    let mut peak = 0;
    for (_, node, count) in counts {
        now.insert(node, count);
        peak = peak.max(now.values().sum());
    }
    peak
}
