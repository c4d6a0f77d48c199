//! The agent's API as the lab reads it. Written apart from the agent's own types on purpose: the
//! lab is a client like any other, and a change of the contract shall show.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `/api/v1/status`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Attempts that are neither answered nor given up.
    pub pending_attempts: u64,
    /// Failures that wait for evidence.
    pub undecided_failures: u64,
    /// Losses by reason.
    #[serde(default)]
    pub losses: Value,
    /// What the agent was there for.
    #[serde(default)]
    pub coverage: Coverage,
    /// Stale conntrack entries.
    #[serde(default)]
    pub stale: Stale,
    /// Connections that leaving endpoints ended, of which the wire cannot tell whether anything was lost.
    #[serde(default)]
    pub closed_by_service: Vec<Closed>,
    /// What became of the Kubernetes Events of rollouts, by result; `open`: still to be written.
    #[serde(default)]
    pub events: BTreeMap<String, u64>,
    /// The conntrack table.
    #[serde(default)]
    pub conntrack_scan: ConntrackScan,
}

/// What the kernel counts of the node's conntrack table.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ConntrackScan {
    /// Packets dropped for want of room.
    pub table_drops: Option<u64>,
    /// Entries whose tuple was taken.
    pub insert_failed: Option<u64>,
}

/// How many of a Service's connections ended so.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Closed {
    /// The Service.
    pub service: String,
    /// How many.
    pub connections: u64,
}

/// What an agent was there for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// Since when.
    pub since: Option<Timestamp>,
    /// Times of which something may be missing.
    #[serde(default)]
    pub gaps: Vec<Value>,
}

/// Stale conntrack entries.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Stale {
    /// How many now.
    pub entries: u64,
    /// The most at a time so far.
    #[serde(default)]
    pub peak: u64,
    /// When the last one will be gone, if that can be predicted.
    pub expires: Option<Timestamp>,
    /// Some are kept alive.
    #[serde(default)]
    pub refreshed: bool,
}

/// How much of a rollout an agent was there for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// Since when.
    pub since: Option<Timestamp>,
    /// Not from its begin, or not without a gap.
    pub partial: bool,
}

/// `/api/v1/failures`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failures {
    /// Every decided failure.
    pub failures: Vec<Failure>,
}

/// An address and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

impl Address {
    /// As a socket address.
    pub fn socket(self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

/// A failed connection, as an agent saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The class.
    pub class: String,
    /// The client's end, before any NAT.
    pub client: Address,
    /// Where the client sent it.
    #[serde(default)]
    pub original: Option<Address>,
    /// Where it went.
    #[serde(default)]
    pub backend: Option<Address>,
    /// The initial sequence number of its SYN.
    #[serde(default)]
    pub isn: Option<u32>,
    /// Its first SYN.
    pub first_syn: Timestamp,
    /// When the outcome was known.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// When the verdict was reached.
    #[serde(default)]
    pub decided: Option<Timestamp>,
    /// The Service's or workload's namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The Service.
    #[serde(default)]
    pub service: Option<String>,
    /// The pod that it went to.
    #[serde(default)]
    pub pod: Option<String>,
    /// The workload of that pod.
    #[serde(default)]
    pub workload: Option<Workload>,
    /// The cause.
    #[serde(default)]
    pub cause: Option<String>,
    /// Which side of a rollout: `old` or `new`.
    #[serde(default)]
    pub side: Option<String>,
    /// Which phase of a rollout.
    #[serde(default)]
    pub phase: Option<String>,
    /// The rollout's id.
    #[serde(default)]
    pub rollout: Option<String>,
    /// The rollout's revision.
    #[serde(default)]
    pub revision: Option<String>,
    /// Whatever else the agent says.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// `/api/v1/rollouts`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rollouts {
    /// Every rollout that the agent knows.
    pub rollouts: Vec<Rollout>,
}

/// A rollout, as an agent saw it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rollout {
    /// Its id.
    pub id: String,
    /// The workload's namespace.
    pub namespace: String,
    /// The workload's kind.
    pub kind: String,
    /// The workload's name.
    pub name: String,
    /// The revision it leads to.
    pub to: Revision,
    /// The revision it came from.
    #[serde(default)]
    pub from: Option<Revision>,
    /// Its start.
    #[serde(default)]
    pub started: Option<Timestamp>,
    /// Its completion.
    #[serde(default)]
    pub completed: Option<Timestamp>,
    /// How much of it the agent was there for.
    #[serde(default)]
    pub covered: Covered,
    /// Its counts are lower bounds.
    #[serde(default)]
    pub lower_bound: bool,
    /// Stale conntrack entries that lead to its old pods.
    #[serde(default)]
    pub stale: Option<Stale>,
    /// Failures by class.
    #[serde(default)]
    pub failures: BTreeMap<String, u64>,
    /// What was measured on old endpoints.
    #[serde(default)]
    pub convergence: Vec<Convergence>,
}

/// One side of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// The revision's number.
    #[serde(default)]
    pub revision: Option<String>,
    /// The pod template's hash.
    #[serde(default)]
    pub hash: Option<String>,
}

/// How long an old endpoint got fresh connections from a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Convergence {
    /// The endpoint.
    pub endpoint: Address,
    /// From its pod's deletion to the last fresh SYN, in seconds; absent when not measured.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// Fresh SYNs after the deletion.
    #[serde(default)]
    pub fresh_syns_after: Option<u64>,
    /// How exactly the deletion's time is known, in seconds.
    #[serde(default)]
    pub precision_seconds: Option<f64>,
    /// The deletion as the API tells it, by the second.
    #[serde(default)]
    pub deleted: Option<Timestamp>,
    /// From that to when the agent was told that the endpoint leaves, in seconds.
    #[serde(default)]
    pub control_plane_lag_seconds: Option<f64>,
}
