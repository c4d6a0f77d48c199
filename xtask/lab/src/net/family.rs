//! Address families: one by one, and which of them a cluster has.

use std::net::IpAddr;

use clap::ValueEnum;

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The name in `ipFamilies` and in a slice's `addressType`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The length of the prefix that is one address.
    pub fn host_prefix(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The length of the prefix of a link with many addresses.
    pub fn link_prefix(self) -> u8 {
        match self {
            Self::V4 => 24,
            Self::V6 => 64,
        }
    }
}

/// The address families of a cluster, the first one being that of `podIP` and `clusterIP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IpFamily {
    /// IPv4 only
    Ipv4,
    /// IPv6 only
    Ipv6,
    /// Both, IPv4 first
    Dual,
}

impl IpFamily {
    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Dual => "dual",
        }
    }

    /// The families in their order.
    pub fn families(self) -> &'static [Family] {
        match self {
            Self::Ipv4 => &[Family::V4],
            Self::Ipv6 => &[Family::V6],
            Self::Dual => &[Family::V4, Family::V6],
        }
    }

    /// The first of them.
    pub fn first(self) -> Family {
        match self {
            Self::Ipv4 | Self::Dual => Family::V4,
            Self::Ipv6 => Family::V6,
        }
    }
}
