//! Who owns a pod: asked when the pod may be long gone, answered through what outlives it.

mod cache;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet},
    core::v1::Pod,
};
use kube::core::ApiResource;
use tokio::sync::mpsc;

use super::{
    ask::{Ask, Unanswered},
    names,
    object::Facts,
    revisions::{self, RevisionFacts},
    stats::ClusterStats,
    stream::Stopped,
    trim::{Unknown, Workload},
    watch::{Changes, resource_of},
};
use cache::{Answers, LIST_AGE, LIST_FRESH, Lists};

use crate::{
    engine::ClusterChange,
    model::{ObjectRef, PodFacts, ReplicaSetFacts, WorkloadFacts},
};

/// Look-ups that may wait; each is a pod that left, or failed, on this node.
pub(super) const QUEUE: usize = 1024;
/// Look-ups under way at once.
const WORKERS: usize = 8;
/// With more questions waiting than this, pods and Deployments are listed rather than asked for one
/// by one: a hundred rollouts at once would take longer than their verdicts wait.
const CROWD: usize = 32;

/// The pod that is asked about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Question {
    pub(super) namespace: Arc<str>,
    pub(super) pod: Arc<str>,
    pub(super) uid: Arc<str>,
}

/// What there is under a pod's name.
enum Found {
    Pod(Arc<PodFacts>),
    Unreadable,
    Nothing,
}

/// An answer in words and as a reference.
#[derive(Clone, Debug)]
struct Answer {
    owner: Option<ObjectRef>,
    how: String,
}

impl Answer {
    fn none(how: String) -> Self {
        Self { owner: None, how }
    }
}

/// Answers questions.
pub(super) struct Resolver {
    ask: Ask,
    changes: Changes,
    stats: Arc<ClusterStats>,
    pods: Lists<PodFacts>,
    deployments: Lists<Workload<Deployment>>,
    replica_sets: Lists<ReplicaSetFacts>,
    stateful_sets: Lists<Workload<StatefulSet>>,
    daemon_sets: Lists<Workload<DaemonSet>>,
    answers: Mutex<Answers>,
    waiting: Mutex<HashSet<Question>>,
}

impl Resolver {
    pub(super) fn new(ask: Ask, changes: Changes, stats: Arc<ClusterStats>) -> Arc<Self> {
        Arc::new(Self {
            ask,
            changes,
            stats,
            pods: Lists::new(resource_of::<Pod>()),
            deployments: Lists::new(resource_of::<Deployment>()),
            replica_sets: Lists::new(resource_of::<ReplicaSet>()),
            stateful_sets: Lists::new(resource_of::<StatefulSet>()),
            daemon_sets: Lists::new(resource_of::<DaemonSet>()),
            answers: Mutex::default(),
            waiting: Mutex::default(),
        })
    }

    /// Puts a question into the queue, once. Never waits: one too many is counted and answered as
    /// such.
    pub(super) fn put(&self, question: Question, queue: &mpsc::Sender<Question>) {
        let new = self.waiting().insert(question.clone());
        if !new {
            return;
        }
        if let Err(full) = queue.try_send(question) {
            let question = full.into_inner();
            self.waiting().remove(&question);
            if self.stats.resolve_dropped.fetch_add(1, Relaxed) == 0 {
                tracing::warn!(
                    limit = QUEUE,
                    "too many owner look-ups are waiting: some are \
                    dropped, and their failures stay without an owner"
                );
            }
            let answer = Answer::none(format!("not looked up: {QUEUE} look-ups were waiting"));
            if self.changes.0.try_send(owner_change(question, answer)).is_err() {
                tracing::debug!("nor can that be told: the queue of changes is full too");
            }
        }
    }

    /// Works the queue off until it is closed, or nobody takes the answers.
    pub(super) async fn run(self: Arc<Self>, queue: mpsc::Receiver<Question>) -> Stopped {
        let questions = futures::stream::unfold(queue, |mut queue| async {
            queue.recv().await.map(|question| (question, queue))
        });
        let mut answers = std::pin::pin!(
            questions.map(|question| self.clone().serve(question)).buffer_unordered(WORKERS)
        );
        while let Some(answered) = answers.next().await {
            if answered.is_err() {
                break;
            }
        }
        Stopped
    }

    async fn serve(self: Arc<Self>, question: Question) -> Result<(), Stopped> {
        let cached = self.answers().get(&question);
        let answer = if let Some(answer) = cached {
            self.stats.resolve_cached.fetch_add(1, Relaxed);
            answer
        } else {
            let answer = self.resolve(&question).await?;
            if answer.owner.is_some() {
                self.answers().keep(question.clone(), answer.clone());
            }
            answer
        };
        self.waiting().remove(&question);
        self.changes.send(owner_change(question, answer)).await
    }

