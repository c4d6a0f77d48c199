//! The API server's side: watches and look-ups, as [`ClusterChange`]s.
//!
//! # Layout
//! - [`connect`]: a client from a kubeconfig or the pod's service account
//! - `object`, `trim/`: API objects → the facts of [`crate::model`], while they are decoded
//! - `stream`: one list+watch that never gives up
//! - `watch`: all slices, all Services, this node's pods
//! - `stats`: what it can tell about itself

mod connect;
mod object;
mod stats;
mod stream;
mod trim;
mod watch;

use std::sync::Arc;

use anyhow::{Context, anyhow};
use kube::Client;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub use connect::{ConnectError, connect};
pub use object::{Complaint, Facts, Identity, Object};
pub use stats::{ClusterSnapshot, ClusterStats, Restart, WatchName, WatchSnapshot, WatchState};
pub use trim::{Unknown, Workload};

use crate::engine::{ClusterChange, Request};
use stream::ListStyle;
use watch::{Base, Changes, Latch};

/// Watches the cluster and serves the engine's requests until `shutdown`.
///
/// Changes carry no time: whoever receives them stamps the receipt. A full `changes` channel slows
/// the watches down, it loses nothing. An API server that cannot be reached is waited for.
///
/// # Errors
/// A task that ended by itself, with its name and reason: none is expected to.
pub async fn run(
    client: Client,
    node_name: String,
    changes: mpsc::Sender<ClusterChange>,
    mut requests: mpsc::Receiver<Request>,
    stats: Arc<ClusterStats>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let base = Base {
        client,
        changes: Changes(changes),
        latch: Latch::new(stats.clone()),
        stats,
        style: ListStyle::default(),
    };
    let mut tasks = JoinSet::new();
    let slices = base.clone();
    tasks.spawn(async move { ("the watch of endpointslices", slices.slices().await) });
    let services = base.clone();
    tasks.spawn(async move { ("the watch of services", services.services().await) });
    let pods = base.clone();
    tasks.spawn(async move { ("the watch of this node's pods", pods.pods(&node_name).await) });
    drop(base);

    let ended = tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        ended = async {
            loop {
                tokio::select! {
                    Some(ended) = tasks.join_next() => return ended,
                    Some(request) = requests.recv() => tracing::debug!(?request, "not served yet"),
                }
            }
        } => ended,
    };
    let (name, _stopped) = ended.context("a task of the cluster watch panicked")?;
    if shutdown.is_cancelled() {
        return Ok(());
    }
    Err(anyhow!("{name} ended: nobody takes its changes any more"))
}
