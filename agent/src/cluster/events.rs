//! The Kubernetes Event of a rollout that broke connections, as `kubectl describe` shows it.

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use tokio::sync::mpsc;

use super::{ask::Ask, stream::Stopped, watch::Changes};
use crate::{
    engine::{ClusterChange, RolloutEvent},
    model::EventResult,
};

/// Who says it.
const REPORTER: &str = "rollrace";
/// What happened, in one word, by which Events are filtered.
const REASON: &str = "RolloutBrokeConnections";

/// Writes one after the other until the queue is closed, or nobody takes the answers.
pub(super) async fn run(
    ask: Ask,
    changes: Changes,
    node: String,
    mut queue: mpsc::Receiver<Box<RolloutEvent>>,
) -> Stopped {
    while let Some(wanted) = queue.recv().await {
        let namespace = &wanted.workload.namespace;
        let result = match ask.create(namespace, &event(&wanted, &node)).await {
            Ok(true) => EventResult::Created,
            Ok(false) => EventResult::Exists,
            // Said where all refusals are.
            Err(error) if matches!(error.code, 401 | 403) => EventResult::Denied,
            Err(error) => {
                tracing::warn!(event = %wanted.name, %namespace, "an Event is not written: {error}");
                EventResult::Failed
            }
        };
        let written = ClusterChange::EventWritten { rollout: wanted.rollout, result };
        if changes.send(written).await.is_err() {
            break;
        }
    }
    Stopped
}

/// `core/v1` and not `events.k8s.io`: they are one object in the API server, and this is the form that
/// everything reads.
fn event(wanted: &RolloutEvent, node: &str) -> Event {
    let RolloutEvent { workload, api_version, name, note, at, .. } = wanted;
    let at = Some(Time(*at));
    Event {
        metadata: ObjectMeta {
            name: Some(name.to_string()),
            namespace: Some(workload.namespace.to_string()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(api_version.to_string()),
            kind: Some(workload.kind.to_string()),
            namespace: Some(workload.namespace.to_string()),
            name: Some(workload.name.to_string()),
            uid: Some(workload.uid.to_string()),
            ..ObjectReference::default()
        },
        type_: Some("Warning".to_owned()),
        reason: Some(REASON.to_owned()),
        message: Some(note.clone()),
        source: Some(EventSource {
            component: Some(REPORTER.to_owned()),
            host: Some(node.to_owned()),
        }),
        reporting_component: Some(REPORTER.to_owned()),
        reporting_instance: Some(node.to_owned()),
        first_timestamp: at.clone(),
        last_timestamp: at,
        count: Some(1),
        ..Event::default()
    }
}
