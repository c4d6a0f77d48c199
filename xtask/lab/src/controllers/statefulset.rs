//! The `StatefulSet` controller: numbered pods, made in order, replaced from the highest number
//! down.
//!
//! Left out: volumes, `maxUnavailable` (one at a time here), and the trimming of the revision
//! history.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::pods;
use super::revision_history::{self, POD_LABEL, Revision};
use super::runner::{self, Failed, Reconciled, ignore};
use crate::api;

/// The name under which it writes.
const USER: &str = "statefulset-controller";
/// The label of its revisions.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// Runs the controller.
pub async fn run(server: String, shutdown: CancellationToken) -> anyhow::Result<()> {
    let client = api::client(&server, USER)?;
    let config = watcher::Config::default();
    let controller = Controller::new(Api::<StatefulSet>::all(client.clone()), config.clone())
        .owns(Api::<Pod>::all(client.clone()), config);
    runner::run(USER, controller, client, shutdown, reconcile).await
}

/// One set and its pods by number.
struct View<'a> {
    set: &'a StatefulSet,
    spec: &'a StatefulSetSpec,
    api: Api<Pod>,
    pods: BTreeMap<i32, Pod>,
    /// The revision from which an update began.
    current: Revision,
    /// The present template's.
    update: Revision,
}

async fn reconcile(seen: Arc<StatefulSet>, client: Arc<Client>) -> Reconciled {
    let namespace = seen.namespace().unwrap_or_default();
    let sets: Api<StatefulSet> = Api::namespaced(Client::clone(&client), &namespace);
    let Some(set) = sets.get_opt(&seen.name_any()).await? else {
        return Ok(Action::await_change());
    };
    let Some(spec) = &set.spec else {
        return Ok(Action::await_change());
    };
    if set.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let revisions = revision_history::sync(&client, &set, &spec.template, HASH_LABEL).await?;
    let Some(update) = revisions.last().cloned() else {
        return Ok(Action::await_change());
    };
    let known = set.status.as_ref().and_then(|status| status.current_revision.clone());
    let current =
        revisions.iter().find(|r| Some(&r.name) == known.as_ref()).unwrap_or(&update).clone();
    let api: Api<Pod> = Api::namespaced(Client::clone(&client), &namespace);
    let selected =
        api.list(&ListParams::default().labels(&pods::list_selector(&spec.selector))).await?.items;
    let prefix = format!("{}-", set.name_any());
    let pods = selected
        .into_iter()
        .filter(|pod| pods::is_controlled_by(pod, &set))
        .filter_map(|pod| Some((pod.name_any().strip_prefix(&prefix)?.parse().ok()?, pod)))
        .collect();
    let view = View { set: &set, spec, api, pods, current, update };
    view.step().await?;
    let status = view.status();
    if set.status.as_ref() != Some(&status) {
        let mut updated = set.clone();
        updated.status = Some(status);
        sets.replace_status(&set.name_any(), &PostParams::default(), &updated).await?;
    }
    Ok(view.next_look())
}

