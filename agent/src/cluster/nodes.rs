//! Whether a node is ready: asked when connections to its pods are not answered.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use tokio::sync::mpsc;

use super::{
    ask::Ask,
    stream::Stopped,
    watch::{Changes, resource_of},
};
use crate::{engine::ClusterChange, model::NodeFacts};

/// Nodes that may wait to be asked about; the engine asks again for those that had no room.
pub(super) const QUEUE: usize = 256;

/// Puts a question into the queue. Never waits.
pub(super) fn put(name: Arc<str>, queue: &mpsc::Sender<Arc<str>>) {
    if let Err(full) = queue.try_send(name) {
        tracing::debug!(node = %full.into_inner(), "not looked up now: {QUEUE} nodes are waiting");
    }
}

/// Works the queue off until it is closed, or nobody takes the answers.
pub(super) async fn run(
    ask: Ask,
    changes: Changes,
    mut queue: mpsc::Receiver<Arc<str>>,
) -> Stopped {
    let resource = resource_of::<Node>();
    while let Some(name) = queue.recv().await {
        let facts = match ask.get_cluster_wide::<NodeFacts>(&resource, &name).await {
            // A node that cannot be read says nothing, but it exists.
            Ok(Some(object)) => match object.facts {
                Some(facts) => Some(facts),
                None => continue,
            },
            Ok(None) => None,
            Err(error) => {
                tracing::info!(node = %name, "a lost node will not be told as such: {error}");
                continue;
            }
        };
        if changes.send(ClusterChange::Node { name, facts }).await.is_err() {
            break;
        }
    }
    Stopped
}
