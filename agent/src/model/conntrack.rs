//! Conntrack entries as a scan finds them: unanswered, and sent elsewhere than they were dialled.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::Mono;
use crate::closed::names;

names! {
    /// Transport protocol of an entry.
    Transport {
        /// TCP.
        Tcp = "tcp",
        /// UDP.
        Udp = "udp",
    }
}

/// `TCP_CONNTRACK_SYN_SENT` of `enum tcp_conntrack` (`nf_conntrack_tcp.h`).
pub const SYN_SENT: u8 = 1;

/// `IPS_SEEN_REPLY` of `enum ip_conntrack_status`: something came back.
pub const SEEN_REPLY: u32 = 1 << 1;

/// `IPS_DST_NAT`: netfilter itself changed the destination (IPVS does not say so).
pub const DST_NAT: u32 = 1 << 5;

/// What identifies an entry: its original tuple and its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EntryKey {
    /// Protocol.
    pub protocol: Transport,
    /// Source of the original direction.
    pub client: SocketAddr,
    /// Destination of the original direction: what was dialled.
    pub original: SocketAddr,
    /// Conntrack zone; 0 unless somebody set one.
    #[serde(default, skip_serializing_if = "is_default_zone")]
    pub zone: u16,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_default_zone(zone: &u16) -> bool {
    *zone == 0
}

/// An entry without an answer whose backend is not what was dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConntrackEntry {
    /// Identity.
    #[serde(flatten)]
    pub key: EntryKey,
    /// Source of the reply direction: where the packets go.
    pub backend: SocketAddr,
    /// The kernel's id of the entry: another entry of the same tuple has another.
    pub id: u32,
    /// `enum ip_conntrack_status`.
    pub status: u32,
    /// `enum tcp_conntrack`, of a TCP entry.
    pub state: Option<u8>,
    /// When it expires unless another packet hits it; the kernel tells it in whole seconds.
    pub expires: Mono,
}

names! {
    /// What became of an eviction.
    EvictionResult {
        /// The entry was deleted.
        Evicted = "evicted",
        /// It would have been (`--evict-stale dry-run`).
        DryRun = "dry_run",
        /// It was not there any more.
        Gone = "gone",
        /// It was not what it had been: answered, or another entry of the same tuple.
        Changed = "changed",
        /// The kernel refused.
        Failed = "failed",
    }
}
