//! The kernel's own word on fresh connections: conntrack's NEW events in a node's namespace. A SYN
//! that follows an old entry makes none, so each event is a fresh decision of the rules. Not seen are
//! SYNs that were dropped before their entry was confirmed (no neighbour yet on a bridge).

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;

use super::cluster::ClusterNode;
use crate::compare::convergence::FreshSyns;
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
        let log = out.join(format!("conntrack-new-{name}-{family}.txt"));
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
            let (at, backend) = parse(line)
                .with_context(|| format!("read a line of {}: {line}", self.log.display()))?;
            syns.entry((self.node.clone(), backend)).or_default().push(at);
        }
        Ok(())
    }
}

/// `[1700000000.123456] [NEW] tcp 6 120 SYN_SENT src=… dst=… sport=… dport=… [UNREPLIED] src=… dst=… sport=… dport=…`:
/// the time, and the source of the reply direction, which is the backend.
fn parse(line: &str) -> Option<(Timestamp, SocketAddr)> {
    let (time, rest) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    let (seconds, fraction) = time.trim().split_once('.')?;
    let nanoseconds: i32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let at = Timestamp::new(seconds.parse().ok()?, nanoseconds).ok()?;
    let nth = |name: &str| rest.split(name).nth(2)?.split(' ').next();
    let address = nth("src=")?.parse().ok()?;
    let port = nth("sport=")?.parse().ok()?;
    Some((at, SocketAddr::new(address, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backend_is_the_source_of_the_reply_direction() {
        let line = "[1700000000.123456]\t    [NEW] tcp      6 120 SYN_SENT src=10.244.1.5 dst=10.96.0.80 \
                    sport=42526 dport=80 [UNREPLIED] src=10.244.2.7 dst=10.244.1.5 sport=8080 dport=42526";
        let (at, backend) = parse(line).expect("an event");
        assert_eq!(at.as_microsecond(), 1_700_000_000_123_456);
        assert_eq!(backend, "10.244.2.7:8080".parse().expect("an address"));
    }
}
