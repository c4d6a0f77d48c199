//! A client, a node that DNATs a Service to its backend, and the backend.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use anyhow::Result;

use super::wire::Link;
use crate::namespace::Namespace;

/// The Service.
pub const SERVICE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 80), 80);
/// Its backend.
pub const BACKEND: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 244, 1, 3), 8080);
/// A port of the same pod that nobody watches.
pub const UNWATCHED: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 244, 1, 3), 9090);
/// IPv6 address of the backend.
pub const BACKEND6: [u8; 16] = [0xfd, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3];
/// IPv6 address of the client.
pub const CLIENT6: [u8; 16] = [0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
/// The node's hardware address on both links.
pub const NODE_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 1];
/// Everybody else's.
pub const PEER_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 2];

/// A client's address: another in each batch, so that no tuple is used twice.
pub fn client(batch: u16) -> Ipv4Addr {
    let [high, low] = batch.to_be_bytes();
    Ipv4Addr::new(10, 200, high, low)
}

/// The namespaces and their ends of the links.
pub struct World {
    /// The node.
    pub node: Namespace,
    /// What the client puts on its link enters the node.
    pub client: Link,
    /// What the backend puts on its link enters the node.
    pub backend: Link,
    /// What the node itself sends to the backend, through the device's queue.
    pub node_out: Link,
}

impl World {
    /// Builds it.
    ///
    /// # Errors
    /// Without the rights, or without `ip` and `iptables-restore`.
    pub fn build() -> Result<Self> {
        let (node, client, backend) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        node.sysctl("net/ipv4/ip_forward", "1")?;
        node.sysctl("net/ipv6/conf/all/forwarding", "1")?;
        for (name, peer) in [("client0", &client), ("pod0", &backend)] {
            let (path, node_mac, peer_mac) = (peer.path(), mac(NODE_MAC), mac(PEER_MAC));
            // The peers' ends have no address: what arrives there is dropped.
            peer.sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
            node.ip(&format!(
                "link add {name} address {node_mac} type veth peer name eth0 address {peer_mac} netns {path}\n\
                 link set {name} up"
            ))?;
            peer.ip("link set eth0 up")?;
            node.await_link(name)?;
            peer.await_link("eth0")?;
            node.sysctl(&format!("net/ipv4/conf/{name}/rp_filter"), "0")?;
        }
        let peer_mac = mac(PEER_MAC);
        node.sysctl("net/ipv4/conf/all/rp_filter", "0")?;
        node.ip(&format!(
            "address add 169.254.2.1/30 dev client0\n\
             neighbour replace 169.254.2.2 lladdr {peer_mac} dev client0 nud permanent\n\
             route add 10.200.0.0/16 via 169.254.2.2 dev client0\n\
             route add {pod}/32 dev pod0\n\
             neighbour replace {pod} lladdr {peer_mac} dev pod0 nud permanent\n\
             route add fd00:1::2/128 dev client0\n\
             neighbour replace fd00:1::2 lladdr {peer_mac} dev client0 nud permanent\n\
             route add fd00:2::3/128 dev pod0\n\
             neighbour replace fd00:2::3 lladdr {peer_mac} dev pod0 nud permanent",
            pod = BACKEND.ip()
        ))?;
        node.tool("iptables-restore", &[], &rules())?;
        // Segments from the middle of a connection are part of one.
        node.sysctl("net/netfilter/nf_conntrack_tcp_be_liberal", "1")?;
        Ok(Self {
            client: Link::open(&client, "eth0", true)?,
            backend: Link::open(&backend, "eth0", true)?,
            node_out: Link::open(&node, "pod0", false)?,
            node,
        })
    }

    /// What the agent would watch here.
    pub fn watched() -> [SocketAddr; 2] {
        [SERVICE.into(), BACKEND.into()]
    }
}

/// A Service in the shape of kube-proxy's iptables mode.
fn rules() -> String {
    format!(
        "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n:KUBE-SEP-A - [0:0]\n\
         -A PREROUTING -j KUBE-SERVICES\n\
         -A KUBE-SERVICES -d {ip} -p tcp -m tcp --dport {port} -j KUBE-SVC-A\n\
         -A KUBE-SVC-A -j KUBE-SEP-A\n\
         -A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination {BACKEND}\nCOMMIT\n",
        ip = SERVICE.ip(),
        port = SERVICE.port()
    )
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}
