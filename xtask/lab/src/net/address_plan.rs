//! Which addresses a lab uses. Labs that run at the same time have different ones: each is alone in
//! its network namespaces, but the agents' kernel programs see the packets of all of them.

use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::{Context, Result, bail};

/// Labs that can run at the same time.
pub const LABS: u8 = 16;

/// The addresses of a lab, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressPlan {
    lab: u8,
}

impl AddressPlan {
    /// The plan of a lab's number, which is below [`LABS`].
    pub fn new(lab: u8) -> Self {
        Self { lab }
    }

    /// The fabric's own address: the API server listens here, and it is the nodes' default gateway
    /// (which forwards nothing).
    pub fn fabric(self) -> Ipv4Addr {
        Ipv4Addr::new(172, 30, self.lab, 1)
    }

    /// All pods of the cluster.
    pub fn cluster_cidr(self) -> String {
        format!("10.{}.0.0/16", self.pod_byte())
    }

    /// The cluster address of the Service under test.
    pub fn service(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 96, 0, 80 + self.lab)
    }

    /// The cluster address of a further Service; number 0 is the one under test.
    pub fn further_service(self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 96, number, 80 + self.lab)
    }

    /// The node of a number from 1 to 100.
    pub fn node(self, number: u8) -> NodeAddresses {
        NodeAddresses {
            name: format!("n{number}"),
            number,
            address: Ipv4Addr::new(172, 30, self.lab, 10 + number),
            plan: self,
        }
    }

    fn pod_byte(self) -> u8 {
        244 - self.lab
    }
}

/// A node's name and addresses.
#[derive(Debug, Clone)]
pub struct NodeAddresses {
    /// `n1`, `n2`, …
    pub name: String,
    /// The number, which is the third byte of its pods' addresses.
    pub number: u8,
    /// Address of `eth0`.
    pub address: Ipv4Addr,
    /// The lab's plan.
    pub plan: AddressPlan,
}

impl NodeAddresses {
    /// The range of its pods' addresses.
    pub fn pod_cidr(&self) -> String {
        format!("10.{}.{}.0/24", self.plan.pod_byte(), self.number)
    }

    /// The address of its pod number n.
    pub fn pod_address(&self, n: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.plan.pod_byte(), self.number, n)
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
    fn labs_share_no_address() {
        let (one, two) = (AddressPlan::new(0), AddressPlan::new(LABS - 1));
        assert_eq!(one.node(1).pod_cidr(), "10.244.1.0/24");
        assert_ne!(one.cluster_cidr(), two.cluster_cidr());
        assert_ne!(one.node(2).address, two.node(2).address);
        assert_ne!(one.service(), two.service());
    }

    #[test]
    fn two_numbers_taken_at_once_differ() {
        let one = LabNumber::take().expect("a number");
        let two = LabNumber::take().expect("another number");
        assert_ne!(one.number, two.number);
    }
}
