//! The lab's controllers: what Kubernetes' controller manager and scheduler do, as clients of the
//! API server.
//!
//! Each reconciles one object at a time from fresh reads, never from a cache, so none needs the
//! bookkeeping ("expectations") by which the real ones bridge their caches' lag. The order of
//! writes, the statuses and the annotations follow the real controllers, whose recorded streams the
//! tests compare them with.
//!
//! # Layout
//! - [`runner`]: the loop they share, on kube-rs's `Controller`
//! - `deployment`, `replicaset`, `statefulset`, `daemonset`: workloads
//! - `revision_history`: the controller revisions of the last two
//! - `endpointslice`: Services to slices
//! - `scheduler`: pods to nodes
//! - `pods`, `hash`: what several of them need

mod daemonset;
mod deployment;
mod endpointslice;
mod hash;
mod pods;
mod replicaset;
mod revision_history;
mod runner;
mod scheduler;
mod statefulset;

#[cfg(test)]
mod tests;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use pods::is_ready as is_pod_ready;

/// Starts every controller against the API server (`http://ADDRESS:PORT`), each under a user of its
/// own. Each task ends when the token is cancelled; one that ends before has failed.
///
/// Must be called inside a tokio runtime.
pub fn start(server: &str, shutdown: CancellationToken) -> JoinSet<anyhow::Result<()>> {
    let mut tasks = JoinSet::new();
    let server = server.to_owned();
    tasks.spawn(deployment::run(server.clone(), shutdown.clone()));
    tasks.spawn(replicaset::run(server.clone(), shutdown.clone()));
    tasks.spawn(statefulset::run(server.clone(), shutdown.clone()));
    tasks.spawn(daemonset::run(server.clone(), shutdown.clone()));
    tasks.spawn(endpointslice::run(server.clone(), shutdown.clone()));
    tasks.spawn(scheduler::run(server, shutdown));
    tasks
}
