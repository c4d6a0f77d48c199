//! One attempt to open a connection, as the kernel saw it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::Mono;

/// What identifies an attempt: the original tuple (client → the address it dialled) and the ISN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptKey {
    /// The client's own address and port.
    pub client: SocketAddr,
    /// The address and port it dialled: a Service's, or a pod's.
    pub original: SocketAddr,
    /// Initial sequence number of its SYN.
    pub isn: u32,
}

/// An attempt's record at the moment of a sighting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Identity.
    pub key: AttemptKey,
    /// Where the last SYN went: the reply tuple's source. The original destination if there was no
    /// DNAT; `None` if no SYN was seen.
    pub backend: Option<SocketAddr>,
    /// The first SYN.
    pub first_syn: Mono,
    /// The last SYN.
    pub last_syn: Mono,
    /// SYNs seen, retransmits included.
    pub syns: u32,
    /// Conntrack shows a DNAT: this node made the Service's choice, so this node accounts.
    pub dnat: bool,
    /// The entry was confirmed: it will pin later SYNs of the tuple.
    pub confirmed: bool,
    /// The SYN used an entry that was not new (see "Stale" in ARCHITECTURE.md).
    pub stale: bool,
}

/// How an attempt was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum Answer {
    /// SYN+ACK, or the client's socket became established.
    SynAck,
    /// RST.
    Rst,
    /// An ICMP or `ICMPv6` "destination unreachable" about its SYN.
    Icmp {
        /// ICMP code.
        code: u8,
        /// `ICMPv6` rather than ICMP.
        v6: bool,
    },
}

/// Why the kernel dropped a SYN: the name in `enum skb_drop_reason` without its prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drop {
    /// E.g. `NEIGH_FAILED`.
    pub reason: std::sync::Arc<str>,
}

/// How a backend ended a connection that had been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By FIN or RST, without a byte since the client's last message.
    Cut,
    /// By RST, after some of an answer, or before the client had asked anything.
    Reset,
    /// As `Cut`, but the last message may have been one that nobody answers.
    Closed,
}

/// One thing the probes saw, with the attempt as it stood then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "saw")]
pub enum Sighting {
    /// An answer.
    Answered {
        /// The attempt.
        attempt: Attempt,
        /// What came.
        answer: Answer,
        /// When.
        at: Mono,
    },
    /// A SYN was dropped by this kernel.
    Dropped {
        /// The attempt.
        attempt: Attempt,
        /// Why.
        drop: Drop,
        /// When.
        at: Mono,
    },
    /// The client's socket left `SYN_SENT` without being connected.
    Abandoned {
        /// The attempt; `backend` is `None` if its SYN passed no device.
        attempt: Attempt,
        /// When `connect()` began; `None` if that was before the probes.
        started: Option<Mono>,
        /// The socket's error: 0 where the application gave up by itself.
        errno: i32,
        /// When.
        at: Mono,
    },
    /// A new SYN, of another ISN, took over the tuple of this unanswered attempt.
    Superseded {
        /// The earlier attempt.
        attempt: Attempt,
        /// When the new SYN was seen.
        at: Mono,
    },
    /// The backend ended a connection that the client had not ended.
    Ended {
        /// The attempt that began it, dated by its answer; of a connection older than the agent, by the
        /// first message that was seen, with a number made up from that.
        attempt: Attempt,
        /// How.
        end: End,
        /// When.
        at: Mono,
    },
    /// Found unanswered by the sweep, older than the deadline.
    Unanswered {
        /// The attempt.
        attempt: Attempt,
        /// When the sweep looked.
        at: Mono,
    },
}

impl Sighting {
    /// The attempt it is about.
    pub fn attempt(&self) -> &Attempt {
        match self {
            Self::Answered { attempt, .. }
            | Self::Dropped { attempt, .. }
            | Self::Abandoned { attempt, .. }
            | Self::Superseded { attempt, .. }
            | Self::Ended { attempt, .. }
            | Self::Unanswered { attempt, .. } => attempt,
        }
    }

    /// When it was seen.
    pub fn at(&self) -> Mono {
        match self {
            Self::Answered { at, .. }
            | Self::Dropped { at, .. }
            | Self::Abandoned { at, .. }
            | Self::Superseded { at, .. }
            | Self::Ended { at, .. }
            | Self::Unanswered { at, .. } => *at,
        }
    }
}
