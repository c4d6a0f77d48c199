//! Which backend the kernel gave each connection: conntrack's events in a node's namespace. A SYN that
//! follows an old entry makes no event, and goes where the entry's event says, unless that entry has
//! ended: then no backend was chosen at all (it was rejected).

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

/// An entry: when it was made, in nanoseconds, from where to where, and when it ended.
#[derive(Debug, Clone, Copy)]
struct Route {
    made: i64,
    dialled: SocketAddr,
    backend: SocketAddr,
    ended: Option<i64>,
}

/// (node, client's end) → its routes, in the order of time.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    by_client: BTreeMap<(String, SocketAddr), Vec<Route>>,
}

impl RouteListener {
    /// Listens for every TCP entry's begin and end.
    pub fn start(node: &ClusterNode, out: &Path) -> Result<Self> {
        let name = node.addresses.name.clone();
        let log = out.join(format!("conntrack-new-{name}.txt"));
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let child = node
            .namespace
            .command("conntrack")
            .args(["-E", "-e", "NEW,DESTROY", "-p", "tcp", "-o", "timestamp"])
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
            if event.ended {
                // A closed one takes no new SYN, so it had ended before that.
                let at = if event.closed { i64::MIN } else { at };
                routes.end(&self.node, event.client, at, event.dialled);
            } else {
                routes.add(&self.node, event.client, at, event.dialled, event.backend);
            }
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
        known.push(Route { made: at, dialled, backend, ended: None });
    }

    fn end(&mut self, node: &str, client: SocketAddr, at: i64, dialled: SocketAddr) {
        let mut known = self.by_client.get_mut(&(node.to_owned(), client)).into_iter().flatten();
        if let Some(route) = known.rfind(|route| route.dialled == dialled && route.ended.is_none())
        {
            route.ended = Some(at);
        }
    }

    /// When the entry was made, and where the connection went that a client began and ended from this end at these times: as its
    /// own event says, which is the first of them (the port may be used again at once); without one
    /// as the entry says that was there already.
    pub fn backend(
        &self,
        node: &str,
        client: SocketAddr,
        dialled: SocketAddr,
        (start, end): (i64, i64),
    ) -> Option<(i64, SocketAddr)> {
        let known = self.by_client.get(&(node.to_owned(), client))?;
        let mut known = known.iter().filter(|route| route.dialled == dialled);
        let begun = start.saturating_sub(BEFORE_NS);
        let within = begun..=end.saturating_add(LATE_NS);
        let own = known.clone().find(|route| within.contains(&route.made));
        let is_there =
            |route: &&Route| route.made < begun && route.ended.is_none_or(|ended| ended >= begun);
        own.or_else(|| known.rfind(is_there)).map(|route| (route.made, route.backend))
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
        assert_eq!(early, Some((1_000, address("10.244.2.7:8080"))));
        let late = (9_000_000_100, 9_001_000_000);
        let backend = routes.backend("n1", client, service, late);
        assert_eq!(backend, Some((9_000_000_000, address("10.244.2.8:8080"))));
        assert_eq!(routes.backend("n2", client, service, late), None);
    }

    #[test]
    fn an_event_that_was_read_late_still_belongs_to_its_connection() {
        let mut routes = Routes::default();
        let (client, service) = (address("10.244.1.5:42526"), address("10.96.0.80:80"));
        routes.add("n1", client, 10_005_000_000, service, address("10.244.2.7:8080"));
        let times = (10_000_000_000, 10_000_300_000);
        let backend = routes.backend("n1", client, service, times);
        assert_eq!(backend, Some((10_005_000_000, address("10.244.2.7:8080"))));
    }

    #[test]
    fn a_port_that_is_used_again_at_once_belongs_to_the_first_connection_first() {
        let mut routes = Routes::default();
        let (client, service) = (address("10.244.1.5:42526"), address("10.96.0.80:80"));
        let (first, second) = (address("10.244.2.7:8080"), address("10.244.2.8:8080"));
        routes.add("n1", client, 10_000_000_000, service, first);
        routes.add("n1", client, 10_000_600_000, service, second);
        let times = (9_999_900_000, 10_000_700_000);
        assert_eq!(routes.backend("n1", client, service, times), Some((10_000_000_000, first)));
    }

    #[test]
    fn without_an_entry_of_its_own_or_one_that_is_still_there_a_connection_has_no_backend() {
        let mut routes = Routes::default();
        let (client, service) = (address("10.244.1.5:42526"), address("10.96.0.80:80"));
        routes.add("n1", client, 1_000, service, address("10.244.2.7:8080"));
        routes.end("n1", client, 2_000_000_000, service);
        let times = (9_000_000_000, 9_001_000_000);
        assert_eq!(routes.backend("n1", client, service, times), None);
    }
}
