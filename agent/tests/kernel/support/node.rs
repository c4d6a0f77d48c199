//! A node: its namespace, its pods' links, the way outside, and its probes.

use super::{Ip, Namespace, Watcher};
use rollrace::probe::Options;

/// The node's side of every pod's own link: one hardware address, so that neighbour entries are
/// permanent.
const GATEWAY_HARDWARE: &str = "ee:ee:ee:ee:ee:ee";

/// A node with its probes attached.
pub struct Node {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its neighbour on a link of the node's own: a client, or the router for everything that the
    /// node does not know.
    pub outside: Namespace,
    /// What its probes see.
    pub watcher: Watcher,
}

impl Node {
    /// A node without pods.
    pub fn new() -> Self {
        Self::prepared(Options::default(), |_| {})
    }

    /// The same, with sizes of the probes' maps.
    pub fn with(options: Options) -> Self {
        Self::prepared(options, |_| {})
    }

    /// The same, with something done to its namespace before the probes start.
    pub fn prepared(options: Options, prepare: impl FnOnce(&Namespace)) -> Self {
        let (namespace, outside) = bare_node();
        prepare(&namespace);
        let watcher = Watcher::start(&namespace, options);
        Self { namespace, outside, watcher }
    }

    /// The agent is replaced: its probes begin anew, and know of nothing.
    pub fn restart_watcher(&mut self) {
        self.watcher = Watcher::start(&self.namespace, Options::default());
    }

    /// A pod on a point-to-point link with a link-local gateway, both versions of IP.
    pub fn pod(&self, number: u8) -> Namespace {
        add_pod(&self.namespace, number)
    }

    /// What is left of a pod that answers nothing: its link and its neighbour entries, no address.
    pub fn silent_pod(&self, number: u8) -> Namespace {
        let pod = Namespace::new();
        link(&self.namespace, &pod, number);
        pod
    }

    /// The bridge that bridge pods hang on.
    pub fn add_bridge(&self) {
        let (v4, v6) = (Ip::V4.bridge_pod(1), Ip::V6.bridge_pod(1));
        self.namespace.ip(&format!(
            "link add cbr0 type bridge stp_state 0 forward_delay 0\n\
             address add {v4}/24 dev cbr0\n\
             address add {v6}/64 dev cbr0 nodad\n\
             link set cbr0 up"
        ));
    }

    /// A pod on the bridge.
    pub fn bridge_pod(&self, number: u8) -> Namespace {
        let pod = Namespace::new();
        let port = format!("port{number}");
        let path = pod.path();
        self.namespace.ip(&format!(
            "link add {port} type veth peer name eth0 netns {path}\n\
             link set {port} master cbr0\n\
             link set {port} type bridge_slave hairpin on\n\
             link set {port} up"
        ));
        let (v4, v6) = (Ip::V4.bridge_pod(number), Ip::V6.bridge_pod(number));
        let (gateway, gateway6) = (Ip::V4.bridge_pod(1), Ip::V6.bridge_pod(1));
        pod.ip(&format!(
            "address add {v4}/24 dev eth0\n\
             address add {v6}/64 dev eth0 nodad\n\
             link set eth0 up\n\
             route add default via {gateway}\n\
             route add default via {gateway6}"
        ));
        self.namespace.await_link(&port);
        pod.await_link("eth0");
        pod.await_v6(v6);
        self.namespace.await_v6(gateway6);
        pod
    }
}

/// A node's namespace without probes, and its neighbour outside.
pub fn bare_node() -> (Namespace, Namespace) {
    let (node, outside) = (Namespace::new(), Namespace::new());
    for router in [&node, &outside] {
        router.sysctl("net/ipv4/ip_forward", "1");
        router.sysctl("net/ipv6/conf/all/forwarding", "1");
    }
    let path = outside.path();
    let (own, own6) = (Ip::V4.node(), Ip::V6.node());
    let (other, other6) = (Ip::V4.outside(), Ip::V6.outside());
    node.ip(&format!(
        "link add up0 type veth peer name eth0 netns {path}\n\
         address add {own}/24 dev up0\n\
         address add {own6}/64 dev up0 nodad\n\
         link set up0 up\n\
         route add default via {other}\n\
         route add default via {other6}"
    ));
    outside.ip(&format!(
        "address add {other}/24 dev eth0\n\
         address add {other6}/64 dev eth0 nodad\n\
         link set eth0 up\n\
         route add default via {own}\n\
         route add default via {own6}"
    ));
    node.await_link("up0");
    outside.await_link("eth0");
    node.await_v6(own6);
    outside.await_v6(other6);
    (node, outside)
}

/// A pod on a link of its own, of this node.
pub fn add_pod(node: &Namespace, number: u8) -> Namespace {
    let pod = Namespace::new();
    link(node, &pod, number);
    let (v4, v6) = (Ip::V4.pod(number), Ip::V6.pod(number));
    pod.ip(&format!(
        "address add {v4}/32 dev eth0\n\
         address add {v6}/128 dev eth0 nodad\n\
         route add 169.254.1.1 dev eth0 scope link\n\
         route add default via 169.254.1.1\n\
         route add default via fe80::1 dev eth0\n\
         neighbour replace 169.254.1.1 lladdr {GATEWAY_HARDWARE} dev eth0 nud permanent\n\
         neighbour replace fe80::1 lladdr {GATEWAY_HARDWARE} dev eth0 nud permanent"
    ));
    pod.await_v6(v6);
    pod
}

/// The link between them, with everything on the node's side.
fn link(node: &Namespace, pod: &Namespace, number: u8) {
    let path = pod.path();
    let veth = format!("veth{number}");
    let hardware = format!("02:00:00:00:01:{number:02x}");
    let (v4, v6) = (Ip::V4.pod(number), Ip::V6.pod(number));
    node.ip(&format!(
        "link add {veth} address {GATEWAY_HARDWARE} type veth \
         peer name eth0 address {hardware} netns {path}\n\
         address add fe80::1/64 dev {veth} nodad\n\
         link set {veth} up\n\
         route add {v4}/32 dev {veth}\n\
         route add {v6}/128 dev {veth}\n\
         neighbour replace {v4} lladdr {hardware} dev {veth} nud permanent\n\
         neighbour replace {v6} lladdr {hardware} dev {veth} nud permanent"
    ));
    pod.ip("link set eth0 up");
    node.await_link(&veth);
    pod.await_link("eth0");
}
