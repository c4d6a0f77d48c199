//! The workload's pods, on every node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::{Followed, kept::Kept};
use crate::{
    cluster::{
        stats::WatchState,
        stream::{Event, Sink, Stopped},
        watch::resource_of,
    },
    engine::ClusterChange,
    model::PodFacts,
};

/// Pods, watched from a version of the past: what comes may be older than what is known.
pub(super) struct PodSink {
    pub(super) followed: Followed,
    pub(super) pods: Kept<PodFacts>,
    /// The workload's selector.
    pub(super) labels: Option<String>,
    /// The watch was open once, or had to begin with a list.
    pub(super) begun: bool,
    /// Up to which version its pods had been told before the list under way.
    pub(super) told_until: Option<Arc<str>>,
}

impl PodSink {
    async fn exists(&mut self, facts: Arc<PodFacts>) -> Result<(), Stopped> {
        self.pods.last.insert(facts.uid.clone(), facts.clone());
        self.followed.changes.send(ClusterChange::Pod(facts)).await
    }

    /// A watch from the past tells what changed since; the pods that did not change are listed.
    async fn list_once(&mut self) -> Result<(), Stopped> {
        let namespace = &self.followed.key.namespace;
        let labels = self.labels.as_deref();
        match self.followed.ask.list::<PodFacts>(&resource_of::<Pod>(), namespace, labels).await {
            Ok(pods) => {
                for facts in pods {
                    let known = self.pods.last.get(&facts.uid);
                    if known.is_none_or(|known| version(known) < version(&facts)) {
                        self.exists(facts).await?;
                    }
                }
            }
            Err(error) => tracing::warn!(name = %self.followed.key.name,
                "only those of its pods that change are known: {error}"),
        }
        Ok(())
    }
}

/// Versions can be compared, though the API long said that they cannot (KEP-5504).
fn version(pod: &PodFacts) -> u128 {
    pod.resource_version.parse().unwrap_or(0)
}

impl Sink<PodFacts> for PodSink {
    async fn take(&mut self, event: Event<PodFacts>) -> Result<(), Stopped> {
        let gone = match event {
            Event::ListBegins(until) => {
                if !self.begun && self.followed.since.is_some() {
                    tracing::info!(name = %self.followed.key.name, since = ?self.followed.since,
                        "its pods cannot be watched from the version of the slice that changed: \
                         one that was deleted meanwhile is known by its ReplicaSet only");
                }
                self.begun = true;
                self.pods.listed.clear();
                self.told_until = until;
                Vec::new()
            }
            Event::Listed(object) => {
                self.pods.listed.push(object.identity.uid.clone());
                match object.facts {
                    Some(facts) => return self.exists(facts).await,
                    None => Vec::new(),
                }
            }
            Event::Changed(object) => {
                let Some(facts) = object.facts else { return Ok(()) };
                let known = self.pods.last.get(&facts.uid).cloned();
                match known.filter(|known| version(known) > version(&facts)) {
                    // Its deletion as it was first asked for is worth telling, as the past it is,
                    // and that it had restarted less often.
                    Some(known) => {
                        if facts.deletion_timestamp.is_some() || facts.restarts < known.restarts {
                            self.followed.changes.send(ClusterChange::Pod(facts)).await?;
                            self.followed.changes.send(ClusterChange::Pod(known)).await?;
                        }
                        return Ok(());
                    }
                    None => return self.exists(facts).await,
                }
            }
            Event::ListEnds => {
                let until = self.told_until.as_ref();
                self.pods.lost().into_iter().map(|facts| facts.known_until(until)).collect()
            }
            Event::Gone(object) => {
                let known = self.pods.gone(&object.identity.uid);
                object.facts.or(known).into_iter().collect()
            }
            Event::State(WatchState::Synced) if !self.begun => {
                self.begun = true;
                self.list_once().await?;
                Vec::new()
            }
            Event::State(_) => Vec::new(),
        };
        for facts in gone {
            self.followed.changes.send(ClusterChange::PodGone(facts)).await?;
        }
        Ok(())
    }
}
