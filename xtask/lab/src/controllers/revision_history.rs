//! The `ControllerRevisions` by which `StatefulSets` and `DaemonSets` remember their templates.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use super::hash::template_hash;
use super::pods;
use super::runner::Failed;

/// The label of the pods that names their revision.
pub const POD_LABEL: &str = "controller-revision-hash";

/// One remembered template.
#[derive(Debug, Clone)]
pub struct Revision {
    /// The revision's name: `<owner>-<hash>`.
    pub name: String,
    /// The hash of the template.
    pub hash: String,
    /// The template.
    pub template: PodTemplateSpec,
    number: i64,
}

/// The remembered templates, the owner's present one last; it is remembered now if it was not, and
/// an older one that is present again (a rollback) gets the highest number.
pub async fn sync<K>(
    client: &Client,
    owner: &K,
    template: &PodTemplateSpec,
    hash_label: &str,
) -> Result<Vec<Revision>, Failed>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let api: Api<ControllerRevision> =
        Api::namespaced(client.clone(), &owner.namespace().unwrap_or_default());
    let hash = template_hash(template, None)?;
    let present = format!("{}-{hash}", owner.name_any());
    let found = api.list(&ListParams::default()).await?.items;
    let mut revisions: Vec<Revision> = Vec::new();
    for revision in found.into_iter().filter(|revision| pods::is_controlled_by(revision, owner)) {
        revisions.push(remembered(&revision, hash_label)?);
    }
    revisions.sort_by_key(|revision| revision.number);
    let highest = revisions.last().map_or(0, |revision| revision.number);
    if let Some(at) = revisions.iter().position(|revision| revision.name == present) {
        let mut revision = revisions.remove(at);
        if revision.number < highest {
            let patch = Patch::Merge(json!({ "revision": highest + 1 }));
            api.patch(&present, &PatchParams::default(), &patch).await?;
            revision.number = highest + 1;
        }
        revisions.push(revision);
        return Ok(revisions);
    }
    let mut labels = template.metadata.clone().unwrap_or_default().labels.unwrap_or_default();
    labels.insert(hash_label.to_owned(), hash.clone());
    let mut data = json!({ "spec": { "template": template } });
    data["spec"]["template"]["$patch"] = "replace".into();
    let created = ControllerRevision {
        metadata: ObjectMeta {
            name: Some(present.clone()),
            namespace: owner.namespace(),
            labels: Some(labels),
            owner_references: Some(vec![pods::owner_reference(owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision: highest + 1,
    };
    api.create(&PostParams::default(), &created).await?;
    revisions.push(Revision {
        name: present,
        hash,
        template: template.clone(),
        number: highest + 1,
    });
    Ok(revisions)
}

fn remembered(revision: &ControllerRevision, hash_label: &str) -> Result<Revision, Failed> {
    let data = revision.data.as_ref().map_or(&Value::Null, |data| &data.0);
    Ok(Revision {
        name: revision.name_any(),
        hash: revision.labels().get(hash_label).cloned().unwrap_or_default(),
        template: serde_json::from_value(data["spec"]["template"].clone())?,
        number: revision.revision,
    })
}
