//! What an agent does without where the kernel, or what the node allows, lacks something: the rest goes
//! on, and this is said.

use serde::Serialize;

/// Something that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Lacking {
    /// What.
    pub feature: &'static str,
    /// The kernel's version that has it, or what gives it.
    pub since: &'static str,
    /// What it means.
    pub without: &'static str,
}

/// Plain loads of kernel memory: the kfunc `bpf_rdonly_cast`.
pub const PLAIN_LOADS: Lacking = Lacking {
    feature: "plain_loads",
    since: "Linux 6.2",
    without: "packets are read by a helper: each costs about twice as much, nothing else changes",
};

/// The place of payload that lies in pages of its own.
pub const PAYLOAD: Lacking = Lacking {
    feature: "payload",
    since: "x86-64, or kernel.kptr_restrict below 2 and CAP_SYSLOG",
    without: "short messages are told by their length alone: more ends of connections count as \
              closed_connections instead of as failures",
};

/// Conntrack.
pub const CONNTRACK: Lacking = Lacking {
    feature: "conntrack",
    since: "nf_conntrack, which a proxy's first NAT rule loads",
    without: "connections through a Service's address cannot be told apart; those to endpoints \
              themselves can",
};

/// The kernel's version that first has plain loads.
pub const PLAIN_LOADS_SINCE: (u32, u32) = (6, 2);
