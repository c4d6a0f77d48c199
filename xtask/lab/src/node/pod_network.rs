//! The links of a node's pods: point to point with a link-local gateway, or on a bridge.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::net::{ADDRESSES_AT_ONCE, Family, Namespace, NodeAddresses, add_address, on_link};

/// The gateway that a point-to-point pod sees, on its link only.
const LINK_GATEWAY: &str = "169.254.1.1";
/// The same in IPv6. Unlike the other it is an address of the node's side: neighbours are asked for
/// from it.
const LINK_GATEWAY_V6: &str = "fe80::1";
/// The node's side of each point-to-point link has this hardware address, so that a pod's
/// neighbour entry for its gateway can be permanent. So has the bridge.
const LINK_GATEWAY_HARDWARE: &str = "ee:ee:ee:ee:ee:ee";
/// Pause between two looks whether a wanted address is free.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
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
    /// The pod's addresses, one of each family.
    pub addresses: Vec<IpAddr>,
    /// The pod's namespace.
    pub namespace: Namespace,
    number: u8,
    veth: String,
}

impl PodNetwork {
    /// The network of a node's pods; makes the bridge where there is one.
    pub async fn new(addresses: NodeAddresses, node: Arc<Namespace>, bridge: bool) -> Result<Self> {
        if bridge {
            let gateways = addresses.pod_addresses(1);
            // Without an address of its own a bridge has that of a port, and another when that goes:
            // pods would lose their gateway for a while. The bridge plugin pins it as well.
            node.ip_batch(&format!(
                "link add cbr0 address {LINK_GATEWAY_HARDWARE} type bridge stp_state 0 forward_delay 0\n\
                 {}\
                 link set cbr0 up\n",
                on_link(&gateways, "cbr0")
            ))
            .await?;
        }
        let numbers = Numbers { next: *POD_NUMBERS.start(), used: BTreeSet::new() };
        Ok(Self { addresses, node, bridge, numbers: Arc::new(Mutex::new(numbers)) })
    }

    /// Makes a pod's namespace and link, and the node's route to it; of an address that is wanted, or
    /// of the next.
    pub async fn attach(&self, wanted: Option<IpAddr>) -> Result<PodLink> {
        let number = match wanted {
            Some(address) => self.wait_for(address).await?,
            None => self.take_number()?,
        };
        let addresses = self.addresses.pod_addresses(number);
        let veth = format!("veth{number}");
        let namespace = Namespace::create(&format!("{}-pod{number}", self.addresses.name)).await?;
        let pod = namespace.name();
        if self.addresses.plan.has_v6() {
            namespace.sysctl(&[ADDRESSES_AT_ONCE])?;
        }
        if self.bridge {
            self.node
                .ip_batch(&format!(
                    "link add {veth} type veth peer name eth0 netns {pod}\n\
                     link set {veth} master cbr0\n\
                     link set {veth} type bridge_slave hairpin on\n\
                     link set {veth} up\n"
                ))
                .await?;
            let mut lines = on_link(&addresses, "eth0") + "link set eth0 up\n";
            for gateway in self.addresses.pod_addresses(1) {
                line(&mut lines, format_args!("route add default via {gateway}"));
            }
            namespace.ip_batch(&lines).await?;
        } else {
            self.node.ip_batch(&node_side(&addresses, &veth, pod)).await?;
            namespace.ip_batch(&pod_side(&addresses)).await?;
            // At last, as CNI plugins do: whoever sends to the address now finds its owner there.
            self.node.ip_batch(&node_routes(&addresses, &veth)).await?;
        }
        Ok(PodLink { addresses, namespace, number, veth })
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

    /// Takes a certain address, once its last owner is gone.
    async fn wait_for(&self, address: IpAddr) -> Result<u8> {
        let is_it = |number: &u8| self.addresses.pod_addresses(*number).contains(&address);
        let number = POD_NUMBERS.into_iter().find(is_it);
        let number = number.with_context(|| {
            format!("node {} has no pod address {address}", self.addresses.name)
        })?;
        loop {
            let taken = {
                let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
                !numbers.used.insert(number)
            };
            if !taken {
                return Ok(number);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
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

/// The node's side of a point-to-point link.
fn node_side(addresses: &[IpAddr], veth: &str, pod: &str) -> String {
    let mut lines = String::new();
    line(
        &mut lines,
        format_args!(
            "link add {veth} address {LINK_GATEWAY_HARDWARE} type veth peer name eth0 netns {pod}"
        ),
    );
    if addresses.iter().any(IpAddr::is_ipv6) {
        line(&mut lines, format_args!("link set {veth} addrgenmode none"));
        line(&mut lines, format_args!("address add {LINK_GATEWAY_V6}/64 dev {veth} nodad"));
    }
    line(&mut lines, format_args!("link set {veth} up"));
    lines
}

/// The node's routes to a pod behind a point-to-point link.
fn node_routes(addresses: &[IpAddr], veth: &str) -> String {
    let mut lines = String::new();
    for address in addresses {
        let prefix = Family::of(*address).host_prefix();
        line(&mut lines, format_args!("route add {address}/{prefix} dev {veth}"));
    }
    lines
}

/// The pod's side of a point-to-point link: everything else is behind the gateway.
fn pod_side(addresses: &[IpAddr]) -> String {
    let mut lines: String = addresses
        .iter()
        .map(|address| add_address(*address, Family::of(*address).host_prefix(), "eth0"))
        .collect();
    line(&mut lines, format_args!("link set eth0 up"));
    for family in addresses.iter().copied().map(Family::of) {
        let gateway = match family {
            Family::V4 => {
                line(&mut lines, format_args!("route add {LINK_GATEWAY} dev eth0 scope link"));
                LINK_GATEWAY
            }
            Family::V6 => LINK_GATEWAY_V6,
        };
        line(&mut lines, format_args!("route add default via {gateway} dev eth0"));
        line(
            &mut lines,
            format_args!(
                "neighbour replace {gateway} lladdr {LINK_GATEWAY_HARDWARE} dev eth0 nud permanent"
            ),
        );
    }
    lines
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(text, "{arguments}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{AddressPlan, IpFamily};

    #[test]
    fn a_point_to_point_pod_has_a_gateway_of_each_family_and_no_other() {
        let lines = |family| pod_side(&AddressPlan::new(0, family).node(1).pod_addresses(2));
        let (v4, v6) = (lines(IpFamily::Ipv4), lines(IpFamily::Ipv6));
        assert!(v4.contains("default via 169.254.1.1 dev eth0") && !v4.contains("fe80"));
        assert!(v6.contains("default via fe80::1 dev eth0") && !v6.contains("169.254"));
        assert!(v6.contains("address add fd00:10:244:1::2/128 dev eth0 nodad"));
        assert_eq!(lines(IpFamily::Dual).matches("default via").count(), 2);
    }
}
