//! Which addresses a lab uses. Labs that run at the same time have different ones: each is alone in
//! its network namespaces, but the agents' kernel programs see the packets of all of them.
//!
//! The IPv6 ranges are unique local addresses in kubeadm's sizes: /56 for all pods, /64 for a node's,
//! /112 for Services.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::{Context, Result, bail};

use super::family::{Family, IpFamily};

/// Labs that can run at the same time.
pub const LABS: u8 = 16;

/// The addresses of a lab, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressPlan {
    lab: u8,
    ip_family: IpFamily,
}

impl AddressPlan {
    /// The plan of a lab's number, which is below [`LABS`], in these families.
    pub fn new(lab: u8, ip_family: IpFamily) -> Self {
        Self { lab, ip_family }
    }

    /// The families in use, the first one first.
    pub fn families(self) -> &'static [Family] {
        self.ip_family.families()
    }

    /// Whether IPv6 is in use.
    pub fn has_v6(self) -> bool {
        self.families().contains(&Family::V6)
    }

    /// The fabric's own address of a family: it is the nodes' default gateway (which forwards
    /// nothing), and that of the first family is the API server's.
    pub fn fabric(self, family: Family) -> IpAddr {
        self.on_fabric(family, 1)
    }

    /// The API server's address.
    pub fn api_server(self) -> IpAddr {
        self.fabric(self.ip_family.first())
    }

    /// All pods of the cluster.
    pub fn cluster_cidr(self, family: Family) -> String {
        match family {
            Family::V4 => format!("10.{}.0.0/16", self.pod_byte()),
            Family::V6 => format!("{}/56", self.pod_v6(0, 0)),
        }
    }

    /// The cluster addresses of the Service under test, one of each family.
    pub fn service(self) -> Vec<IpAddr> {
        self.further_service(0)
    }

    /// The cluster addresses of a further Service; number 0 is the one under test.
    pub fn further_service(self, number: u8) -> Vec<IpAddr> {
        let host = 80 + self.lab;
        let of = |family: &Family| match family {
            Family::V4 => Ipv4Addr::new(10, 96, number, host).into(),
            Family::V6 => {
                Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, u16::from_be_bytes([number, host]))
                    .into()
            }
        };
        self.families().iter().map(of).collect()
    }

    /// The address of a client outside the cluster, of each family; no range of the cluster's has it.
    pub fn outside(self) -> Vec<IpAddr> {
        let of = |family: &Family| match family {
            Family::V4 => Ipv4Addr::new(192, 168, self.lab, 9).into(),
            Family::V6 => Ipv6Addr::new(0xfd00, 0x192, 0x168, self.lab.into(), 0, 0, 0, 9).into(),
        };
        self.families().iter().map(of).collect()
    }

    /// All ranges of the cluster: its pods', and its nodes'.
    pub fn ranges(self) -> Vec<String> {
        let of = |family: &Family| {
            let nodes = format!("{}/{}", self.on_fabric(*family, 0), family.link_prefix());
            [self.cluster_cidr(*family), nodes]
        };
        self.families().iter().flat_map(of).collect()
    }

    /// The node of a number from 1 to 100.
    pub fn node(self, number: u8) -> NodeAddresses {
        let addresses = self.families().iter().map(|f| self.on_fabric(*f, 10 + number)).collect();
        NodeAddresses {
            name: format!("n{number}"),
            number,
            address: self.on_fabric(self.ip_family.first(), 10 + number),
            addresses,
            plan: self,
        }
    }

    fn on_fabric(self, family: Family, host: u8) -> IpAddr {
        match family {
            Family::V4 => Ipv4Addr::new(172, 30, self.lab, host).into(),
            Family::V6 => {
                Ipv6Addr::new(0xfd00, 0x172, 0x30, self.lab.into(), 0, 0, 0, host.into()).into()
            }
        }
    }

    fn pod_byte(self) -> u8 {
        244 - self.lab
    }

    fn pod_v6(self, node: u8, pod: u8) -> Ipv6Addr {
        let range = u16::from_be_bytes([self.lab, node]);
        Ipv6Addr::new(0xfd00, 0x10, 0x244, range, 0, 0, 0, pod.into())
    }
}

