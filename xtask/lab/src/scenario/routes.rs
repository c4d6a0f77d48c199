//! Which backend the kernel gave each connection: conntrack's NEW events in a node's namespace. A
//! SYN that follows an old entry makes no event, and goes where the entry's event says.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;

use crate::conntrack::Line;
use crate::run::cluster::ClusterNode;

/// The client's and the listener's readings of the clock are taken at different places.
const BEFORE_NS: i64 = 2_000_000;
/// The listener dates an event when it reads it, which a busy machine delays.
const LATE_NS: i64 = 300_000_000;

/// A running listener of one node.
pub struct RouteListener {
    node: String,
    child: Child,
    log: PathBuf,
}

/// Time in nanoseconds, dialled, backend.
type Route = (i64, SocketAddr, SocketAddr);

/// (node, client's end) → its routes, in the order of time.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    by_client: BTreeMap<(String, SocketAddr), Vec<Route>>,
}

impl RouteListener {
    /// Listens for every new TCP entry.
    pub fn start(node: &ClusterNode, out: &Path) -> Result<Self> {
        let name = node.addresses.name.clone();
        let log = out.join(format!("conntrack-new-{name}.txt"));
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let child = node
            .namespace
            .command("conntrack")
            .args(["-E", "-e", "NEW", "-p", "tcp", "-o", "timestamp"])
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start `conntrack -E` (install conntrack)")?;
        Ok(Self { node: name, child, log })
    }

    /// Stops listening, and adds what was heard.
    pub async fn finish(mut self, routes: &mut Routes) -> Result<()> {
        if let Some(id) = self.child.id() {
            kill(Pid::from_raw(i32::try_from(id).context("a process id")?), Signal::SIGTERM)
                .context("stop `conntrack -E`")?;
        }
        self.child.wait().await.context("wait for `conntrack -E`")?;
        let text = std::fs::read_to_string(&self.log)
            .with_context(|| format!("read {}", self.log.display()))?;
        for line in text.lines() {
            let event = Line::parse(line)
                .with_context(|| format!("read a line of {}: {line}", self.log.display()))?;
            let at = event.at.context("an event has a time")?;
            let at = i64::try_from(at.as_nanosecond()).context("a time of this age")?;
            routes.add(&self.node, event.client, at, event.dialled, event.backend);
        }
        Ok(())
    }
}

impl Routes {
    fn add(
        &mut self,
        node: &str,
        client: SocketAddr,
        at: i64,
        dialled: SocketAddr,
        backend: SocketAddr,
    ) {
        let known = self.by_client.entry((node.to_owned(), client)).or_default();
        known.push((at, dialled, backend));
    }

    /// Where the connection went that a client began and ended from this end at these times: as its
    /// own event says, which is the first of them (the port may be used again at once); without one
    /// as the entry says that was there already.
    pub fn backend(
        &self,
        node: &str,
        client: SocketAddr,
        dialled: SocketAddr,
        (start, end): (i64, i64),
    ) -> Option<SocketAddr> {
        let known = self.by_client.get(&(node.to_owned(), client))?;
        let mut known = known.iter().filter(|(_, to, _)| *to == dialled);
        let begun = start.saturating_sub(BEFORE_NS);
        let own = known.clone().find(|(at, ..)| (begun..=end.saturating_add(LATE_NS)).contains(at));
        own.or_else(|| known.rfind(|(at, ..)| *at < begun)).map(|(_, _, backend)| *backend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_connection_on_an_old_entry_goes_where_that_entry_went() {
        let mut routes = Routes::default();
        let (client, service) = (address("10.244.1.5:42526"), address("10.96.0.80:80"));
        routes.add("n1", client, 1_000, service, address("10.244.2.7:8080"));
        routes.add("n1", client, 9_000_000_000, service, address("10.244.2.8:8080"));
        let early = routes.backend("n1", client, service, (5_000_000_000, 8_000_000_000));
        assert_eq!(early, Some(address("10.244.2.7:8080")));
        let late = (9_000_000_100, 9_001_000_000);
        assert_eq!(routes.backend("n1", client, service, late), Some(address("10.244.2.8:8080")));
        assert_eq!(routes.backend("n2", client, service, late), None);
    }

    #[test]
    fn an_event_that_was_read_late_still_belongs_to_its_connection() {
        let mut routes = Routes::default();
        let (client, service) = (address("10.244.1.5:42526"), address("10.96.0.80:80"));
        routes.add("n1", client, 10_005_000_000, service, address("10.244.2.7:8080"));
        let times = (10_000_000_000, 10_000_300_000);
        let backend = routes.backend("n1", client, service, times);
        assert_eq!(backend, Some(address("10.244.2.7:8080")));
    }

    #[test]
    fn a_port_that_is_used_again_at_once_belongs_to_the_first_connection_first() {
        let mut routes = Routes::default();
        let (client, service) = (address("10.244.1.5:42526"), address("10.96.0.80:80"));
        let (first, second) = (address("10.244.2.7:8080"), address("10.244.2.8:8080"));
        routes.add("n1", client, 10_000_000_000, service, first);
        routes.add("n1", client, 10_000_600_000, service, second);
        let times = (9_999_900_000, 10_000_700_000);
        assert_eq!(routes.backend("n1", client, service, times), Some(first));
    }
}
