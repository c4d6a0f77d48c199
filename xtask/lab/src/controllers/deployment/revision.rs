//! The `ReplicaSet` of the present template: found, renumbered, or made.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::rolling;
use super::rollout::Rollout;
use super::status;
use crate::controllers::hash::template_hash;
use crate::controllers::pods;
use crate::controllers::runner::Failed;

/// The label by which the pods of different templates are told apart.
pub const HASH_LABEL: &str = "pod-template-hash";
/// The number of a revision, on the Deployment and on each `ReplicaSet`.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// The numbers that a `ReplicaSet` had before a rollback renumbered it.
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotations of the Deployment that its `ReplicaSets` do not take over.
const NOT_COPIED: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    super::rollout::DESIRED,
    super::rollout::MAX,
    "deprecated.deployment.rollback.to",
];

/// The revision number that annotations tell; 0 when none.
pub fn number(annotations: &BTreeMap<String, String>) -> i64 {
    annotations.get(REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    let metadata = template.metadata.get_or_insert_default();
    if let Some(labels) = &mut metadata.labels {
        labels.remove(HASH_LABEL);
    }
    metadata.labels = metadata.labels.take().filter(|labels| !labels.is_empty());
    template
}

/// Which `ReplicaSet` has the Deployment's template; the oldest, should there be several.
pub fn position_of_new(deployment: &Deployment, sets: &[ReplicaSet]) -> Option<usize> {
    let wanted = without_hash(&deployment.spec.as_ref()?.template);
    sets.iter().position(|set| {
        set.spec
            .as_ref()
            .and_then(|spec| spec.template.as_ref())
            .is_some_and(|has| without_hash(has) == wanted)
    })
}

/// Sees to it that the new `ReplicaSet` exists (if it may be made) and that the revision numbers
/// are right.
pub async fn sync(rollout: &mut Rollout, create: bool) -> Result<(), Failed> {
    let revision = rollout.old.iter().map(|set| number(set.annotations())).max().unwrap_or(0) + 1;
    match rollout.new.clone() {
        Some(found) => adopt(rollout, found, revision).await,
        None if create => make(rollout, revision).await,
        None => Ok(()),
    }
}

/// The `ReplicaSet` is there, perhaps from an earlier time: then a rollback gives it the highest
/// number.
async fn adopt(rollout: &mut Rollout, found: ReplicaSet, revision: i64) -> Result<(), Failed> {
    let mut annotations = copied(rollout, found.annotations());
    renumber(&mut annotations, revision);
    let min_ready = rollout.spec().min_ready_seconds;
    let min_ready_differs =
        found.spec.as_ref().and_then(|spec| spec.min_ready_seconds) != min_ready;
    if annotations != *found.annotations() || min_ready_differs {
        let patch = Patch::Merge(json!({
            "metadata": { "annotations": annotations }, "spec": { "minReadySeconds": min_ready },
        }));
        rollout.new =
            Some(rollout.sets.patch(&found.name_any(), &PatchParams::default(), &patch).await?);
        return Ok(());
    }
    let mut updated = rollout.deployment.clone();
    let number = found.annotations().get(REVISION).cloned().unwrap_or_default();
    let mut news =
        updated.annotations_mut().insert(REVISION.into(), number.clone()) != Some(number);
    let known = status::condition(updated.status.as_ref(), status::PROGRESSING).is_some();
    if !known && rollout.spec().progress_deadline_seconds.is_some() {
        let message = format!("Found new replica set \"{}\"", found.name_any());
        status::set_condition(
            updated.status.get_or_insert_default(),
            status::new_condition(status::PROGRESSING, "True", "FoundNewReplicaSet", message),
        );
        news = true;
    }
    if news { rollout.write_deployment_status(&updated).await } else { Ok(()) }
}

async fn make(rollout: &mut Rollout, revision: i64) -> Result<(), Failed> {
    let spec = rollout.spec().clone();
    let collisions = rollout.deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = template_hash(&spec.template, collisions)?;
    let mut template = spec.template;
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH_LABEL.into(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector;
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.into(), hash.clone());
    let mut annotations = copied(rollout, &BTreeMap::new());
    renumber(&mut annotations, revision);
    annotations.extend(rollout.size_annotations());
    let name = format!("{}-{hash}", rollout.deployment.name_any());
    let set = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: rollout.deployment.namespace(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![pods::owner_reference(&rollout.deployment)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            min_ready_seconds: spec.min_ready_seconds,
            replicas: Some(rolling::replicas_of_new(rollout, 0)),
            selector,
            template: Some(template),
        }),
        status: None,
    };
    let mut updated = rollout.deployment.clone();
    match rollout.sets.create(&PostParams::default(), &set).await {
        Ok(created) => rollout.new = Some(created),
        Err(kube::Error::Api(refused)) if refused.is_already_exists() => {
            // Another template has this hash: with the count as salt the next turn gets another.
            let status = updated.status.get_or_insert_default();
            status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
            rollout.write_deployment_status(&updated).await?;
            return Err(Failed::because(format!(
                "the template hash {hash} is taken; hashing again"
            )));
        }
        Err(error) => return Err(error.into()),
    }
    updated.annotations_mut().insert(REVISION.into(), revision.to_string());
    if spec.progress_deadline_seconds.is_some() {
        let message = format!("Created new replica set \"{name}\"");
        status::set_condition(
            updated.status.get_or_insert_default(),
            status::new_condition(status::PROGRESSING, "True", "NewReplicaSetCreated", message),
        );
    }
    rollout.write_deployment_status(&updated).await
}

/// A `ReplicaSet`'s annotations with those of its Deployment.
fn copied(rollout: &Rollout, own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut annotations = own.clone();
    let taken = rollout
        .deployment
        .annotations()
        .iter()
        .filter(|(key, _)| !NOT_COPIED.contains(&key.as_str()));
    annotations.extend(taken.map(|(key, value)| (key.clone(), value.clone())));
    annotations
}

/// Gives the highest number; an older one goes into the history.
fn renumber(annotations: &mut BTreeMap<String, String>, revision: i64) {
    let before = annotations.get(REVISION).cloned();
    if number(annotations) >= revision {
        return;
    }
    annotations.insert(REVISION.into(), revision.to_string());
    if let Some(before) = before {
        annotations
            .entry(HISTORY.into())
            .and_modify(|history| {
                history.push(',');
                history.push_str(&before);
            })
            .or_insert(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_gives_the_highest_number_and_remembers_the_old_ones() {
        let mut annotations = BTreeMap::from([(REVISION.to_owned(), "1".to_owned())]);
        renumber(&mut annotations, 3);
        renumber(&mut annotations, 5);
        assert_eq!(annotations[REVISION], "5");
        assert_eq!(annotations[HISTORY], "1,3");
        renumber(&mut annotations, 4);
        assert_eq!(annotations[REVISION], "5");
    }
}
