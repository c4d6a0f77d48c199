//! A rollout: one workload's way from one pod template to the next.

use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Class, Mono, Phase, Side, TemplateFacts, Wall};
use crate::closed::names;

/// A workload's identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkloadKey {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
}

/// Identity of a rollout: workload UID, target template hash, and the how-manieth time that the
/// template became current while this agent watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RolloutId {
    /// UID of the workload.
    pub workload_uid: Arc<str>,
    /// Template hash or controller revision it goes to.
    pub target: Arc<str>,
    /// 1 for the first time, 2 when it was rolled back to, and so on.
    pub ordinal: u32,
}

impl fmt::Display for RolloutId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.workload_uid, self.target, self.ordinal)
    }
}

impl From<RolloutId> for String {
    fn from(id: RolloutId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for RolloutId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut parts = text.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next().and_then(|n| n.parse().ok())) {
            (Some(uid), Some(target), Some(ordinal)) => {
                Ok(Self { workload_uid: uid.into(), target: target.into(), ordinal })
            }
            _ => Err(format!("{text:?} is not a rollout id (workload-uid/target-hash/ordinal)")),
        }
    }
}

/// One revision of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// Its number when first observed (a rollback renumbers); `None` if it has none.
    pub revision: Option<u64>,
    /// Template hash or controller revision.
    pub hash: Arc<str>,
    /// Images of the template's containers.
    pub images: Vec<Arc<str>>,
    /// What the template says about leaving and arriving, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Arc<TemplateFacts>>,
}

names! {
    /// What became of the writing of a Kubernetes Event.
    EventResult {
        /// Written by this node.
        Created = "created",
        /// Another node had written it: that is as good.
        Exists = "exists",
        /// The API server forbids it.
        Denied = "denied",
        /// It was not taken, or no answer came.
        Failed = "failed",
    }
}

/// How far the Kubernetes Event of a rollout is, that says that connections failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventState {
    /// There is nothing to tell, or nobody wants to know.
    #[default]
    None,
    /// It is to be written then.
    Due(Mono),
    /// The API server is asked to write it.
    Asked,
    /// An answer came, whatever it was.
    Done,
}

impl EventState {
    /// Whether it is still to be written.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Due(_) | Self::Asked)
    }
}

/// The most client workloads told apart in one rollout.
pub const MAX_CLIENTS: usize = 32;

/// A rollout and what it did to this node's connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// Identity.
    pub id: RolloutId,
    /// Whose.
    pub workload: WorkloadKey,
    /// Where it came from; `None` for a workload's first one, or if nothing older was seen.
    pub from: Option<Revision>,
    /// Where it goes.
    pub to: Revision,
    /// When it was first observed.
    pub started: Mono,
    /// It cannot have begun before this; `None` if it was under way when it was first observed, and
    /// nothing tells since when.
    pub not_before: Option<Mono>,
    /// When `kubectl rollout status` would have returned; `None` while it runs.
    pub completed: Option<Mono>,
    /// A later rollout of the workload began before this one was complete.
    pub superseded: bool,
    /// When the last pod of an older revision was gone.
    pub last_old_pod_gone: Option<Mono>,
    /// Failures on this node, by class and phase.
    pub failures_by_phase: BTreeMap<Class, BTreeMap<Phase, u64>>,
    /// Failures on this node, by the side that failed.
    #[serde(default)]
    pub failures_by_side: BTreeMap<Side, u64>,
    /// Failures on this node, by the workload whose pod the client is: at most [`MAX_CLIENTS`] of
    /// them, and the rest under `_other`.
    #[serde(default)]
    pub failures_by_client: BTreeMap<Arc<str>, u64>,
    /// Attempts on this node to the workload's Services, from the start until two minutes after the
    /// last old pod was gone.
    pub attempts: u64,
    /// First and last failure's first SYN.
    pub first_failure: Option<Mono>,
    /// See `first_failure`.
    pub last_failure: Option<Mono>,
    /// Pods leaving by it, and how long this node's proxy still chose them.
    pub convergence: Vec<Convergence>,
    /// How far its Kubernetes Event is.
    #[serde(default)]
    pub event: EventState,
}

impl Rollout {
    /// When something last happened of it.
    pub fn last_happened(&self) -> Mono {
        last_happened(self.started, [self.completed, self.last_failure, self.last_old_pod_gone])
    }

    /// Its revision as people name it: the number, or the hash where there is none.
    pub fn revision(&self) -> String {
        self.to.revision.map_or_else(|| self.to.hash.to_string(), |number| number.to_string())
    }

    /// Failures on this node, by class.
    pub fn failures(&self) -> BTreeMap<Class, u64> {
        self.failures_by_phase
            .iter()
            .map(|(class, phases)| (*class, phases.values().sum()))
            .collect()
    }

    /// Failures begun after completion.
    pub fn failures_after(&self) -> u64 {
        self.failures_by_phase.values().filter_map(|phases| phases.get(&Phase::After)).sum()
    }
}

/// The last of what may have happened after a start.
pub fn last_happened<T: Copy + Ord>(started: T, later: [Option<T>; 3]) -> T {
    later.into_iter().flatten().fold(started, T::max)
}

/// How long after a pod's deletion this node still sent fresh connections to it.
///
/// A lower bound: with little traffic the last fresh SYN comes early, so it goes with the count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Convergence {
    /// Backend.
    pub endpoint: SocketAddr,
    /// Pod name.
    pub pod: Arc<str>,
    /// Deletion (`deletionTimestamp` − grace): the true time is up to `precision` later.
    pub deleted: Wall,
    /// How much later than `deleted` the deletion may have been: 1 s, or less where the
    /// termination was seen earlier than that.
    pub precision_nanos: u64,
    /// Last fresh SYN NATed to it, answered or not. `None`: not one was seen after the deletion.
    pub last_fresh_syn: Option<Mono>,
    /// From the deletion to the last fresh SYN.
    pub nanos: Option<u64>,
    /// Fresh SYNs seen after the deletion.
    pub fresh_syns_after: u64,
    /// When this node first saw a SYN to it answered by a RST after the deletion: its listener was
    /// closed by then.
    #[serde(default)]
    pub first_refused: Option<Mono>,
    /// Control-plane lag: from the deletion to when the watch told this node that the endpoint leaves;
    /// up to `precision_nanos` less. `None`: it had left for another reason before the deletion, or the
    /// agent was not there.
    #[serde(default)]
    pub lag_nanos: Option<u64>,
}
