//! Workloads with a rollout that touches this node's connections: watched by name until told
//! otherwise, with their `ReplicaSet`s and pods on every node.

mod kept;
mod pods;
mod sets;
mod workload;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet},
    core::v1::Pod,
};
use kube::{Api, Resource, core::ApiResource};
use tokio::{
    sync::{Mutex, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    ask::Ask,
    object::Facts,
    revisions::{self, RevisionFacts},
    stats::{ClusterStats, WatchName, WatchStats},
    stream::{ListStyle, Source, Stopped},
    timeline::Timeline,
    trim::{Unknown, Workload},
    watch::{Base, Changes, resource_of, spell},
};
use kept::Kept;
use pods::PodSink;
use sets::SetSink;
use workload::{RevisionSink, WorkloadSink};

use crate::{
    engine::ClusterChange,
    model::{PodFacts, ReplicaSetFacts, WorkloadFacts, WorkloadKey},
};

/// Workloads followed at a time: each costs the API server three watches.
const LIMIT: usize = 64;

/// Starts and ends the watches of followed workloads.
pub(super) struct Followers {
    ask: Ask,
    changes: Changes,
    stats: Arc<ClusterStats>,
    style: ListStyle,
    timeline: Timeline,
    tokens: HashMap<WorkloadKey, CancellationToken>,
    tasks: JoinSet<WorkloadKey>,
}

impl Followers {
    pub(super) fn new(base: &Base, ask: Ask) -> Self {
        Self {
            ask,
            changes: base.changes.clone(),
            stats: base.stats.clone(),
            style: base.style.clone(),
            timeline: base.timeline.clone(),
            tokens: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Begins to follow; a workload that is followed already is left as it is.
    pub(super) fn follow(&mut self, key: WorkloadKey, api_version: Arc<str>, since: &str) {
        if self.tokens.contains_key(&key) {
            return;
        }
        if self.tokens.len() >= LIMIT {
            let refused = self.stats.follow_refused.fetch_add(1, Relaxed) + 1;
            tracing::warn!(namespace = %key.namespace, kind = %key.kind, name = %key.name, refused,
                "not followed: {LIMIT} workloads are already; its rollout stays without an end");
            return;
        }
        let token = CancellationToken::new();
        self.tokens.insert(key.clone(), token.clone());
        self.stats.followed.store(self.tokens.len(), Relaxed);
        let (selector, _) = watch::channel(None);
        let followed = Followed {
            ask: self.ask.clone(),
            changes: self.changes.clone(),
            stats: self.stats.clone(),
            style: self.style.clone(),
            timeline: self.timeline.clone(),
            since: Some(since.to_owned()).filter(|since| !since.is_empty()),
            selector,
            shared: Arc::default(),
            key: key.clone(),
            api_version,
        };
        tracing::debug!(namespace = %key.namespace, kind = %key.kind, name = %key.name, "following");
        self.tasks.spawn(async move {
            token.run_until_cancelled(Box::pin(followed.run())).await;
            key
        });
    }

    /// Follows it no longer.
    pub(super) fn unfollow(&mut self, key: &WorkloadKey) {
        if let Some(token) = self.tokens.remove(key) {
            token.cancel();
        }
        self.stats.followed.store(self.tokens.len(), Relaxed);
    }

    /// The next follower that ended, for whatever reason; waits for ever while there is none.
    pub(super) async fn reap(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(key)) => {
                tracing::debug!(kind = %key.kind, name = %key.name, "followed no longer");
            }
            Some(Err(error)) => tracing::error!("a followed workload's watch failed: {error}"),
            None => std::future::pending().await,
        }
    }
}

/// What the watches of one workload share.
#[derive(Default)]
struct Shared {
    workload: Option<Arc<WorkloadFacts>>,
    revisions: BTreeMap<Arc<str>, Arc<RevisionFacts>>,
}

/// One followed workload.
#[derive(Clone)]
struct Followed {
    ask: Ask,
    changes: Changes,
    stats: Arc<ClusterStats>,
    style: ListStyle,
    timeline: Timeline,
    key: WorkloadKey,
    api_version: Arc<str>,
    since: Option<String>,
    /// Known once the workload has been seen.
    selector: watch::Sender<Option<Arc<str>>>,
    /// Held while a change is sent, so that what is older cannot overtake.
    shared: Arc<Mutex<Shared>>,
}

impl Followed {
    async fn run(self) -> Stopped {
        let kind = self.key.kind.clone();
        let workload = async {
            match &*kind {
                "Deployment" => self.workload::<Deployment>(resource_of::<Deployment>()).await,
                "StatefulSet" => self.workload::<StatefulSet>(resource_of::<StatefulSet>()).await,
                "DaemonSet" => self.workload::<DaemonSet>(resource_of::<DaemonSet>()).await,
                _ => match self.ask.resource(&self.api_version, &kind).await {
                    Ok(resource) => self.workload::<Unknown>(resource).await,
                    Err(error) => {
                        tracing::warn!(kind = %kind, name = %self.key.name, "not followed: {error}");
                        std::future::pending().await
                    }
                },
            }
        };
        let history = async {
            if revisions::kept_by(&kind) { self.revisions().await } else { self.sets().await }
        };
        tokio::select! {
            stopped = workload => stopped,
            stopped = history => stopped,
            stopped = self.pods() => stopped,
        }
    }

    fn source<F: Facts>(&self, name: WatchName, resource: &ApiResource) -> Source<F> {
        let client = self.ask.client.clone();
        Source {
            api: Api::namespaced_with(client, &self.key.namespace, resource),
            resource: spell(resource),
            labels: None,
            fields: None,
            since: None,
            style: self.style.clone(),
            timeline: self.timeline.clone(),
            stats: WatchStats { name, all: self.stats.clone() },
        }
    }

    /// As [`Self::source`], for what the workload's selector selects; waits until it is known.
    async fn selected<F: Facts, K: Resource<DynamicType = ()>>(
        &self,
        name: WatchName,
    ) -> Source<F> {
        let mut receiver = self.selector.subscribe();
        // Cannot fail: the sender is here.
        let labels = receiver.wait_for(Option::is_some).await.map(|known| known.clone());
        let labels = labels.ok().flatten().map(|selector| selector.to_string());
        Source { labels, ..self.source(name, &resource_of::<K>()) }
    }

    async fn workload<K>(&self, resource: ApiResource) -> Stopped
    where
        Workload<K>: Facts,
    {
        let mut source = self.source::<Workload<K>>(WatchName::Workloads, &resource);
        source.fields = Some(format!("metadata.name={}", self.key.name));
        source.run(WorkloadSink { followed: self.clone(), listed: false }).await
    }

    async fn sets(&self) -> Stopped {
        let source = self.selected::<ReplicaSetFacts, ReplicaSet>(WatchName::ReplicaSets).await;
        let sets = Kept::<ReplicaSetFacts>::new();
        source.run(SetSink { followed: self.clone(), sets }).await
    }

    async fn revisions(&self) -> Stopped {
        let name = WatchName::ControllerRevisions;
        let source = self.selected::<RevisionFacts, ControllerRevision>(name).await;
        source.run(RevisionSink { followed: self.clone() }).await
    }

    async fn pods(&self) -> Stopped {
        let mut source = self.selected::<PodFacts, Pod>(WatchName::FollowedPods).await;
        source.since.clone_from(&self.since);
        let labels = source.labels.clone();
        let pods = Kept::<PodFacts>::new();
        source
            .run(PodSink { followed: self.clone(), pods, labels, begun: false, told_until: None })
            .await
    }

    /// Sends the workload as it is now known, its revisions included.
    async fn publish(&self, shared: &mut Shared) -> Result<(), Stopped> {
        let Some(workload) = &shared.workload else { return Ok(()) };
        let mut facts = WorkloadFacts::clone(workload);
        revisions::complete(&mut facts, shared.revisions.values().map(|r| &**r));
        self.changes.send(ClusterChange::Workload(Arc::new(facts))).await
    }
}
