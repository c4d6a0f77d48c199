//! The words of the domain as types: what the kernel saw, what the API server said, what follows.
//!
//! Nothing here does I/O or asks for the time.

mod attempt;
mod conntrack;
mod facts;
mod node;
mod rollout;
mod template;
mod time;
mod verdict;

pub use attempt::{Answer, Attempt, AttemptKey, Drop, End, Sighting};
pub use conntrack::{
    ConntrackEntry, DST_NAT, EntryKey, EvictionResult, SEEN_REPLY, SYN_SENT, Transport,
};
pub use facts::{
    Endpoint, EndpointConditions, ObjectRef, PodFacts, ReplicaSetFacts, ServiceFacts, ServicePort,
    SliceFacts, SlicePort, WorkloadFacts, WorkloadStatus,
};
pub use node::NodeFacts;
pub use rollout::{
    Convergence, EventResult, EventState, MAX_CLIENTS, Revision, Rollout, RolloutId, WorkloadKey,
    last_happened,
};
pub use template::{
    ContainerFacts, DEFAULT_GRACE_SECONDS, PreStopFacts, ProbeFacts, StrategyFacts, TemplateFacts,
};
pub use time::{Clock, Mono, Wall};
pub use verdict::{Cause, Class, Failure, Phase, Side};