impl View<'_> {
    fn first(&self) -> i32 {
        self.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0)
    }

    fn end(&self) -> i32 {
        self.first() + self.spec.replicas.unwrap_or(1)
    }

    fn partition(&self) -> i32 {
        let rolling = self
            .spec
            .update_strategy
            .as_ref()
            .and_then(|strategy| strategy.rolling_update.as_ref());
        rolling.and_then(|rolling| rolling.partition).unwrap_or(0)
    }

    fn updates_on_delete(&self) -> bool {
        self.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref())
            == Some("OnDelete")
    }

    fn min_ready(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or(0)
    }

    fn is_healthy(&self, pod: &Pod) -> bool {
        pods::is_active(pod) && pods::is_available(pod, self.min_ready(), Timestamp::now())
    }

    /// Makes, removes or replaces what is next in order; the events of that bring the next turn.
    async fn step(&self) -> Result<(), Failed> {
        let in_order = self.spec.pod_management_policy.as_deref() != Some("Parallel");
        for ordinal in self.first()..self.end() {
            match self.pods.get(&ordinal) {
                None => self.create(ordinal).await?,
                Some(pod)
                    if pods::is_terminal(pod) && pod.metadata.deletion_timestamp.is_none() =>
                {
                    self.delete(pod).await?;
                }
                Some(pod) if self.is_healthy(pod) => continue,
                Some(_) => {}
            }
            if in_order {
                return Ok(());
            }
        }
        for (ordinal, pod) in self.pods.iter().rev() {
            if (self.first()..self.end()).contains(ordinal) {
                continue;
            }
            if pod.metadata.deletion_timestamp.is_none() {
                self.delete(pod).await?;
            }
            if in_order {
                return Ok(());
            }
        }
        if self.updates_on_delete() {
            return Ok(());
        }
        let oldest = (self.first() + self.partition()).min(self.end());
        for ordinal in (oldest..self.end()).rev() {
            let Some(pod) = self.pods.get(&ordinal) else {
                return Ok(());
            };
            if revision_of(pod) != Some(&self.update.name)
                && pod.metadata.deletion_timestamp.is_none()
            {
                return self.delete(pod).await;
            }
            if !self.is_healthy(pod) {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn create(&self, ordinal: i32) -> Result<(), Failed> {
        let keeps_current = !self.updates_on_delete() && ordinal < self.first() + self.partition();
        let revision = if keeps_current { &self.current } else { &self.update };
        let name = format!("{}-{ordinal}", self.set.name_any());
        let mut pod = pods::from_template(&revision.template, self.set);
        pod.metadata.generate_name = Some(format!("{}-", self.set.name_any()));
        pod.metadata.name = Some(name.clone());
        pod.labels_mut().extend([
            ("statefulset.kubernetes.io/pod-name".to_owned(), name.clone()),
            ("apps.kubernetes.io/pod-index".to_owned(), ordinal.to_string()),
            (POD_LABEL.to_owned(), revision.name.clone()),
        ]);
        let spec = pod.spec.get_or_insert_default();
        spec.hostname = Some(name);
        spec.subdomain.clone_from(&self.spec.service_name);
        let created = self.api.create(&PostParams::default(), &pod).await.map(drop);
        Ok(ignore(created, 409)?)
    }

    async fn delete(&self, pod: &Pod) -> Result<(), Failed> {
        let deleted = self.api.delete(&pod.name_any(), &DeleteParams::default()).await.map(drop);
        Ok(ignore(deleted, 404)?)
    }

    fn status(&self) -> StatefulSetStatus {
        let count = |wanted: &dyn Fn(&Pod) -> bool| {
            i32::try_from(self.pods.values().filter(|pod| wanted(pod)).count()).unwrap_or(i32::MAX)
        };
        let some = |count: i32| Some(count).filter(|count| *count > 0);
        let of = |revision: &Revision| {
            count(&|pod| pods::is_active(pod) && revision_of(pod) == Some(&revision.name))
        };
        let (replicas, ready) =
            (count(&|_| true), count(&|pod| pods::is_active(pod) && pods::is_ready(pod)));
        let (mut current, updated) = (of(&self.current), of(&self.update));
        let mut current_revision = self.current.name.clone();
        let wanted = self.spec.replicas.unwrap_or(1);
        if !self.updates_on_delete()
            && [replicas, ready, updated].iter().all(|count| *count == wanted)
        {
            current_revision.clone_from(&self.update.name);
            current = updated;
        }
        let before = self.set.status.clone().unwrap_or_default();
        StatefulSetStatus {
            replicas,
            ready_replicas: some(ready),
            available_replicas: Some(count(&|pod| self.is_healthy(pod))),
            current_replicas: some(current),
            updated_replicas: some(updated),
            current_revision: Some(current_revision),
            update_revision: Some(self.update.name.clone()),
            observed_generation: self.set.metadata.generation,
            collision_count: Some(0),
            conditions: before.conditions,
        }
    }

    /// A pod becomes available without an event.
    fn next_look(&self) -> Action {
        let waits = self
            .pods
            .values()
            .filter_map(|pod| pods::available_in(pod, self.min_ready(), Timestamp::now()));
        waits
            .filter(|wait| !wait.is_zero())
            .min()
            .map_or_else(Action::await_change, Action::requeue)
    }
}

fn revision_of(pod: &Pod) -> Option<&String> {
    pod.labels().get(POD_LABEL)
}
