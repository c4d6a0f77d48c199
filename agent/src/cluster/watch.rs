//! The three watches that never end: all slices, all Services, this node's pods.
//!
//! The same control-plane cost as kube-proxy's, plus the pods that a kubelet watches anyway.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, Resource, core::ApiResource};
use tokio::sync::{Mutex, mpsc};

use super::{
    object::Facts,
    stats::{ClusterStats, WatchName, WatchState, WatchStats},
    stream::{Event, ListStyle, Sink, Source, Stopped},
    timeline::Timeline,
    versions::Versions,
};
use crate::{
    engine::ClusterChange,
    model::{PodFacts, ServiceFacts, SliceFacts},
};

/// Where changes go. The receiver stamps the time of receipt: nothing here asks for it.
#[derive(Clone, Debug)]
pub(super) struct Changes(pub(super) mpsc::Sender<ClusterChange>);

impl Changes {
    pub(super) async fn send(&self, change: ClusterChange) -> Result<(), Stopped> {
        self.0.send(change).await.map_err(|_| Stopped)
    }
}

/// What is left to other proxies (`service.kubernetes.io/service-proxy-name`) is not watched, as
/// kube-proxy does; its other exception, headless Services, matters here.
const OUR_PROXY: &str = "!service.kubernetes.io/service-proxy-name";

/// Says `Synced` when the last of the three has caught up, and when the first has lost the server.
///
/// A denied watch is not waited for: what still works keeps working, and status says what does not.
/// Without slices nothing works.
#[derive(Debug)]
pub(super) struct Latch {
    stats: Arc<ClusterStats>,
    /// Held while the change is sent, so that two of them cannot overtake each other.
    state: Mutex<([WatchState; 3], bool)>,
}

impl Latch {
    pub(super) fn new(stats: Arc<ClusterStats>) -> Arc<Self> {
        Arc::new(Self { stats, state: Mutex::default() })
    }

    async fn enter(
        &self,
        name: WatchName,
        state: WatchState,
        changes: &Changes,
    ) -> Result<(), Stopped> {
        let mut guard = self.state.lock().await;
        let (states, said) = &mut *guard;
        states[name as usize] = state;
        let synced = states[WatchName::EndpointSlices as usize] == WatchState::Synced
            && states.iter().all(|s| matches!(s, WatchState::Synced | WatchState::Denied));
        if synced != *said {
            *said = synced;
            self.stats.set_synced(synced);
            changes.send(ClusterChange::Synced(synced)).await?;
        }
        Ok(())
    }
}

pub(super) fn resource_of<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

/// `pods`, `endpointslices.discovery.k8s.io`: as RBAC rules and errors spell it.
pub(super) fn spell(resource: &ApiResource) -> String {
    if resource.group.is_empty() {
        resource.plural.clone()
    } else {
        format!("{}.{}", resource.plural, resource.group)
    }
}

/// What the three have in common.
#[derive(Clone)]
pub(super) struct Base {
    pub(super) client: Client,
    pub(super) changes: Changes,
    pub(super) stats: Arc<ClusterStats>,
    pub(super) style: ListStyle,
    pub(super) timeline: Timeline,
    pub(super) latch: Arc<Latch>,
}

impl Base {
    fn source<F: Facts>(&self, name: WatchName, resource: &ApiResource) -> Source<F> {
        Source {
            api: Api::all_with(self.client.clone(), resource),
            resource: spell(resource),
            labels: None,
            fields: None,
            since: None,
            style: self.style.clone(),
            timeline: self.timeline.clone(),
            stats: WatchStats { name, all: self.stats.clone() },
        }
    }

    pub(super) async fn slices(self) -> Stopped {
        let resource = resource_of::<EndpointSlice>();
        let mut source = self.source::<SliceFacts>(WatchName::EndpointSlices, &resource);
        source.labels = Some(OUR_PROXY.into());
        source.run(All::new(self)).await
    }

    pub(super) async fn services(self) -> Stopped {
        let resource = resource_of::<Service>();
        let mut source = self.source::<ServiceFacts>(WatchName::Services, &resource);
        source.labels = Some(OUR_PROXY.into());
        source.run(All::new(self)).await
    }

    pub(super) async fn pods(self, node: &str) -> Stopped {
        let mut source = self.source::<PodFacts>(WatchName::Pods, &resource_of::<Pod>());
        source.fields = Some(format!("spec.nodeName={node}"));
        let pods = BTreeMap::new();
        source.run(NodePods { base: self, pods, listed: Vec::new(), told_until: None }).await
    }
}

/// A kind of object of which every one is watched: what becomes of it as a change.
trait Everywhere: Facts {
    const WATCH: WatchName;
    fn exists(facts: Arc<Self>) -> ClusterChange;
    fn gone(namespace: Arc<str>, name: Arc<str>) -> ClusterChange;
    fn listed(names: Vec<(Arc<str>, Arc<str>)>) -> ClusterChange;
}

