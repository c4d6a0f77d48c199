//! The addresses of the tests' little cluster, in both versions of IP.

use std::net::{IpAddr, SocketAddr};

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Ip {
    fn address(self, v4: &str, v6: &str) -> IpAddr {
        let text = if self == Self::V4 { v4 } else { v6 };
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// A pod on a link of its own.
    pub fn pod(self, number: u8) -> IpAddr {
        self.address(&format!("10.244.1.{number}"), &format!("fd00:10:244:1::{number}"))
    }

    /// A pod on the node's bridge; 1 is the bridge's own address.
    pub fn bridge_pod(self, number: u8) -> IpAddr {
        self.address(&format!("10.245.1.{number}"), &format!("fd00:10:245:1::{number}"))
    }

    /// A pod of another node, behind the router.
    pub fn remote_pod(self, number: u8) -> IpAddr {
        self.address(&format!("10.244.2.{number}"), &format!("fd00:10:244:2::{number}"))
    }

    /// The node, on the link to the outside.
    pub fn node(self) -> IpAddr {
        self.address("192.168.78.1", "fd00:78::1")
    }

    /// The neighbour outside: a client, or the router.
    pub fn outside(self) -> IpAddr {
        self.address("192.168.78.9", "fd00:78::9")
    }

    /// A Service's own address, port 80.
    pub fn service(self, number: u8) -> SocketAddr {
        at(self.address(&format!("10.96.0.{number}"), &format!("fd00:10:96::{number}")), 80)
    }

    /// Loopback.
    pub fn loopback(self) -> IpAddr {
        self.address("127.0.0.1", "::1")
    }

    /// Every address.
    pub fn any(self) -> IpAddr {
        self.address("0.0.0.0", "::")
    }

    /// The version of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// An address and a port.
pub fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}
