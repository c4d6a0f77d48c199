//! Whether a node is ready: asked when connections to its pods are not answered.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::Node;
use tokio::sync::mpsc;

use super::{
    ask::Ask,
    stream::Stopped,
    watch::{Changes, resource_of},
};
use crate::{engine::ClusterChange, model::NodeFacts};

/// Nodes that may wait to be asked about; the engine asks again for those that had no room.
const QUEUE: usize = 256;

/// The questions that wait: while the API server is away the engine asks again and again.
#[derive(Clone)]
pub(super) struct Questions {
    queue: mpsc::Sender<Arc<str>>,
    waiting: Arc<Mutex<BTreeSet<Arc<str>>>>,
}

impl Questions {
    /// None yet, and where they come out.
    pub(super) fn new() -> (Self, mpsc::Receiver<Arc<str>>) {
        let (queue, receiver) = mpsc::channel(QUEUE);
        (Self { queue, waiting: Arc::default() }, receiver)
    }

    /// Puts a question into the queue, once. Never waits.
    pub(super) fn put(&self, name: Arc<str>) {
        if !self.waiting().insert(name.clone()) {
            return;
        }
        if let Err(full) = self.queue.try_send(name) {
            let name = full.into_inner();
            tracing::debug!(node = %name, "not looked up now: {QUEUE} nodes are waiting");
            self.waiting().remove(&name);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Works the queue off until it is closed, or nobody takes the answers.
pub(super) async fn run(
    ask: Ask,
    changes: Changes,
    questions: Questions,
    mut queue: mpsc::Receiver<Arc<str>>,
) -> Stopped {
    let resource = resource_of::<Node>();
    while let Some(name) = queue.recv().await {
        let answer = ask.get_cluster_wide::<NodeFacts>(&resource, &name).await;
        questions.waiting().remove(&name);
        let facts = match answer {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_waits_is_not_put_again_and_too_many_are_left_out() {
        let (questions, mut queue) = Questions::new();
        for number in 0..QUEUE + 10 {
            for _ in 0..2 {
                questions.put(format!("n{number}").into());
            }
        }
        let asked: Vec<_> = std::iter::from_fn(|| queue.try_recv().ok()).collect();
        assert_eq!(asked.len(), QUEUE);
        assert_eq!(asked.iter().collect::<BTreeSet<_>>().len(), QUEUE);
        assert_eq!(questions.waiting().len(), QUEUE);
    }
}
