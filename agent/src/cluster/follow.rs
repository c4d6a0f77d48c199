//! Workloads with a rollout that touches this node's connections: watched by name until told
//! otherwise, with their `ReplicaSet`s and pods on every node.

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
    object::{Facts, Object},
    revisions::{self, RevisionFacts},
    stats::{ClusterStats, WatchName, WatchState, WatchStats},
    stream::{Event, ListStyle, Sink, Source, Stopped},
    trim::{Unknown, Workload},
    watch::{Base, Changes, resource_of, spell},
};
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
        source.run(PodSink { followed: self.clone(), pods, labels, begun: false }).await
    }

    /// Sends the workload as it is now known, its revisions included.
    async fn publish(&self, shared: &mut Shared) -> Result<(), Stopped> {
        let Some(workload) = &shared.workload else { return Ok(()) };
        let mut facts = WorkloadFacts::clone(workload);
        revisions::complete(&mut facts, shared.revisions.values().map(|r| &**r));
        self.changes.send(ClusterChange::Workload(Arc::new(facts))).await
    }
}

struct WorkloadSink {
    followed: Followed,
    /// The list under way has it.
    listed: bool,
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
            Event::ListBegins => self.listed = false,
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

/// The last content of each object by UID, and which of them the list under way has.
struct Kept<F> {
    last: BTreeMap<Arc<str>, Arc<F>>,
    listed: Vec<Arc<str>>,
}

impl<F> Kept<F> {
    fn new() -> Self {
        Self { last: BTreeMap::new(), listed: Vec::new() }
    }

    /// What the list lacks.
    fn lost(&mut self) -> Vec<Arc<F>> {
        let listed = std::mem::take(&mut self.listed);
        let lost: Vec<_> = self.last.keys().filter(|uid| !listed.contains(uid)).cloned().collect();
        lost.into_iter().filter_map(|uid| self.last.remove(&uid)).collect()
    }

    fn gone(&mut self, uid: &Arc<str>) -> Option<Arc<F>> {
        self.listed.retain(|listed| listed != uid);
        self.last.remove(uid)
    }
}

struct SetSink {
    followed: Followed,
    sets: Kept<ReplicaSetFacts>,
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
            Event::ListBegins => {
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

struct RevisionSink {
    followed: Followed,
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
            Event::ListBegins | Event::State(_) => return Ok(()),
        }
        self.followed.publish(&mut shared).await
    }
}

/// Pods, watched from a version of the past: what comes may be older than what is known.
struct PodSink {
    followed: Followed,
    pods: Kept<PodFacts>,
    /// The workload's selector.
    labels: Option<String>,
    /// The watch was open once, or had to begin with a list.
    begun: bool,
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
            Event::ListBegins => {
                if !self.begun && self.followed.since.is_some() {
                    tracing::info!(name = %self.followed.key.name, since = ?self.followed.since,
                        "its pods cannot be watched from the version of the slice that changed: \
                         one that was deleted meanwhile is known by its ReplicaSet only");
                }
                self.begun = true;
                self.pods.listed.clear();
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
                    // Its deletion as it was first asked for is worth telling, as the past it is.
                    Some(known) => {
                        if facts.deletion_timestamp.is_some() {
                            self.followed.changes.send(ClusterChange::Pod(facts)).await?;
                            self.followed.changes.send(ClusterChange::Pod(known)).await?;
                        }
                        return Ok(());
                    }
                    None => return self.exists(facts).await,
                }
            }
            Event::ListEnds => self.pods.lost(),
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
