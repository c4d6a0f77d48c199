//! A Deployment with its `ReplicaSets`, as one reconciliation sees it, and the writes on them.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::bounds::Bounds;
use super::revision;
use super::status;
use crate::controllers::pods;
use crate::controllers::runner::{Failed, ignore};

/// The wanted replicas, told on every `ReplicaSet`: a difference from the spec means that somebody
/// scaled.
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The wanted replicas and the surge.
pub const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// What one reconciliation works on.
pub struct Rollout {
    /// The Deployment, as last written.
    pub deployment: Deployment,
    /// The `ReplicaSets` of other templates, oldest first.
    pub old: Vec<ReplicaSet>,
    /// The one of the present template.
    pub new: Option<ReplicaSet>,
    /// Where `ReplicaSets` are written.
    pub sets: Api<ReplicaSet>,
    client: Client,
    deployments: Api<Deployment>,
    namespace: String,
}

/// The replicas that a `ReplicaSet` is to have.
pub fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
}

/// The replicas that are available.
pub fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

impl Rollout {
    /// Reads the Deployment and what it owns; none when it is gone.
    pub async fn read(client: &Client, seen: &Deployment) -> Result<Option<Self>, Failed> {
        let namespace = seen.namespace().unwrap_or_default();
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
        let Some(deployment) = deployments.get_opt(&seen.name_any()).await? else {
            return Ok(None);
        };
        let Some(spec) = &deployment.spec else {
            return Ok(None);
        };
        let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), &namespace);
        let selected = sets
            .list(&ListParams::default().labels(&pods::list_selector(&spec.selector)))
            .await?
            .items;
        let mut old: Vec<ReplicaSet> =
            selected.into_iter().filter(|set| pods::is_controlled_by(set, &deployment)).collect();
        old.sort_by_key(|set| (set.metadata.creation_timestamp.clone(), set.name_any()));
        let new = revision::position_of_new(&deployment, &old).map(|at| old.remove(at));
        Ok(Some(Self {
            deployment,
            old,
            new,
            sets,
            client: client.clone(),
            deployments,
            namespace,
        }))
    }

    /// The Deployment's spec; `read` saw to it that there is one.
    pub fn spec(&self) -> &DeploymentSpec {
        static EMPTY: std::sync::LazyLock<DeploymentSpec> =
            std::sync::LazyLock::new(DeploymentSpec::default);
        self.deployment.spec.as_ref().unwrap_or(&EMPTY)
    }

    /// The wanted replicas.
    pub fn wanted(&self) -> i32 {
        self.spec().replicas.unwrap_or(1)
    }

    /// Surge and unavailability.
    pub fn bounds(&self) -> Bounds {
        Bounds::of(&self.deployment)
    }

    /// Whether the strategy takes all old pods away first.
    pub fn is_recreate(&self) -> bool {
        self.spec().strategy.as_ref().and_then(|strategy| strategy.type_.as_deref())
            == Some("Recreate")
    }

    /// All `ReplicaSets`.
    pub fn all(&self) -> impl Iterator<Item = &ReplicaSet> {
        self.old.iter().chain(&self.new)
    }

    /// The sum of the replicas that all `ReplicaSets` are to have.
    pub fn total(&self) -> i32 {
        self.all().map(replicas).sum()
    }

    /// The sum of the old ones'.
    pub fn old_total(&self) -> i32 {
        self.old.iter().map(replicas).sum()
    }

    /// The annotations about size that every `ReplicaSet` carries.
    pub fn size_annotations(&self) -> BTreeMap<String, String> {
        let wanted = self.wanted();
        BTreeMap::from([
            (DESIRED.to_owned(), wanted.to_string()),
            (MAX.to_owned(), (wanted + self.bounds().surge).to_string()),
        ])
    }

    /// Gives a `ReplicaSet` its number of replicas, and the annotations about size; true when the
    /// number changed.
    pub async fn scale(&self, set: &mut ReplicaSet, to: i32) -> Result<bool, Failed> {
        let resized = replicas(set) != to;
        let annotations = self.size_annotations();
        let annotated =
            annotations.iter().all(|(key, value)| set.annotations().get(key) == Some(value));
        if !resized && annotated {
            return Ok(false);
        }
        // A patch, since the ReplicaSet's own controller writes its status meanwhile.
        let patch = Patch::Merge(
            json!({ "metadata": { "annotations": annotations }, "spec": { "replicas": to } }),
        );
        *set = self.sets.patch(&set.name_any(), &PatchParams::default(), &patch).await?;
        Ok(resized)
    }

    /// Scales the new one; true when it changed.
    pub async fn scale_new(&mut self, to: i32) -> Result<bool, Failed> {
        let Some(mut new) = self.new.take() else {
            return Ok(false);
        };
        let scaled = self.scale(&mut new, to).await;
        self.new = Some(new);
        scaled
    }

    /// Scales an old one; true when it changed.
    pub async fn scale_old(&mut self, at: usize, to: i32) -> Result<bool, Failed> {
        let mut old = self.old[at].clone();
        let scaled = self.scale(&mut old, to).await?;
        self.old[at] = old;
        Ok(scaled)
    }

    /// The pods that belong to old `ReplicaSets` and still exist and run.
    pub async fn old_pods_run(&self) -> Result<bool, Failed> {
        let api: Api<k8s_openapi::api::core::v1::Pod> =
            Api::namespaced(self.client.clone(), &self.namespace);
        let selector = pods::list_selector(&self.spec().selector);
        let found = api.list(&ListParams::default().labels(&selector)).await?.items;
        let runs = |pod: &_| {
            !pods::is_terminal(pod) && self.old.iter().any(|set| pods::is_controlled_by(pod, set))
        };
        Ok(self.old.iter().any(|set| set.status.as_ref().is_some_and(|s| s.replicas > 0))
            || found.iter().any(runs))
    }

    /// Writes the status if it changed.
    pub async fn sync_status(&mut self) -> Result<(), Failed> {
        let next = status::calculate(self);
        self.write_status(next).await
    }

    /// Writes the status, with the condition that tells of progress, if it changed.
    pub async fn sync_rollout_status(&mut self) -> Result<(), Failed> {
        let mut next = status::calculate(self);
        status::judge_progress(self, &mut next);
        self.write_status(next).await
    }

    /// Marks the Deployment as paused or resumed; true when that was news.
    pub async fn sync_paused_condition(&mut self, paused: bool) -> Result<bool, Failed> {
        let Some(next) = status::with_paused(&self.deployment, paused) else {
            return Ok(false);
        };
        self.write_status(next).await?;
        Ok(true)
    }

    async fn write_status(
        &mut self,
        next: k8s_openapi::api::apps::v1::DeploymentStatus,
    ) -> Result<(), Failed> {
        if self.deployment.status.as_ref() == Some(&next) {
            return Ok(());
        }
        let mut updated = self.deployment.clone();
        updated.status = Some(next);
        self.write_deployment_status(&updated).await
    }

    /// Writes the status and the annotations, which the status subresource takes too.
    pub async fn write_deployment_status(&mut self, updated: &Deployment) -> Result<(), Failed> {
        let name = updated.name_any();
        self.deployment =
            self.deployments.replace_status(&name, &PostParams::default(), updated).await?;
        Ok(())
    }

    /// Deletes the oldest empty `ReplicaSets` beyond the history's limit.
    pub async fn clean_up(&mut self) -> Result<(), Failed> {
        let limit =
            usize::try_from(self.spec().revision_history_limit.unwrap_or(10)).unwrap_or(usize::MAX);
        let mut candidates: Vec<&ReplicaSet> =
            self.old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
        candidates.sort_by_key(|set| revision::number(set.annotations()));
        let surplus = candidates.len().saturating_sub(limit);
        for set in candidates.into_iter().take(surplus) {
            let status = set.status.clone().unwrap_or_default();
            let settled = status.observed_generation >= set.metadata.generation;
            if status.replicas == 0 && replicas(set) == 0 && settled {
                ignore(
                    self.sets.delete(&set.name_any(), &DeleteParams::default()).await.map(drop),
                    404,
                )?;
            }
        }
        Ok(())
    }
}
