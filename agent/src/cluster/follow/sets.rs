//! The workload's `ReplicaSet`s.

use super::{Followed, kept::Kept};
use crate::{
    cluster::{
        object::Object,
        stream::{Event, Sink, Stopped},
    },
    engine::ClusterChange,
    model::ReplicaSetFacts,
};

pub(super) struct SetSink {
    pub(super) followed: Followed,
    pub(super) sets: Kept<ReplicaSetFacts>,
}

impl SetSink {
    fn own(&self, set: &ReplicaSetFacts) -> bool {
        set.owner.as_ref().is_some_and(|owner| owner.uid == self.followed.key.uid)
    }

    async fn exists(&mut self, object: Object<ReplicaSetFacts>) -> Result<(), Stopped> {
        let Some(facts) = object.facts.filter(|set| self.own(set)) else { return Ok(()) };
        self.sets.last.insert(facts.uid.clone(), facts.clone());
        self.followed.changes.send(ClusterChange::ReplicaSet(facts)).await
    }
}

impl Sink<ReplicaSetFacts> for SetSink {
    async fn take(&mut self, event: Event<ReplicaSetFacts>) -> Result<(), Stopped> {
        let gone = match event {
            Event::ListBegins(_) => {
                self.sets.listed.clear();
                Vec::new()
            }
            Event::Listed(object) => {
                self.sets.listed.push(object.identity.uid.clone());
                return self.exists(object).await;
            }
            Event::Changed(object) => return self.exists(object).await,
            Event::ListEnds => self.sets.lost(),
            Event::Gone(object) => {
                let known = self.sets.gone(&object.identity.uid);
                object.facts.filter(|set| self.own(set)).or(known).into_iter().collect()
            }
            Event::State(_) => Vec::new(),
        };
        for facts in gone {
            self.followed.changes.send(ClusterChange::ReplicaSetGone(facts)).await?;
        }
        Ok(())
    }
}
