//! Who owns a pod, which revision it is of, and which revision is current.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::Serialize;

use crate::model::{
    Mono, ObjectRef, PodFacts, ReplicaSetFacts, Revision, Wall, WorkloadFacts, WorkloadKey,
};

/// The most pods remembered; the first gone go first.
const MAX_PODS: usize = 20_000;

/// What is known of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pod {
    /// Last content.
    pub facts: Arc<PodFacts>,
    /// The earliest deletion time of all its contents: the kubelet's last delete moves it.
    pub deleted_at: Option<Wall>,
    /// When this agent first saw that it was being deleted.
    pub deletion_seen: Option<Mono>,
    /// Restart count when first seen.
    pub restarts_at_first: u32,
    /// When its restart count last rose.
    pub restarted: Option<Mono>,
    /// When it was gone.
    pub gone: Option<Mono>,
}

/// A pod's place: its workload and the revision of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Workload.
    pub workload: WorkloadKey,
    /// Template hash or controller revision.
    pub hash: Arc<str>,
    /// Name of what directly owns the pod.
    pub owner: ObjectRef,
}

/// What the API server said about owners.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    pods: BTreeMap<Arc<str>, Pod>,
    gone_pods: VecDeque<Arc<str>>,
    /// Answers to look-ups, by pod UID.
    looked_up: BTreeMap<Arc<str>, (Option<ObjectRef>, String)>,
    replica_sets: BTreeMap<Arc<str>, Arc<ReplicaSetFacts>>,
    workloads: BTreeMap<Arc<str>, Arc<WorkloadFacts>>,
    /// When a workload's wanted count last fell, by its UID.
    wanted_fell: BTreeMap<Arc<str>, Mono>,
}

/// Whether `new` is older than `old`: versions of one API server compare as numbers (KEP-5504).
fn is_older(new: &str, old: &str) -> bool {
    match (new.parse::<u64>(), old.parse::<u64>()) {
        (Ok(new), Ok(old)) => new < old,
        _ => false,
    }
}

impl Owners {
    /// A pod exists with this content.
    pub fn pod(&mut self, facts: Arc<PodFacts>, at: Mono) {
        let deleted = facts.deleted_at();
        let pod = self.pods.entry(facts.uid.clone()).or_insert_with(|| Pod {
            facts: facts.clone(),
            deleted_at: None,
            deletion_seen: None,
            restarts_at_first: facts.restarts,
            restarted: None,
            gone: None,
        });
        if deleted.is_some() {
            pod.deletion_seen.get_or_insert(at);
            pod.deleted_at = pod.deleted_at.min(deleted).or(deleted);
        }
        if facts.restarts > pod.facts.restarts {
            pod.restarted = Some(at);
        }
        if !is_older(&facts.resource_version, &pod.facts.resource_version) {
            pod.facts = facts;
        }
    }

    /// A pod is gone; its last content.
    pub fn pod_gone(&mut self, facts: Arc<PodFacts>, at: Mono) {
        let uid = facts.uid.clone();
        self.pod(facts, at);
        if let Some(pod) = self.pods.get_mut(&uid)
            && pod.gone.replace(at).is_none()
        {
            self.gone_pods.push_back(uid);
        }
        while self.pods.len() > MAX_PODS {
            let Some(oldest) = self.gone_pods.pop_front() else { break };
            self.pods.remove(&oldest);
            self.looked_up.remove(&oldest);
        }
    }

    /// A list of the node's pods was completed: those of this node that it lacks are gone.
    pub fn node_pods_listed(&mut self, node: &str, uids: &[Arc<str>], at: Mono) {
        let missing: Vec<Arc<PodFacts>> = self
            .pods
            .values()
            .filter(|pod| pod.gone.is_none() && pod.facts.node.as_deref() == Some(node))
            .filter(|pod| !uids.contains(&pod.facts.uid))
            .map(|pod| pod.facts.clone())
            .collect();
        for facts in missing {
            self.pod_gone(facts, at);
        }
    }

    /// A look-up was answered.
    pub fn looked_up(&mut self, uid: Arc<str>, owner: Option<ObjectRef>, how: String) {
        if self.looked_up.len() >= MAX_PODS {
            self.looked_up.pop_first();
        }
        self.looked_up.insert(uid, (owner, how));
    }

    /// The answer to a look-up: the owner if there is one, and how it was found.
    pub fn answer(&self, uid: &str) -> Option<&(Option<ObjectRef>, String)> {
        self.looked_up.get(uid)
    }

