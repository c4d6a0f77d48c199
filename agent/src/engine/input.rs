//! Everything that can happen to the engine, as data: what a recording consists of.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::Recalled;
use crate::model::{
    Clock, ConntrackEntry, EntryKey, EventResult, EvictionResult, Mono, NodeFacts, ObjectRef,
    PodFacts, ReplicaSetFacts, RolloutId, ServiceFacts, Sighting, SliceFacts, Wall, WorkloadFacts,
    WorkloadKey,
};

/// One input with the time at which the agent received it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// Receipt, on the monotonic clock.
    pub at: Mono,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "input", content = "content")]
pub enum What {
    /// Time passed; also compares the two clocks.
    Tick(Clock),
    /// The probes saw something.
    Saw(Sighting),
    /// The kernel's count of fresh SYNs to an endpoint.
    Fresh(FreshSyns),
    /// The kernel's counts for one dialled address.
    Attempts(AttemptCounts),
    /// The node's own addresses: clients that share its namespace.
    NodeAddresses(Vec<IpAddr>),
    /// An earlier agent left this: the first input, if there is any.
    Recalled(Box<Recalled>),
    /// The probes were attached: what comes from here on is seen.
    Attached,
    /// Kernel events or map entries were lost: counts of that time are lower bounds.
    Lost(Lost),
    /// The node's conntrack table was scanned.
    Conntrack(ConntrackScan),
    /// What became of an eviction.
    Evicted(Evicted),
    /// The API server said something.
    Cluster(ClusterChange),
}

/// Something was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// How much.
    pub count: u64,
    /// Not before this.
    pub since: Mono,
}

/// Unanswered entries of the node's conntrack table whose packets go elsewhere than they were dialled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConntrackScan {
    /// When the scan began.
    pub began: Mono,
    /// These are all; else those that are new or changed since the scan before.
    pub whole: bool,
    /// The entries.
    pub entries: Vec<ConntrackEntry>,
    /// Entries that are not there any more, where the scan is not a whole one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<EntryKey>,
    /// Entries left out for want of room.
    #[serde(default)]
    pub left_out: u64,
}

/// What became of an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    /// Which entry.
    pub key: EntryKey,
    /// Its id.
    pub id: u32,
    /// What became of it.
    pub result: EvictionResult,
}

/// Fresh SYNs to one backend: NATed to it by a fresh decision, whatever the outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreshSyns {
    /// Backend.
    pub endpoint: SocketAddr,
    /// The last one; 0 if there was none.
    pub last: Mono,
    /// When the backend first answered a SYN with SYN+ACK here; `None` if it never did.
    pub first_answer: Option<Mono>,
    /// The map was full: that it never answered is not certain.
    #[serde(default)]
    pub answers_forgotten: bool,
    /// Counts by second of the monotonic clock, the last 16 seconds that had any.
    pub by_second: Vec<(u64, u32)>,
}

/// Cumulative counts of attempts to one original destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptCounts {
    /// What clients dialled.
    pub original: SocketAddr,
    /// Attempts (SYNs of a new ISN).
    pub attempts: u64,
    /// Of these, answered by SYN+ACK.
    pub answered: u64,
    /// Of these, answered by RST.
    pub refused: u64,
}

