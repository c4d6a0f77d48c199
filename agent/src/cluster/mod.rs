//! The API server's side: watches and look-ups, as [`ClusterChange`]s.
//!
//! # Layout
//! - [`connect`]: a client from a kubeconfig or the pod's service account
//! - `transport`: its connections, with a pulse: a server that falls silent is noticed
//! - `object`, `trim/`: API objects → the facts of [`crate::model`], while they are decoded
//! - `stream`: one list+watch that never gives up
//! - `watch`: all slices, all Services, this node's pods
//! - `follow`: workloads with a rollout, their `ReplicaSet`s and pods, until told otherwise
//! - `resolve`, `names`: who owns a pod that may be gone
//! - `nodes`: whether a node is ready
//! - `events`: the Kubernetes Event of a rollout that broke connections
//! - `ask`, `limit`: single requests, rate-limited and tried again
//! - `revisions`: which revision a `StatefulSet` or `DaemonSet` goes to
//! - `timeline`: whether the server went back in time
//! - `stats`, `denied`: what it can tell about itself

mod ask;
mod connect;
mod denied;
mod events;
mod follow;
mod limit;
mod names;
mod nodes;
mod object;
mod resolve;
mod revisions;
mod stats;
mod stream;
mod timeline;
mod transport;
mod trim;
mod versions;
mod watch;

use std::sync::Arc;

use anyhow::{Context, anyhow};
use kube::Client;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub(crate) use connect::chain;
pub use connect::{ConnectError, connect};
pub use denied::Denied;
pub use object::{Complaint, Facts, Identity, Object};
pub use stats::{ClusterSnapshot, ClusterStats, Restart, WatchName, WatchSnapshot, WatchState};
pub use trim::{Unknown, Workload};

use crate::engine::{ClusterChange, MAX_ASKED_EVENTS, Request, RolloutEvent};
use ask::Ask;
use follow::Followers;
use resolve::{QUEUE, Question, Resolver};
use stream::ListStyle;
use timeline::Timeline;
use watch::{Base, Changes, Latch};

/// Watches the cluster and serves the engine's requests until `shutdown`.
///
/// Changes carry no time: whoever receives them stamps the receipt. A full `changes` channel slows
/// the watches down, it loses nothing. Requests are taken at once, whatever the state of the API
/// server. The same object may come by several ways (a pod of this node whose workload is followed,
/// a look-up beside a watch), and what a look-up brings may be older than what a watch brought:
/// `resource_version` tells. An API server that cannot be reached is waited for.
///
/// # Errors
/// A task that ended by itself, with its name and reason: none is expected to.
pub async fn run(
    client: Client,
    node_name: String,
    changes: mpsc::Sender<ClusterChange>,
    requests: mpsc::Receiver<Request>,
    stats: Arc<ClusterStats>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let changes = Changes(changes);
    let base = Base {
        client: client.clone(),
        timeline: Timeline::new(changes.clone()),
        changes,
        latch: Latch::new(stats.clone()),
        stats,
        style: ListStyle::default(),
    };
    let ask = Ask::new(client, base.stats.clone());
    let followers = Followers::new(&base, ask.clone());
    let (nodes, node_queue) = nodes::Questions::new();
    let node_look_up = nodes::run(ask.clone(), base.changes.clone(), nodes.clone(), node_queue);
    let (events, event_queue) = mpsc::channel(MAX_ASKED_EVENTS);
    let writer = events::run(ask.clone(), base.changes.clone(), node_name.clone(), event_queue);
    let resolver = Resolver::new(ask.clone(), base.changes.clone(), base.stats.clone());
    let (questions, queue) = mpsc::channel(QUEUE);

    let mut tasks = JoinSet::new();
    let told = base.changes.clone();
    tasks.spawn(async move { ("the look at the server's version", version(ask, told).await) });
    let slices = base.clone();
    tasks.spawn(async move { ("the watch of endpointslices", slices.slices().await) });
    let services = base.clone();
    tasks.spawn(async move { ("the watch of services", services.services().await) });
    tasks.spawn(async move { ("the watch of this node's pods", base.pods(&node_name).await) });
    let worker = resolver.clone();
    tasks.spawn(async move { ("the owner look-up", worker.run(queue).await) });
    tasks.spawn(async move { ("the node look-up", node_look_up.await) });
    tasks.spawn(async move { ("the writer of Events", writer.await) });
    let queues = Queues { questions, nodes, events };
    tasks.spawn(async move {
        ("the dispatch of requests", dispatch(requests, followers, resolver, queues).await)
    });

    let ended = tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        ended = tasks.join_next() => ended,
    };
    let (name, stream::Stopped) = ended
        .context("no task of the cluster watch is running")?
        .context("a task of the cluster watch failed")?;
    if shutdown.is_cancelled() {
        return Ok(());
    }
    Err(anyhow!("{name} ended: nobody takes its changes any more"))
}

/// Asks once which Kubernetes this is: what can be advised depends on it. Without an answer nothing
/// but that is missing.
async fn version(ask: Ask, changes: Changes) -> stream::Stopped {
    match ask.version().await {
        Ok(version) => {
            if let Err(stopped) = changes.send(ClusterChange::Version(version)).await {
                return stopped;
            }
        }
        Err(error) => tracing::info!("{error}; it stays unknown"),
    }
    std::future::pending().await
}

/// Where look-ups wait.
struct Queues {
    questions: mpsc::Sender<Question>,
    nodes: nodes::Questions,
    events: mpsc::Sender<Box<RolloutEvent>>,
}

/// Hands each request on without ever waiting for the API server or for a receiver: the engine that
/// asks is the one that drains the changes.
async fn dispatch(
    mut requests: mpsc::Receiver<Request>,
    mut followers: Followers,
    resolver: Arc<Resolver>,
    Queues { questions, nodes, events }: Queues,
) -> stream::Stopped {
    loop {
        let request = tokio::select! {
            request = requests.recv() => request,
            () = followers.reap() => continue,
        };
        match request {
            Some(Request::Resolve { namespace, pod, uid }) => {
                resolver.put(Question { namespace, pod, uid }, &questions);
            }
            Some(Request::Node { name }) => nodes.put(name),
            Some(Request::Event(event)) => {
                // The queue holds as many as the engine asks for at a time.
                if events.try_send(event).is_err() {
                    tracing::warn!("more Events were to be written than the engine asks for");
                }
            }
            Some(Request::Follow { workload, api_version, since }) => {
                followers.follow(workload, api_version, &since);
            }
            Some(Request::Unfollow { workload }) => followers.unfollow(&workload),
            // Nobody asks any more; what is followed stays followed until the shutdown.
            None => std::future::pending().await,
        }
    }
}