impl Everywhere for SliceFacts {
    const WATCH: WatchName = WatchName::EndpointSlices;

    fn exists(facts: Arc<Self>) -> ClusterChange {
        ClusterChange::Slice(facts)
    }

    fn gone(namespace: Arc<str>, name: Arc<str>) -> ClusterChange {
        ClusterChange::SliceGone { namespace, name }
    }

    fn listed(names: Vec<(Arc<str>, Arc<str>)>) -> ClusterChange {
        ClusterChange::SlicesListed(names)
    }
}

impl Everywhere for ServiceFacts {
    const WATCH: WatchName = WatchName::Services;

    fn exists(facts: Arc<Self>) -> ClusterChange {
        ClusterChange::Service(facts)
    }

    fn gone(namespace: Arc<str>, name: Arc<str>) -> ClusterChange {
        ClusterChange::ServiceGone { namespace, name }
    }

    fn listed(names: Vec<(Arc<str>, Arc<str>)>) -> ClusterChange {
        ClusterChange::ServicesListed(names)
    }
}

/// Every object of a kind, in all namespaces.
struct All {
    base: Base,
    listed: Vec<(Arc<str>, Arc<str>)>,
    versions: Versions,
}

impl All {
    fn new(base: Base) -> Self {
        Self { base, listed: Vec::new(), versions: Versions::default() }
    }
}

impl<F: Everywhere> Sink<F> for All {
    async fn take(&mut self, event: Event<F>) -> Result<(), Stopped> {
        let changes = &self.base.changes;
        match event {
            Event::ListBegins(_) => {
                self.listed.clear();
                self.versions.clear();
            }
            Event::Listed(object) => {
                self.versions.is_news(&object.identity);
                self.listed.push((object.identity.namespace, object.identity.name));
                if let Some(facts) = object.facts {
                    changes.send(F::exists(facts)).await?;
                }
            }
            Event::ListEnds => {
                changes.send(F::listed(std::mem::take(&mut self.listed))).await?;
            }
            Event::Changed(object) => {
                if !self.versions.is_news(&object.identity) {
                    self.base.stats.stale(F::WATCH);
                } else if let Some(facts) = object.facts {
                    changes.send(F::exists(facts)).await?;
                }
            }
            Event::Gone(object) => {
                if !self.versions.is_gone(&object.identity) {
                    self.base.stats.stale(F::WATCH);
                    return Ok(());
                }
                let (namespace, name) = (object.identity.namespace, object.identity.name);
                self.listed.retain(|key| (&key.0, &key.1) != (&namespace, &name));
                changes.send(F::gone(namespace, name)).await?;
            }
            Event::State(state) => self.base.latch.enter(F::WATCH, state, changes).await?,
        }
        Ok(())
    }
}

/// Keeps the last content of each pod of the node: a pod that a relist lacks is reported with it.
struct NodePods {
    base: Base,
    pods: BTreeMap<Arc<str>, Arc<PodFacts>>,
    listed: Vec<Arc<str>>,
    told_until: Option<Arc<str>>,
}

impl NodePods {
    async fn exists(&mut self, facts: Arc<PodFacts>) -> Result<(), Stopped> {
        self.pods.insert(facts.uid.clone(), facts.clone());
        self.base.changes.send(ClusterChange::Pod(facts)).await
    }
}

impl Sink<PodFacts> for NodePods {
    async fn take(&mut self, event: Event<PodFacts>) -> Result<(), Stopped> {
        match event {
            Event::ListBegins(until) => {
                self.listed.clear();
                self.told_until = until;
            }
            Event::Listed(object) => {
                self.listed.push(object.identity.uid);
                if let Some(facts) = object.facts {
                    self.exists(facts).await?;
                }
            }
            Event::ListEnds => {
                let listed = std::mem::take(&mut self.listed);
                let gone: Vec<_> =
                    self.pods.keys().filter(|uid| !listed.contains(uid)).cloned().collect();
                for facts in gone.into_iter().filter_map(|uid| self.pods.remove(&uid)) {
                    let facts = facts.known_until(self.told_until.as_ref());
                    self.base.changes.send(ClusterChange::PodGone(facts)).await?;
                }
                self.base.changes.send(ClusterChange::NodePodsListed(listed)).await?;
            }
            Event::Changed(object) => {
                if let Some(facts) = object.facts {
                    self.exists(facts).await?;
                }
            }
            Event::Gone(object) => {
                self.listed.retain(|uid| *uid != object.identity.uid);
                let known = self.pods.remove(&object.identity.uid);
                if let Some(facts) = object.facts.or(known) {
                    self.base.changes.send(ClusterChange::PodGone(facts)).await?;
                }
            }
            Event::State(state) => {
                self.base.latch.enter(WatchName::Pods, state, &self.base.changes).await?;
            }
        }
        Ok(())
    }
}
