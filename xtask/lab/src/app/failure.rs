//! A client's record of a failed request, and its summary: the truth that agents are held to.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A line of a client's log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// The load begins.
    Started {
        /// When, in nanoseconds since the epoch.
        at: i64,
    },
    /// A request failed.
    Failure(Failure),
    /// Once a second: how far the load has come.
    Progress {
        /// Requests so far.
        requests: u64,
        /// Failed ones so far.
        failed: u64,
    },
    /// The last line.
    Summary(Summary),
}

/// A failed request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// When the request began, in nanoseconds since the epoch; on a fresh connection that is just
    /// before connect.
    pub start: i64,
    /// When its connection was begun: equal to `start` unless the connection is reused.
    pub connect_start: i64,
    /// When it failed.
    pub end: i64,
    /// Where it failed.
    pub phase: Phase,
    /// The class, as far as a client can tell.
    pub class: ClientClass,
    /// The error in words.
    pub error: String,
    /// The error's number, when the kernel gave one.
    pub errno: Option<i32>,
    /// The client's own address and port.
    pub local: SocketAddr,
    /// The connection had carried other requests before.
    pub reused: bool,
    /// The pod that answered, when one did.
    pub pod: Option<String>,
}

/// Where a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// While connecting.
    Connect,
    /// On a connection that had been answered.
    Request,
}

/// How a request failed, as far as a client can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientClass {
    /// ECONNREFUSED.
    Refused,
    /// The client's own timeout while connecting.
    Timeout,
    /// EHOSTUNREACH or ENETUNREACH.
    Unreachable,
    /// ECONNRESET (or EPIPE after it).
    Reset,
    /// End of stream before the whole answer.
    Cut,
    /// The client's own timeout on a connection that had been answered.
    Stalled,
    /// An answer of another application.
    Misdelivered,
    /// Anything else.
    Other,
}

impl ClientClass {
    /// Whether it befalls connections that had been answered.
    pub fn is_of_answered(self) -> bool {
        matches!(self, Self::Reset | Self::Cut | Self::Stalled | Self::Misdelivered)
    }

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Reset => "reset",
            Self::Cut => "cut",
            Self::Stalled => "stalled",
            Self::Misdelivered => "misdelivered",
            Self::Other => "other",
        }
    }
}

/// The whole load in numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Requests begun and ended.
    pub requests: u64,
    /// Failed ones.
    pub failed: u64,
    /// Failed ones by class.
    pub by_class: BTreeMap<String, u64>,
    /// Answered requests by pod.
    pub answered: BTreeMap<String, u64>,
}
