//! The kernel's own word on fresh connections: conntrack's NEW events in a node's namespace. A SYN
//! that follows an old entry makes none, so each event is a fresh decision of the rules. Not seen are
//! SYNs that were dropped before their entry was confirmed (no neighbour yet on a bridge).

use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;

use super::cluster::ClusterNode;
use crate::compare::convergence::FreshSyns;
use crate::conntrack::Line;
use crate::net::Family;

/// A running listener.
pub struct FreshSynListener {
    node: String,
    child: Child,
    log: PathBuf,
}

impl FreshSynListener {
    /// Listens for new entries towards a Service's address.
    pub fn start(node: &ClusterNode, service: IpAddr, out: &Path) -> Result<Self> {
        let name = node.addresses.name.clone();
        let family = Family::of(service).name().to_lowercase();
        let log = out.join(format!("conntrack-new-{name}-{service}.txt"));
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let child = node
            .namespace
            .command("conntrack")
            .args(["-E", "-e", "NEW", "-f", &family, "-p", "tcp", "-d", &service.to_string()])
            .args(["-o", "timestamp"])
            .stdin(std::process::Stdio::null())
            .stdout(file)
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start `conntrack -E` (install conntrack)")?;
        Ok(Self { node: name, child, log })
    }

    /// Stops listening.
    pub async fn stop(&mut self) -> Result<()> {
        if let Some(id) = self.child.id() {
            kill(Pid::from_raw(i32::try_from(id).context("a process id")?), Signal::SIGTERM)
                .context("stop `conntrack -E`")?;
        }
        self.child.wait().await.context("wait for `conntrack -E`")?;
        Ok(())
    }

    /// Adds what was heard.
    pub fn collect(&self, syns: &mut FreshSyns) -> Result<()> {
        let text = std::fs::read_to_string(&self.log)
            .with_context(|| format!("read {}", self.log.display()))?;
        for line in text.lines() {
            let event = Line::parse(line)
                .with_context(|| format!("read a line of {}: {line}", self.log.display()))?;
            let at = event.at.context("an event has a time")?;
            syns.entry((self.node.clone(), event.backend)).or_default().push(at);
        }
        Ok(())
    }
}
