//! The links of a node's pods: point to point with a link-local gateway, or on a bridge.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail};

use crate::net::{Namespace, NodeAddresses};

/// The gateway that a point-to-point pod sees, on its link only.
const LINK_GATEWAY: &str = "169.254.1.1";
/// The node's side of each point-to-point link has this hardware address, so that a pod's
/// neighbour entry for its gateway can be permanent.
const LINK_GATEWAY_HARDWARE: &str = "ee:ee:ee:ee:ee:ee";
/// Pod numbers on a node; 1 is the bridge's own.
const POD_NUMBERS: std::ops::RangeInclusive<u8> = 2..=254;

/// Attaches and detaches pods; clones share the addresses in use.
#[derive(Debug, Clone)]
pub struct PodNetwork {
    addresses: NodeAddresses,
    node: Arc<Namespace>,
    bridge: bool,
    numbers: Arc<Mutex<Numbers>>,
}

#[derive(Debug)]
struct Numbers {
    next: u8,
    used: BTreeSet<u8>,
}

/// A pod's namespace and its link to the node.
#[derive(Debug)]
pub struct PodLink {
    /// The pod's address.
    pub address: Ipv4Addr,
    /// The pod's namespace.
    pub namespace: Namespace,
    number: u8,
    veth: String,
}

impl PodNetwork {
    /// The network of a node's pods; makes the bridge where there is one.
    pub async fn new(addresses: NodeAddresses, node: Arc<Namespace>, bridge: bool) -> Result<Self> {
        if bridge {
            node.ip_batch(&format!(
                "link add cbr0 type bridge stp_state 0 forward_delay 0\n\
                 address add {}/24 dev cbr0\n\
                 link set cbr0 up\n",
                addresses.pod_address(1)
            ))
            .await?;
        }
        let numbers = Numbers { next: *POD_NUMBERS.start(), used: BTreeSet::new() };
        Ok(Self { addresses, node, bridge, numbers: Arc::new(Mutex::new(numbers)) })
    }

    /// Makes a pod's namespace and link, and the node's route to it.
    pub async fn attach(&self) -> Result<PodLink> {
        let number = self.take_number()?;
        let address = self.addresses.pod_address(number);
        let veth = format!("veth{number}");
        let namespace = Namespace::create(&format!("{}-pod{number}", self.addresses.name)).await?;
        let pod = namespace.name();
        if self.bridge {
            self.node
                .ip_batch(&format!(
                    "link add {veth} type veth peer name eth0 netns {pod}\n\
                     link set {veth} master cbr0\n\
                     link set {veth} type bridge_slave hairpin on\n\
                     link set {veth} up\n"
                ))
                .await?;
            let gateway = self.addresses.pod_address(1);
            namespace
                .ip_batch(&format!(
                    "address add {address}/24 dev eth0\n\
                     link set eth0 up\n\
                     route add default via {gateway}\n"
                ))
                .await?;
        } else {
            self.node
                .ip_batch(&format!(
                    "link add {veth} address {LINK_GATEWAY_HARDWARE} type veth peer name eth0 netns {pod}\n\
                     link set {veth} up\n\
                     route add {address}/32 dev {veth}\n"
                ))
                .await?;
            namespace
                .ip_batch(&format!(
                    "address add {address}/32 dev eth0\n\
                     link set eth0 up\n\
                     route add {LINK_GATEWAY} dev eth0 scope link\n\
                     route add default via {LINK_GATEWAY}\n\
                     neighbour add {LINK_GATEWAY} lladdr {LINK_GATEWAY_HARDWARE} dev eth0 nud permanent\n"
                ))
                .await?;
        }
        Ok(PodLink { address, namespace, number, veth })
    }

    /// Removes a pod's link (and with it the node's route), then its namespace.
    pub async fn detach(&self, link: PodLink) -> Result<()> {
        self.node.ip_batch(&format!("link delete {}\n", link.veth)).await?;
        link.namespace.remove().await?;
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.used.remove(&link.number);
        Ok(())
    }

    /// The node's namespace, where host-network pods live.
    pub fn node_namespace(&self) -> &Namespace {
        &self.node
    }

    /// Addresses go round before they come again, as a CNI plugin hands them out.
    fn take_number(&self) -> Result<u8> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in POD_NUMBERS {
            let number = numbers.next;
            numbers.next =
                if number == *POD_NUMBERS.end() { *POD_NUMBERS.start() } else { number + 1 };
            if numbers.used.insert(number) {
                return Ok(number);
            }
        }
        bail!("node {} has no pod address left: use fewer pods a node", self.addresses.name)
    }
}