    /// A `ReplicaSet` exists with this content.
    pub fn replica_set(&mut self, facts: Arc<ReplicaSetFacts>) {
        match self.replica_sets.get(&facts.uid) {
            Some(known) if is_older(&facts.resource_version, &known.resource_version) => {}
            _ => {
                self.replica_sets.insert(facts.uid.clone(), facts);
            }
        }
    }

    /// A workload exists with this content.
    pub fn workload(&mut self, facts: Arc<WorkloadFacts>, at: Mono) {
        match self.workloads.get(&facts.object.uid) {
            Some(known) if is_older(&facts.resource_version, &known.resource_version) => {}
            known => {
                if known.is_some_and(|known| facts.wanted < known.wanted) {
                    self.wanted_fell.insert(facts.object.uid.clone(), at);
                }
                self.workloads.insert(facts.object.uid.clone(), facts);
            }
        }
    }

    /// When the workload's wanted count last fell.
    pub fn wanted_fell(&self, workload_uid: &str) -> Option<Mono> {
        self.wanted_fell.get(workload_uid).copied()
    }

    /// A pod by UID.
    pub fn pod_by_uid(&self, uid: &str) -> Option<&Pod> {
        self.pods.get(uid)
    }

    /// All pods known.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values()
    }

    /// A workload by UID.
    pub fn workload_by_uid(&self, uid: &str) -> Option<&Arc<WorkloadFacts>> {
        self.workloads.get(uid)
    }

    /// The workload and revision of a pod: through the pod itself, else through a look-up.
    pub fn place(&self, uid: &str) -> Option<Place> {
        let pod = self.pods.get(uid);
        let owner = pod
            .and_then(|pod| pod.facts.owner.clone())
            .or_else(|| self.looked_up.get(uid).and_then(|(owner, _)| owner.clone()))?;
        if let Some(set) = self.replica_sets.get(&owner.uid) {
            let workload = set.owner.as_ref()?;
            return Some(Place {
                workload: key(&set.namespace, workload),
                hash: set.template_hash.clone(),
                owner,
            });
        }
        let workload = self.workloads.get(&owner.uid)?;
        let hash = pod.map(|pod| pod.facts.revision_hash.clone()).filter(|hash| !hash.is_empty())?;
        Some(Place { workload: key(&workload.namespace, &workload.object), hash, owner })
    }

    /// `ReplicaSet`s of a workload.
    pub fn replica_sets_of<'a>(
        &'a self,
        workload_uid: &'a str,
    ) -> impl Iterator<Item = &'a Arc<ReplicaSetFacts>> {
        self.replica_sets
            .values()
            .filter(move |set| set.owner.as_ref().is_some_and(|owner| &*owner.uid == workload_uid))
    }

    /// The revision that a workload is going to: of `ReplicaSet`s the one with the highest revision
    /// annotation (the Deployment's own can lag behind), of the others what their status says.
    pub fn target(&self, workload_uid: &str) -> Option<Revision> {
        let newest = self.replica_sets_of(workload_uid).max_by_key(|set| (set.revision, set.created));
        if let Some(set) = newest {
            return Some(revision(set));
        }
        let workload = self.workloads.get(workload_uid)?;
        let hash = workload.status.update_revision.clone();
        (!hash.is_empty()).then(|| Revision {
            revision: workload.status.revision,
            hash,
            images: workload.images.clone(),
        })
    }

    /// The workload's key, if anything of it is known.
    pub fn key_of(&self, workload_uid: &str) -> Option<WorkloadKey> {
        if let Some(workload) = self.workloads.get(workload_uid) {
            return Some(key(&workload.namespace, &workload.object));
        }
        let set = self.replica_sets_of(workload_uid).next()?;
        Some(key(&set.namespace, set.owner.as_ref()?))
    }
}

/// A `ReplicaSet`'s revision.
pub fn revision(set: &ReplicaSetFacts) -> Revision {
    Revision {
        revision: set.revision,
        hash: set.template_hash.clone(),
        images: set.images.clone(),
    }
}

fn key(namespace: &Arc<str>, object: &ObjectRef) -> WorkloadKey {
    WorkloadKey {
        namespace: namespace.clone(),
        kind: object.kind.clone(),
        name: object.name.clone(),
        uid: object.uid.clone(),
    }
}