    async fn resolve(&self, question: &Question) -> Result<Answer, Stopped> {
        let Question { namespace, pod, uid } = question;
        let why_by_name = match self.pod(namespace, pod).await {
            Ok(Found::Pod(facts)) if facts.uid == *uid => {
                let owner = facts.owner.clone();
                self.changes.send(ClusterChange::Pod(facts)).await?;
                return self.through_pod(namespace, owner).await;
            }
            Ok(Found::Pod(_)) => "the pod is gone and another has its name".to_owned(),
            Ok(Found::Unreadable) => "the pod cannot be read".to_owned(),
            Ok(Found::Nothing) => "the pod is gone".to_owned(),
            Err(error) => error.to_string(),
        };
        self.through_name(namespace, pod, why_by_name).await
    }

    fn is_crowded(&self) -> bool {
        self.waiting().len() > CROWD
    }

    /// A pod by its name.
    async fn pod(&self, namespace: &Arc<str>, name: &str) -> Result<Found, Unanswered> {
        // Where it may not list, it asks one by one.
        if self.is_crowded()
            && let Ok(pods) = self.pods.get(&self.ask, namespace, LIST_FRESH).await
        {
            let pod = pods.into_iter().find(|pod| &*pod.name == name);
            return Ok(pod.map_or(Found::Nothing, Found::Pod));
        }
        let object = self.ask.get::<PodFacts>(&self.pods.resource, namespace, name).await?;
        Ok(match object.map(|object| object.facts) {
            Some(Some(facts)) => Found::Pod(facts),
            Some(None) => Found::Unreadable,
            None => Found::Nothing,
        })
    }

    /// A Deployment of a `ReplicaSet`.
    async fn deployment(
        &self,
        namespace: &Arc<str>,
        owner: &ObjectRef,
    ) -> Result<Option<Arc<WorkloadFacts>>, Unanswered> {
        if self.is_crowded()
            && let Ok(all) = self.deployments.get(&self.ask, namespace, LIST_FRESH).await
        {
            let found = all.into_iter().find(|workload| workload.facts.object.uid == owner.uid);
            return Ok(found.map(|workload| Arc::new(workload.facts.clone())));
        }
        self.workload::<Deployment>(&self.deployments.resource, namespace, owner).await
    }

    async fn through_pod(
        &self,
        namespace: &Arc<str>,
        owner: Option<ObjectRef>,
    ) -> Result<Answer, Stopped> {
        let Some(owner) = owner else {
            return Ok(Answer::none("the pod has no controller".into()));
        };
        let mut how = "the pod names its controller".to_owned();
        match &*owner.kind {
            "ReplicaSet" => match self.replica_sets.get(&self.ask, namespace, LIST_AGE).await {
                Ok(sets) if sets.iter().any(|set| set.uid == owner.uid) => {
                    self.deliver_set(namespace, &owner.uid, &sets, &mut how).await?;
                }
                _ => match self.replica_sets.get(&self.ask, namespace, LIST_FRESH).await {
                    Ok(sets) => {
                        self.deliver_set(namespace, &owner.uid, &sets, &mut how).await?;
                    }
                    Err(error) => how = format!("{how}; {error}"),
                },
            },
            "StatefulSet" | "DaemonSet" => {
                self.deliver_workload(namespace, &owner, &mut how).await?;
            }
            _ => {}
        }
        Ok(Answer { owner: Some(owner), how })
    }

    async fn through_name(
        &self,
        namespace: &Arc<str>,
        pod: &Arc<str>,
        why: String,
    ) -> Result<Answer, Stopped> {
        let mut how = why;
        let mut age = LIST_AGE;
        let (sets, candidates) = loop {
            let found = self.candidates(namespace, pod, age).await;
            let (sets, candidates) = match found {
                Ok(found) => found,
                Err(error) => return Ok(Answer::none(format!("{how}; {error}"))),
            };
            // A list of some seconds ago may lack an owner that is younger.
            if !candidates.is_empty() || age == LIST_FRESH {
                break (sets, candidates);
            }
            age = LIST_FRESH;
        };
        let [owner] = &candidates[..] else {
            let why = if candidates.is_empty() {
                "no ReplicaSet, StatefulSet or DaemonSet makes such a name".to_owned()
            } else {
                let names: Vec<_> =
                    candidates.iter().map(|c| format!("{} {}", c.kind, c.name)).collect();
                format!("its name fits several: {}", names.join(", "))
            };
            return Ok(Answer::none(format!("{how}; {why}")));
        };
        how = format!("{how}; only {} {} makes such a name", owner.kind, owner.name);
        if &*owner.kind == "ReplicaSet" {
            self.deliver_set(namespace, &owner.uid, &sets, &mut how).await?;
        } else {
            self.deliver_workload(namespace, owner, &mut how).await?;
        }
        Ok(Answer { owner: Some(owner.clone()), how })
    }