/// A node's name and addresses.
#[derive(Debug, Clone)]
pub struct NodeAddresses {
    /// `n1`, `n2`, …
    pub name: String,
    /// The number, which is in its pods' addresses.
    pub number: u8,
    /// Address of `eth0`, of the first family.
    pub address: IpAddr,
    /// The addresses of `eth0`, one of each family.
    pub addresses: Vec<IpAddr>,
    /// The lab's plan.
    pub plan: AddressPlan,
}

impl NodeAddresses {
    /// The range of its pods' addresses of a family.
    pub fn pod_cidr(&self, family: Family) -> String {
        match family {
            Family::V4 => format!("10.{}.{}.0/24", self.plan.pod_byte(), self.number),
            Family::V6 => format!("{}/64", self.plan.pod_v6(self.number, 0)),
        }
    }

    /// The ranges of its pods' addresses, one of each family.
    pub fn pod_cidrs(&self) -> Vec<String> {
        self.plan.families().iter().map(|family| self.pod_cidr(*family)).collect()
    }

    /// The addresses of its pod number n, one of each family.
    pub fn pod_addresses(&self, n: u8) -> Vec<IpAddr> {
        let of = |family: &Family| match family {
            Family::V4 => Ipv4Addr::new(10, self.plan.pod_byte(), self.number, n).into(),
            Family::V6 => self.plan.pod_v6(self.number, n).into(),
        };
        self.plan.families().iter().map(of).collect()
    }
}

/// A lab's number, taken for as long as this lives. It is a listening socket in the abstract
/// namespace, so the kernel gives it back when the process ends in whatever way.
#[derive(Debug)]
pub struct LabNumber {
    /// The number.
    pub number: u8,
    _held: UnixListener,
}

impl LabNumber {
    /// Takes the lowest number that no running lab has.
    pub fn take() -> Result<Self> {
        for number in 0..LABS {
            let name = SocketAddr::from_abstract_name(format!("rollrace-lab-{number}"))
                .context("name the lab's number")?;
            match UnixListener::bind_addr(&name) {
                Ok(held) => {
                    return Ok(Self { number, _held: held });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error).context("take a number for the lab"),
            }
        }
        bail!("{LABS} labs are running already: wait for one to end")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labs_share_no_address_of_either_family() {
        let plans = [0, LABS - 1].map(|lab| AddressPlan::new(lab, IpFamily::Dual));
        let [one, two] = plans;
        for (at, family) in IpFamily::Dual.families().iter().enumerate() {
            assert_ne!(one.cluster_cidr(*family), two.cluster_cidr(*family));
            assert_ne!(one.fabric(*family), two.fabric(*family));
            assert_ne!(one.node(2).addresses[at], two.node(2).addresses[at]);
            assert_ne!(one.service()[at], two.service()[at]);
            assert_ne!(one.further_service(1)[at], one.service()[at]);
        }
    }

    #[test]
    fn a_nodes_pods_are_in_its_range_and_that_in_the_clusters() {
        let node = AddressPlan::new(3, IpFamily::Dual).node(1);
        assert_eq!(node.pod_cidrs(), ["10.241.1.0/24", "fd00:10:244:301::/64"]);
        assert_eq!(node.plan.cluster_cidr(Family::V4), "10.241.0.0/16");
        assert_eq!(node.plan.cluster_cidr(Family::V6), "fd00:10:244:300::/56");
        let pod: Vec<String> = node.pod_addresses(20).iter().map(ToString::to_string).collect();
        assert_eq!(pod, ["10.241.1.20", "fd00:10:244:301::14"]);
    }

    #[test]
    fn a_cluster_of_one_family_has_no_address_of_the_other() {
        let plan = AddressPlan::new(0, IpFamily::Ipv6);
        let node = plan.node(1);
        let all = [node.addresses.clone(), node.pod_addresses(2), plan.service()].concat();
        assert!(all.iter().chain([&node.address, &plan.api_server()]).all(IpAddr::is_ipv6));
        assert_eq!(AddressPlan::new(0, IpFamily::Dual).node(1).address.to_string(), "172.30.0.11");
    }

    #[test]
    fn two_numbers_taken_at_once_differ() {
        let one = LabNumber::take().expect("a number");
        let two = LabNumber::take().expect("another number");
        assert_ne!(one.number, two.number);
    }
}
