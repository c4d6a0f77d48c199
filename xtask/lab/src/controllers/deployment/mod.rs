//! The Deployment controller, after Kubernetes' own (`pkg/controller/deployment`): what it writes,
//! and in which order, is the same, since the agent is to find its way in exactly these traces.
//!
//! # Layout
//! - `rollout`: the Deployment with its `ReplicaSets`, and the writes on them
//! - `revision`: the new `ReplicaSet`, revisions and their annotations
//! - `rolling`, `recreate`, `scaling`: the strategies, and proportional scaling
//! - `bounds`: surge and unavailability
//! - `status`: counts and conditions

pub mod bounds;
mod recreate;
mod revision;
mod rolling;
mod rollout;
mod scaling;
mod status;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::pods;
use super::runner::{self, Reconciled};
use crate::api;
use rollout::Rollout;

/// The name under which it writes.
const USER: &str = "deployment-controller";

/// Runs the controller.
pub async fn run(server: String, shutdown: CancellationToken) -> anyhow::Result<()> {
    let client = api::client(&server, USER)?;
    let config = watcher::Config::default();
    let controller = Controller::new(Api::<Deployment>::all(client.clone()), config.clone())
        .owns(Api::<ReplicaSet>::all(client.clone()), config.clone())
        // Recreate waits for the last old pod to be gone.
        .watches(Api::<Pod>::all(client.clone()), config, |pod| of_leaving_pod(&pod));
    runner::run(USER, controller, client, shutdown, reconcile).await
}

/// The Deployment of a pod that is on its way out: its `ReplicaSet`'s name less the hash.
fn of_leaving_pod(pod: &Pod) -> Option<ObjectRef<Deployment>> {
    if pods::is_active(pod) {
        return None;
    }
    let owner = pods::controller_of(&pod.metadata).filter(|owner| owner.kind == "ReplicaSet")?;
    let hash = pod.labels().get(revision::HASH_LABEL)?;
    let name = owner.name.strip_suffix(hash.as_str())?.strip_suffix('-')?;
    Some(ObjectRef::new(name).within(&pod.namespace()?))
}

async fn reconcile(seen: Arc<Deployment>, client: Arc<Client>) -> Reconciled {
    let Some(mut rollout) = Rollout::read(&client, &seen).await? else {
        return Ok(Action::await_change());
    };
    if rollout.deployment.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let paused = rollout.spec().paused.unwrap_or(false);
    if rollout.sync_paused_condition(paused).await? {
        return Ok(Action::await_change());
    }
    if paused || scaling::is_scaling(&rollout) {
        revision::sync(&mut rollout, false).await?;
        scaling::scale(&mut rollout).await?;
        if paused {
            rollout.clean_up().await?;
        }
        rollout.sync_status().await?;
    } else if rollout.is_recreate() {
        recreate::step(&mut rollout).await?;
    } else {
        rolling::step(&mut rollout).await?;
    }
    // The deadline passes without any event.
    Ok(status::deadline_in(&rollout.deployment).map_or_else(Action::await_change, Action::requeue))
}
