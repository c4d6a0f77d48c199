//! What became of an attempt, and who is to blame.

use std::{net::SocketAddr, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Mono, RolloutId, WorkloadKey};
use crate::closed::names;

names! {
    /// How a connection failed: the closed set of classes.
    Class {
        /// The SYN was answered by a RST.
        Refused = "refused",
        /// The SYN was not answered.
        Timeout = "timeout",
        /// The SYN was dropped for want of a route or neighbour, or answered by ICMP unreachable.
        Unreachable = "unreachable",
        /// The SYN followed the conntrack entry of an earlier, unanswered one to an endpoint that had
        /// left, although the Service's rules no longer lead there.
        StaleNat = "stale_nat",
        /// The Service had no usable endpoint and the proxy's rule rejected the SYN.
        Rejected = "rejected",
        /// The endpoint sent a RST inside an established connection.
        Reset = "reset",
        /// The endpoint ended an established connection without a byte of an answer to the client's
        /// last message.
        Cut = "cut",
    }
}

names! {
    /// Why the endpoint left, or did not answer.
    Cause {
        /// A rollout.
        Rollout = "rollout",
        /// A pod of the current revision was removed and the replica count fell.
        ScaleDown = "scale_down",
        /// A pod was deleted and no count fell.
        Deleted = "deleted",
        /// The pod has a true `DisruptionTarget` condition.
        Eviction = "eviction",
        /// Its node is gone or not ready.
        NodeLoss = "node_loss",
        /// A container of the pod restarted.
        Restart = "restart",
        /// It is ready and does not leave, and has failed for minutes while its siblings answer.
        BadBackend = "bad_backend",
        /// Evidence is missing, or two causes fit alike.
        Unknown = "unknown",
    }
}

names! {
    /// Which side of the rollout failed.
    Side {
        /// A pod of a revision that is not current, removed by its controller.
        Old = "old",
        /// A pod of the current revision that had not answered anybody yet.
        New = "new",
    }
}

names! {
    /// Where in the rollout the failure began: with the first SYN, or with the end of a connection that
    /// had been answered.
    Phase {
        /// It began before completion.
        During = "during",
        /// It began after completion.
        After = "after",
        /// The cause is no rollout.
        None = "none",
    }
}

/// One failed connection with its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// How it failed.
    pub class: Class,
    /// Client's address and port.
    pub client: SocketAddr,
    /// Whose it is: `NAMESPACE/NAME` of a workload of this node, `node NAME`, or `outside`.
    #[serde(default)]
    pub client_workload: Arc<str>,
    /// What it dialled.
    pub original: SocketAddr,
    /// Where its last SYN went.
    pub backend: Option<SocketAddr>,
    /// Initial sequence number.
    pub isn: u32,
    /// Begin of the attempt: `connect()` where it was seen, else the first SYN. Of a connection that was
    /// answered: its answer; if it is older than the agent, the first message that was seen.
    pub first_syn: Mono,
    /// SYNs seen.
    pub syns: u32,
    /// When its outcome was known.
    pub ended: Mono,
    /// When the verdict was reached.
    pub decided: Mono,
    /// Namespace of the Service or pod; empty if unknown.
    pub namespace: Arc<str>,
    /// Service dialled; empty if unknown.
    pub service: Arc<str>,
    /// Pod behind the backend; empty if unknown.
    pub pod: Arc<str>,
    /// Its workload, if known.
    pub workload: Option<WorkloadKey>,
    /// Why.
    pub cause: Cause,
    /// Side of the rollout.
    pub side: Option<Side>,
    /// Phase of the rollout.
    pub phase: Phase,
    /// The rollout, if that is the cause.
    pub rollout: Option<RolloutId>,
    /// The chain of evidence, in words.
    pub evidence: Vec<String>,
}