/// A change of the cluster's state as the watches deliver it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "change", content = "object")]
pub enum ClusterChange {
    /// A slice exists with this content.
    Slice(Arc<SliceFacts>),
    /// A slice is gone.
    SliceGone {
        /// Namespace.
        namespace: Arc<str>,
        /// Name.
        name: Arc<str>,
    },
    /// A list of all slices was completed: those it lacks are gone.
    SlicesListed(Vec<(Arc<str>, Arc<str>)>),
    /// A Service exists with this content.
    Service(Arc<ServiceFacts>),
    /// A Service is gone.
    ServiceGone {
        /// Namespace.
        namespace: Arc<str>,
        /// Name.
        name: Arc<str>,
    },
    /// A list of all Services was completed: those it lacks are gone.
    ServicesListed(Vec<(Arc<str>, Arc<str>)>),
    /// A pod of this node, or of a followed workload, exists with this content.
    Pod(Arc<PodFacts>),
    /// A pod is gone; its last content.
    PodGone(Arc<PodFacts>),
    /// A list of this node's pods was completed: those of this node it lacks (by UID) are gone.
    NodePodsListed(Vec<Arc<str>>),
    /// A `ReplicaSet` exists with this content.
    ReplicaSet(Arc<ReplicaSetFacts>),
    /// A `ReplicaSet` is gone.
    ReplicaSetGone(Arc<ReplicaSetFacts>),
    /// A workload exists with this content.
    Workload(Arc<WorkloadFacts>),
    /// A workload is gone.
    WorkloadGone(Arc<WorkloadFacts>),
    /// The answer to [`Request::Resolve`]: who owns the pod.
    Owner {
        /// Namespace.
        namespace: Arc<str>,
        /// Pod name.
        pod: Arc<str>,
        /// Pod UID as asked for.
        uid: Arc<str>,
        /// Its controller owner; `None` if it cannot be found, or none can be told apart.
        owner: Option<ObjectRef>,
        /// How it was found, or why not: for the evidence.
        how: String,
    },
    /// The answer to [`Request::Node`].
    Node {
        /// Its name as asked for.
        name: Arc<str>,
        /// The node; `None` if there is none of that name.
        facts: Option<Arc<NodeFacts>>,
    },
    /// The API server's version, as `/version` says it, e.g. `v1.33.1`.
    Version(Arc<str>),
    /// The answer to [`Request::Event`].
    EventWritten {
        /// Of which rollout.
        rollout: RolloutId,
        /// What became of it.
        result: EventResult,
    },
    /// Versions have begun anew: the API server was restored, and is behind what it said before.
    /// Everything is listed anew after this, and what it says is how things are.
    VersionsRestarted,
    /// Whether every watch has caught up; while not, verdicts wait.
    Synced(bool),
}

/// What the engine asks the API server for; answers come back as [`ClusterChange`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "request")]
pub enum Request {
    /// Who owns this pod? Through the pod while it exists, else through the `ReplicaSet` (or
    /// `StatefulSet`, `DaemonSet`) that its name was made from. The `ReplicaSet` and the workload
    /// are delivered too.
    Resolve {
        /// Namespace.
        namespace: Arc<str>,
        /// Pod name.
        pod: Arc<str>,
        /// Pod UID.
        uid: Arc<str>,
    },
    /// Is this node ready? Connections to its pods are not answered.
    Node {
        /// Name.
        name: Arc<str>,
    },
    /// Watch this workload, its `ReplicaSet`s and its pods until told otherwise.
    Follow {
        /// The workload.
        workload: WorkloadKey,
        /// API version of its kind, e.g. `apps/v1`.
        api_version: Arc<str>,
        /// Version from which its pods are watched, so that a deletion that came after it is seen
        /// though the pod is already gone.
        since: Arc<str>,
    },
    /// Follow it no longer.
    Unfollow {
        /// The workload.
        workload: WorkloadKey,
    },
    /// Write this Event: answered by [`ClusterChange::EventWritten`].
    Event(Box<RolloutEvent>),
}

/// A Kubernetes Event on a workload, of type Warning: one of its rollouts broke connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RolloutEvent {
    /// The rollout.
    pub rollout: RolloutId,
    /// The Event's own name; every node would give it the same.
    pub name: Arc<str>,
    /// The workload.
    pub workload: WorkloadKey,
    /// API version of its kind, e.g. `apps/v1`.
    pub api_version: Arc<str>,
    /// What happened, at most 1,024 bytes.
    pub note: String,
    /// When it was said.
    pub at: Wall,
}
