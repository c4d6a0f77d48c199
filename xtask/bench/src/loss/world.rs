//! Four clients, a node that DNATs a Service to four backends.

use std::{
    fmt::Write as _,
    net::{Ipv4Addr, SocketAddrV4, TcpListener},
    ops::Range,
    os::fd::AsRawFd as _,
    sync::Arc,
    thread,
};

use anyhow::{Context as _, Result};
use nix::sys::socket::{Backlog, Shutdown, listen, shutdown};

use crate::namespace::Namespace;

/// The Service.
pub const SERVICE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 80), 80);
/// How many clients, and how many backends.
pub const EACH: u8 = 4;
/// What the node's end of every link is called by the pods.
const GATEWAY: &str = "169.254.1.1";
/// Its hardware address.
const GATEWAY_MAC: &str = "ee:ee:ee:ee:ee:ee";

/// A client's address; they are pods of the node.
pub const fn client(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 244, 1, 10 + number)
}

/// A backend's address and port.
pub const fn backend(number: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 244, 2, 10 + number), 8080)
}

/// The namespaces.
pub struct World {
    /// The node.
    pub node: Namespace,
    /// The clients.
    pub clients: Vec<Namespace>,
    /// The backends.
    pub backends: Vec<Backend>,
}

/// A backend that takes connections and closes them.
pub struct Backend {
    namespace: Namespace,
    listener: Arc<TcpListener>,
}

impl World {
    /// Builds it, with the Service's rules for all backends.
    ///
    /// # Errors
    /// Without the rights, or without `ip` and `iptables-restore`.
    pub fn build() -> Result<Self> {
        let node = Namespace::new()?;
        node.sysctl("net/ipv4/ip_forward", "1")?;
        let mut clients = Vec::new();
        let mut backends = Vec::new();
        for number in 0..EACH {
            clients.push(pod(&node, &format!("c{number}"), client(number))?);
            let namespace = pod(&node, &format!("b{number}"), *backend(number).ip())?;
            backends.push(Backend::start(namespace)?);
        }
        let world = Self { node, clients, backends };
        world.program(0)?;
        // Closed connections leave the table soon: it is the machine's, and has a limit.
        world.node.sysctl("net/netfilter/nf_conntrack_tcp_timeout_close", "2")?;
        Ok(world)
    }

    /// Programs the Service for the backends from `first` on, in kube-proxy's shape.
    ///
    /// # Errors
    /// If `iptables-restore` fails.
    pub fn program(&self, first: u8) -> Result<()> {
        program(&self.node, first..EACH)
    }
}

/// Programs the Service for these backends, in kube-proxy's shape.
///
/// # Errors
/// If `iptables-restore` fails.
pub fn program(node: &Namespace, backends: Range<u8>) -> Result<()> {
    let mut text = String::from("*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n");
    for number in backends.clone() {
        writeln!(text, ":KUBE-SEP-{number} - [0:0]")?;
    }
    let (ip, port) = (SERVICE.ip(), SERVICE.port());
    writeln!(text, "-A PREROUTING -j KUBE-SERVICES")?;
    writeln!(text, "-A KUBE-SERVICES -d {ip} -p tcp -m tcp --dport {port} -j KUBE-SVC-A")?;
    for number in backends.clone() {
        let share = 1.0 / f64::from(backends.end - number);
        let choice = if number + 1 == backends.end {
            String::new()
        } else {
            format!("-m statistic --mode random --probability {share:.8} ")
        };
        writeln!(text, "-A KUBE-SVC-A {choice}-j KUBE-SEP-{number}")?;
        let to = backend(number);
        writeln!(text, "-A KUBE-SEP-{number} -p tcp -m tcp -j DNAT --to-destination {to}")?;
    }
    text.push_str("COMMIT\n");
    node.tool("iptables-restore", &[], &text).map(drop)
}

/// A pod on a link of its own.
///
/// # Errors
/// Without the rights, or without `ip`.
pub fn pod(node: &Namespace, link: &str, address: Ipv4Addr) -> Result<Namespace> {
    let pod = Namespace::new()?;
    let path = pod.path();
    node.ip(&format!(
        "link add {link} address {GATEWAY_MAC} type veth peer name eth0 netns {path}\n\
         link set {link} up"
    ))?;
    pod.ip(&format!(
        "link set eth0 up\naddress add {address}/32 dev eth0\n\
         route add {GATEWAY} dev eth0 scope link\nroute add default via {GATEWAY}\n\
         neighbour replace {GATEWAY} lladdr {GATEWAY_MAC} dev eth0 nud permanent"
    ))?;
    node.await_link(link)?;
    pod.await_link("eth0")?;
    let shown = pod.tool("ip", &["-oneline", "link", "show", "dev", "eth0"], "")?;
    let hardware = shown.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
    let hardware = hardware.with_context(|| format!("no hardware address in: {shown}"))?;
    node.ip(&format!(
        "route add {address}/32 dev {link}\n\
         neighbour replace {address} lladdr {hardware} dev {link} nud permanent"
    ))?;
    Ok(pod)
}

impl Backend {
    fn start(namespace: Namespace) -> Result<Self> {
        let listener = namespace.run(|| {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 8080)).context("listen")?;
            // The queue of connections not yet accepted must not overflow: it would drop SYNs.
            listen(&listener, Backlog::new(4_096).context("a backlog")?)
                .context("lengthen the backlog")?;
            Ok(listener)
        })?;
        let listener = Arc::new(listener);
        let accepting = Arc::clone(&listener);
        thread::spawn(move || {
            // Ends when the listener is shut down, or with the process.
            while let Ok((connection, _)) = accepting.accept() {
                drop(connection);
            }
        });
        Ok(Self { namespace, listener })
    }

    /// Its own.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Closes the listener: the kernel refuses from here on.
    ///
    /// # Errors
    /// If it is closed already.
    pub fn close(&mut self) -> Result<()> {
        shutdown(self.listener.as_raw_fd(), Shutdown::Both).context("close a backend's listener")
    }

    /// Takes its network away: nothing is answered from here on.
    ///
    /// # Errors
    /// If `iptables-restore` fails.
    pub fn silence(&self) -> Result<()> {
        let rules = "*filter\n-A INPUT -j DROP\nCOMMIT\n";
        self.namespace.tool("iptables-restore", &[], rules).map(drop)
    }
}
