//! An Argo `Rollout`: a kind of its own that owns `ReplicaSets`. The lab has no such controller, so
//! this plays it: a new `ReplicaSet` grows a pod at a time, and the old one shrinks.

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::API;
use crate::run::cluster::NAMESPACE;
use crate::scenario::objects;
use crate::scenario::stage::{Action, Stage};

const KIND: &str = "Rollout";
const API_VERSION: &str = "argoproj.io/v1alpha1";
const REVISION: &str = "rollout.argoproj.io/revision";
const HASH: &str = "rollouts-pod-template-hash";
const REPLICAS: i32 = 3;
/// The two revisions: version and hash.
const OLD: (&str, &str) = ("1", "5f7d9c6b8d");
const NEW: (&str, &str) = ("2", "7c8b6d5f9c");

/// The Rollout and its first `ReplicaSet`.
pub async fn deploy(stage: &Stage<'_>) -> Result<()> {
    let object = json!({
        "metadata": {"name": API, "namespace": NAMESPACE, "annotations": {REVISION: "1"}},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": {"app": API}},
            "strategy": {"canary": {}},
            "template": objects::template(stage.setup, API, OLD.0),
        },
    });
    let rollout = stage.deploy(KIND, API_VERSION, object, 3).await?;
    replica_set(stage, &rollout, OLD, REPLICAS).await?;
    status(stage, &rollout, OLD.1, REPLICAS, REPLICAS, REPLICAS).await
}

/// From the first to the second revision.
pub async fn roll_out(stage: &Stage<'_>) -> Result<()> {
    let template = objects::template(stage.setup, API, NEW.0);
    let patch = json!({
        "metadata": {"annotations": {REVISION: "2"}},
        "spec": {"template": template},
    });
    stage.note(Action::RolledOut { application: API.to_owned(), version: NEW.0.to_owned() });
    let rollout = stage.patch(KIND, API_VERSION, API, &patch).await?;
    replica_set(stage, &rollout, NEW, 1).await?;
    for updated in 1..=REPLICAS {
        status(stage, &rollout, NEW.1, REPLICAS + 1, updated, REPLICAS).await?;
        stage.ready(API, NEW.0, usize::try_from(updated)?).await?;
        scale(stage, OLD, REPLICAS - updated).await?;
        if updated < REPLICAS {
            scale(stage, NEW, updated + 1).await?;
        }
    }
    stage.settled(API, NEW.0, usize::try_from(REPLICAS)?).await?;
    status(stage, &rollout, NEW.1, REPLICAS, REPLICAS, REPLICAS).await
}

async fn replica_set(
    stage: &Stage<'_>,
    rollout: &DynamicObject,
    (version, hash): (&str, &str),
    replicas: i32,
) -> Result<()> {
    let mut template = objects::template(stage.setup, API, version);
    template["metadata"]["labels"][HASH] = json!(hash);
    let object = json!({
        "kind": "ReplicaSet", "apiVersion": "apps/v1",
        "metadata": {
            "name": format!("{API}-{hash}"),
            "namespace": NAMESPACE,
            "labels": {"app": API, HASH: hash},
            "annotations": {REVISION: version},
            "ownerReferences": [{
                "apiVersion": API_VERSION, "kind": KIND, "name": API,
                "uid": rollout.uid().context("the Rollout has no UID")?,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": API, HASH: hash}},
            "template": template,
        },
    });
    stage.create("ReplicaSet", "apps/v1", object).await.map(drop)
}

async fn scale(stage: &Stage<'_>, (_, hash): (&str, &str), replicas: i32) -> Result<()> {
    let patch = json!({"spec": {"replicas": replicas}});
    stage.patch("ReplicaSet", "apps/v1", &format!("{API}-{hash}"), &patch).await.map(drop)
}

async fn status(
    stage: &Stage<'_>,
    rollout: &DynamicObject,
    hash: &str,
    replicas: i32,
    updated: i32,
    available: i32,
) -> Result<()> {
    let generation = rollout.metadata.generation.unwrap_or(1);
    let status: Value = json!({"status": {
        "observedGeneration": generation.to_string(),
        "currentPodHash": hash,
        "replicas": replicas,
        "updatedReplicas": updated,
        "availableReplicas": available,
        "readyReplicas": available,
    }});
    stage.patch(KIND, API_VERSION, API, &status).await.map(drop)
}
