//! The engine: folds inputs into state and says what follows. Pure; time comes as data.
//!
//! `step` is the only way in. Whatever is fed to it can be recorded, and fed again later gives the
//! same outputs to the byte.
//!
//! # Layout
//! - `input`: everything that can happen
//! - `state`: what is remembered; `report`: what is told of it
//! - `lanes`: the life of each pod in a rollout
//! - `step`: one input, one step
//! - `cluster`: what the API server said
//! - `local`: which addresses are this node's pods
//! - `ask`: what the API server is asked, and whom it is asked to follow
//! - `announce`: the Kubernetes Event of a rollout that broke connections
//! - `dialled`: which Services this node's clients dial, and how often
//! - `doubtful`: ends of which the wire cannot tell whether anything was lost
//! - `verdicts`: failures held until they can be decided
//! - `clients`: whose connections failed
//! - `converge`: how long after its deletion a pod was still chosen
//! - `stale`: stale conntrack entries, when to scan for them, which to delete
//! - `coverage`: since when this agent is there, and the gaps
//! - `history`: what outlives the agent

mod announce;
mod ask;
mod clients;
mod cluster;
mod converge;
mod coverage;
mod dialled;
mod doubtful;
mod history;
mod input;
mod lanes;
mod local;
mod report;
mod stale;
mod state;
mod step;
mod verdicts;

pub use announce::EventCounts;
pub(crate) use announce::MAX_ASKED_EVENTS;
pub use coverage::{Coverage, Gap, GapReason, MAX_GAPS, Partly};
pub use doubtful::ClosedReport;
pub use history::{History, Past, Recalled};
pub use input::{
    AttemptCounts, ClusterChange, ConntrackScan, Evicted, FreshSyns, Input, Lost, Request,
    RolloutEvent, What,
};
pub use lanes::{LaneReport, LanesReport, MAX_LANES};
pub use report::{
    ConvergenceReport, CoverageReport, CoveredReport, FailureReport, GapReport, RevisionReport,
    RolloutReport, ServiceReport, StaleEndpointReport, StaleReport, TransportAddress, WorkloadName,
    WorkloadReport, seconds,
};
pub use stale::{StaleEndpoint, StaleSum};
pub use state::{Config, EvictMode, Eviction, MAX_FAILURES, Outputs, State, Watch};
pub use step::step;
