//! The workload itself, and the controller revisions that say where it goes.

use std::sync::Arc;

use super::Followed;
use crate::{
    cluster::{
        object::{Facts, Object},
        revisions::RevisionFacts,
        stream::{Event, Sink, Stopped},
        trim::Workload,
    },
    engine::ClusterChange,
};

pub(super) struct WorkloadSink {
    pub(super) followed: Followed,
    /// The list under way has it.
    pub(super) listed: bool,
}

impl WorkloadSink {
    async fn exists<K>(&mut self, object: Object<Workload<K>>) -> Result<(), Stopped>
    where
        Workload<K>: Facts,
    {
        // One of the same name that was made anew is another workload.
        if object.identity.uid != self.followed.key.uid {
            return Ok(());
        }
        self.listed = true;
        let Some(workload) = object.facts else { return Ok(()) };
        if workload.selector.is_none() {
            tracing::warn!(kind = %self.followed.key.kind, name = %self.followed.key.name,
                "has no selector that can be used: its pods are not watched");
        }
        let selector = workload.selector.clone();
        self.followed.selector.send_if_modified(|known| {
            let new = known.is_none() && selector.is_some();
            if new {
                *known = selector;
            }
            new
        });
        let mut shared = self.followed.shared.lock().await;
        shared.workload = Some(Arc::new(workload.facts.clone()));
        self.followed.publish(&mut shared).await
    }

    async fn gone(&self) -> Result<(), Stopped> {
        match self.followed.shared.lock().await.workload.take() {
            Some(facts) => self.followed.changes.send(ClusterChange::WorkloadGone(facts)).await,
            None => Ok(()),
        }
    }
}

impl<K> Sink<Workload<K>> for WorkloadSink
where
    Workload<K>: Facts,
{
    async fn take(&mut self, event: Event<Workload<K>>) -> Result<(), Stopped> {
        match event {
            Event::ListBegins(_) => self.listed = false,
            Event::Listed(object) | Event::Changed(object) => self.exists(object).await?,
            Event::ListEnds if !self.listed => {
                tracing::info!(kind = %self.followed.key.kind, name = %self.followed.key.name,
                    "a workload to be followed is gone already");
                self.gone().await?;
            }
            Event::Gone(object) if object.identity.uid == self.followed.key.uid => {
                self.gone().await?;
            }
            Event::ListEnds | Event::Gone(_) | Event::State(_) => {}
        }
        Ok(())
    }
}

pub(super) struct RevisionSink {
    pub(super) followed: Followed,
}

impl Sink<RevisionFacts> for RevisionSink {
    async fn take(&mut self, event: Event<RevisionFacts>) -> Result<(), Stopped> {
        let mut shared = self.followed.shared.lock().await;
        match event {
            // What is listed anew replaces what was there; the newest is never deleted meanwhile.
            Event::Listed(object) => {
                if let Some(facts) = object.facts {
                    shared.revisions.insert(facts.name.clone(), facts);
                }
                return Ok(());
            }
            Event::Changed(object) => {
                let Some(facts) = object.facts else { return Ok(()) };
                shared.revisions.insert(facts.name.clone(), facts);
            }
            Event::ListEnds => {}
            Event::Gone(object) => {
                shared.revisions.remove(&object.identity.name);
                return Ok(());
            }
            Event::ListBegins(_) | Event::State(_) => return Ok(()),
        }
        self.followed.publish(&mut shared).await
    }
}
