//! rollrace attributes failed connections to the Kubernetes rollout that broke them.
//!
//! # Layout
//! - [`model`]: the words of the domain as types
//! - [`engine`]: folds everything seen into verdicts; pure, with time as data

pub mod cluster;
pub mod engine;
pub mod model;
