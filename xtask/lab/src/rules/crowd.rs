//! A node whose source ports run out, and whose conntrack table is full.

use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::net::run_tool;
use crate::run::cluster::ClusterNode;

/// Where nobody is: packets leave, and are another host's at the other end.
const LINK: &str = "link add crowd type veth peer name crowd-end
link set crowd arp off up
link set crowd-end up
route add 203.0.113.0/24 dev crowd
";
/// Connections to one place share two source ports.
const PORTS: &str = "add table ip crowd
add chain ip crowd out { type nat hook postrouting priority srcnat - 5 ; }
add rule ip crowd out ip daddr 203.0.113.1 tcp dport 9 snat to 192.0.2.1:40000-40001
";
/// As many as there are ports for, and some more.
const CONNECTIONS: usize = 6;
/// So many datagrams more than there is room for.
const MORE: u32 = 1_000;
/// A larger table takes too long to fill, and too much memory (some 300 bytes an entry).
const LARGEST: u32 = 4_000_000;

/// Makes it so.
pub async fn crowd(node: &ClusterNode) -> Result<()> {
    node.namespace.ip_batch(LINK).await?;
    let mut nft = node.namespace.command("nft");
    nft.args(["-f", "-"]);
    run_tool(nft, PORTS).await?;
    let namespace = node.namespace.clone();
    let crowded = tokio::task::spawn_blocking(move || {
        let there = std::thread::spawn(move || {
            namespace.enter()?;
            want_ports()?;
            fill_table()
        });
        there.join()
    });
    match crowded.await.context("crowd a conntrack table")? {
        Ok(result) => result.context("crowd a conntrack table"),
        Err(_) => anyhow::bail!("the thread that crowds a conntrack table panicked"),
    }
}

fn want_ports() -> Result<()> {
    let nobody = SocketAddr::from((Ipv4Addr::new(203, 0, 113, 1), 9));
    for _ in 0..CONNECTIONS {
        let answer = TcpStream::connect_timeout(&nobody, Duration::from_millis(20));
        ensure!(answer.is_err(), "somebody answers at {nobody}");
    }
    Ok(())
}

/// Each datagram to a port of its own is an entry of its own.
fn fill_table() -> Result<()> {
    let path = "/proc/sys/net/netfilter/nf_conntrack_max";
    let limit = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let limit: u32 = limit.trim().parse().with_context(|| format!("{path} is no number"))?;
    ensure!(limit <= LARGEST, "{path} is {limit}: more than {LARGEST} entries are not filled up");
    let socket = UdpSocket::bind("0.0.0.0:0").context("make a socket")?;
    let hosts = (2..=254).map(|host| Ipv4Addr::new(203, 0, 113, host));
    let places = hosts.flat_map(|host| (1..=u16::MAX).map(move |port| (host, port)));
    for place in places.take(usize::try_from(limit + MORE).context("a number of entries")?) {
        // What finds no room is refused: that is what it is for.
        drop(socket.send_to(&[], place));
    }
    Ok(())
}
