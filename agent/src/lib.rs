//! rollrace attributes failed connections to the Kubernetes rollout that broke them.
//!
//! # Layout
//! - [`model`]: the words of the domain as types
//! - [`engine`]: folds everything seen into verdicts; pure, with time as data

//! - [`endpoints`]: slices and Services → lifetimes of (address, port)
//! - [`attempts`]: an attempt's life and the taxonomy of failures
//! - [`owners`], [`rollouts`]: which revision a pod is of, which rollouts are under way
//! - [`nodes`], [`failing`]: which nodes are lost, which pods keep failing without leaving
//! - [`feature`]: what an agent does without where the kernel lacks it
//! - [`advise`]: from a rollout and its pod templates to what should be changed
//! - [`stale`]: conntrack entries that lead to endpoints which are no more
//! - [`attribute`]: from a failure to its cause, with the evidence

pub mod advise;
#[cfg(feature = "probe")]
pub mod agent;
pub mod attempts;
pub mod attribute;
pub mod cli;
mod closed;
pub mod cluster;
#[cfg(feature = "probe")]
pub mod conntrack;
pub mod endpoints;
pub mod engine;
pub mod failing;
pub mod feature;
#[cfg(feature = "probe")]
pub mod history;
pub mod http;
#[cfg(feature = "probe")]
pub mod metrics;
pub mod model;
pub mod nodes;
pub mod oncall;
pub mod owners;
#[cfg(feature = "probe")]
pub mod probe;
pub mod record;
pub mod redact;
pub mod rollouts;
#[cfg(feature = "probe")]
mod series;
pub mod stale;
