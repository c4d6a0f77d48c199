//! The addresses of the tests' little cluster, in both versions of IP.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// A second byte for the addresses of this thread's test. A pod's socket is known by its address
    /// alone, wherever its namespace is, so clusters of tests that run at once must not share any.
    static CLUSTER: u8 = {
        let number = process::id().wrapping_mul(37) + NEXT.fetch_add(1, Ordering::Relaxed);
        u8::try_from(1 + number % 239).expect("below 240")
    };
}

impl Ip {
    fn address(self, v4: &str, v6: &str) -> IpAddr {
        let text = CLUSTER.with(|cluster| match self {
            Self::V4 => format!("10.{cluster}.{v4}"),
            Self::V6 => format!("fd00:{cluster}:{v6}"),
        });
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// A pod on a link of its own.
    pub fn pod(self, number: u8) -> IpAddr {
        self.address(&format!("1.{number}"), &format!("1::{number}"))
    }

    /// A pod on the node's bridge; 1 is the bridge's own address.
    pub fn bridge_pod(self, number: u8) -> IpAddr {
        self.address(&format!("2.{number}"), &format!("2::{number}"))
    }

    /// A pod of another node, behind the router.
    pub fn remote_pod(self, number: u8) -> IpAddr {
        self.address(&format!("3.{number}"), &format!("3::{number}"))
    }

    /// The node, on the link to the outside.
    pub fn node(self) -> IpAddr {
        self.address("78.1", "78::1")
    }

    /// The neighbour outside: a client, or the router.
    pub fn outside(self) -> IpAddr {
        self.address("78.9", "78::9")
    }

    /// A Service's own address, port 80.
    pub fn service(self) -> SocketAddr {
        at(self.address("96.80", "96::80"), 80)
    }

    /// Loopback.
    pub fn loopback(self) -> IpAddr {
        if self == Self::V4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
    }

    /// Every address.
    pub fn any(self) -> IpAddr {
        if self == Self::V4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
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