    /// All owners that a pod's name may have been made by; asks only for the kinds that can.
    async fn candidates(
        &self,
        namespace: &Arc<str>,
        pod: &str,
        age: Duration,
    ) -> Result<(Vec<Arc<ReplicaSetFacts>>, Vec<ObjectRef>), Unanswered> {
        let mut candidates = Vec::new();
        let ordinal = pod.rsplit_once('-').is_some_and(|(owner, _)| names::ordinal_of(owner, pod));
        let sets = self.replica_sets.get(&self.ask, namespace, age).await?;
        for set in sets.iter().filter(|set| names::generated_for(&set.name, pod)) {
            candidates.push(ObjectRef {
                kind: "ReplicaSet".into(),
                api_version: "apps/v1".into(),
                name: set.name.clone(),
                uid: set.uid.clone(),
            });
        }
        let daemon_sets = self.daemon_sets.get(&self.ask, namespace, age).await?;
        let named = |w: &WorkloadFacts| names::generated_for(&w.object.name, pod);
        candidates
            .extend(daemon_sets.iter().filter(|w| named(&w.facts)).map(|w| w.facts.object.clone()));
        if ordinal {
            let stateful_sets = self.stateful_sets.get(&self.ask, namespace, age).await?;
            let named = |w: &WorkloadFacts| names::ordinal_of(&w.object.name, pod);
            candidates.extend(
                stateful_sets.iter().filter(|w| named(&w.facts)).map(|w| w.facts.object.clone()),
            );
        }
        Ok((sets, candidates))
    }

    /// The set, its siblings (which of them is current is told by comparing), and their owner.
    async fn deliver_set(
        &self,
        namespace: &Arc<str>,
        uid: &Arc<str>,
        sets: &[Arc<ReplicaSetFacts>],
        how: &mut String,
    ) -> Result<(), Stopped> {
        let Some(set) = sets.iter().find(|set| set.uid == *uid) else {
            how.push_str("; that ReplicaSet is gone");
            return Ok(());
        };
        let Some(owner) = &set.owner else {
            self.changes.send(ClusterChange::ReplicaSet(set.clone())).await?;
            how.push_str("; that ReplicaSet has no controller");
            return Ok(());
        };
        let same = |set: &ReplicaSetFacts| set.owner.as_ref().is_some_and(|o| o.uid == owner.uid);
        for sibling in sets.iter().filter(|set| same(set)) {
            self.changes.send(ClusterChange::ReplicaSet(sibling.clone())).await?;
        }
        self.deliver_workload(namespace, owner, how).await
    }

    async fn deliver_workload(
        &self,
        namespace: &Arc<str>,
        owner: &ObjectRef,
        how: &mut String,
    ) -> Result<(), Stopped> {
        let found = match &*owner.kind {
            "Deployment" => self.deployment(namespace, owner).await,
            "StatefulSet" => {
                self.workload::<StatefulSet>(&self.stateful_sets.resource, namespace, owner).await
            }
            "DaemonSet" => {
                self.workload::<DaemonSet>(&self.daemon_sets.resource, namespace, owner).await
            }
            _ => match self.ask.resource(&owner.api_version, &owner.kind).await {
                Ok(resource) => self.workload::<Unknown>(&resource, namespace, owner).await,
                Err(error) => Err(error),
            },
        };
        match found {
            Ok(Some(facts)) => self.changes.send(ClusterChange::Workload(facts)).await?,
            Ok(None) => *how = format!("{how}; its {} {} is gone", owner.kind, owner.name),
            Err(error) => *how = format!("{how}; {error}"),
        }
        Ok(())
    }

    async fn workload<K>(
        &self,
        resource: &ApiResource,
        namespace: &str,
        owner: &ObjectRef,
    ) -> Result<Option<Arc<WorkloadFacts>>, Unanswered>
    where
        Workload<K>: Facts,
    {
        let object = self.ask.get::<Workload<K>>(resource, namespace, &owner.name).await?;
        let Some(workload) = object.and_then(|object| object.facts) else { return Ok(None) };
        let mut facts = workload.facts.clone();
        if facts.object.uid != owner.uid {
            return Ok(None);
        }
        if revisions::kept_by(&owner.kind) {
            let labels = workload.selector.as_deref();
            let resource = resource_of::<ControllerRevision>();
            let list = self.ask.list::<RevisionFacts>(&resource, namespace, labels).await?;
            revisions::complete(&mut facts, list.iter().map(|revision| &**revision));
        }
        Ok(Some(Arc::new(facts)))
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, HashSet<Question>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn owner_change(question: Question, answer: Answer) -> ClusterChange {
    let Question { namespace, pod, uid } = question;
    ClusterChange::Owner { namespace, pod, uid, owner: answer.owner, how: answer.how }
}
