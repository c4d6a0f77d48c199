//! What on-call runs: finds the agents, asks them all at once, joins what they know, and shows it.
//!
//! # Layout
//! - [`Source`]: where the answers come from: agents by URL, the cluster's agents, or recordings
//! - `cluster`: a kubeconfig, a context, and the agents' pods
//! - `fetch`: one agent asked, within a time and a size
//! - [`answers`]: what agents answer, read leniently and made harmless for a terminal
//! - `recording`: a recording as the answer of the agent that made it
//! - [`gather`]: all of them in parallel, and who did not answer
//! - [`join`]: one rollout out of what each node knows of it
//! - [`explained`]: why connections failed in one rollout, as text and as data
//! - [`query`]: what agents are asked to select
//! - [`watch`]: what is new since they were last asked
//! - [`doctor`]: whether everything is there that it takes
//! - [`workload`]: `KIND/NAME` as people write it
//! - [`show`]: tables, text, JSON and YAML

pub mod answers;
mod cluster;
pub mod doctor;
mod explained;
mod fetch;
mod gather;
pub mod join;
pub mod query;
mod recording;
pub mod show;
pub mod watch;
pub mod workload;

pub use cluster::{AGENT_LABELS, AGENT_PORT, Access, AccessError, ClusterOptions};
pub use explained::{Explained, case, explained};
pub use fetch::Agent;
pub use gather::{
    Answered, Asked, Found, Gathered, Source, SourceError, find, gather, gather_from,
};
