//! `ReplicaSet` → [`ReplicaSetFacts`].

use k8s_openapi::api::apps::v1 as api;
use serde_json::Value;

use super::{controller, first_label, images, revision, template::template, text};
use crate::{cluster::object::Facts, model::ReplicaSetFacts};

impl Facts for ReplicaSetFacts {
    const KIND: &'static str = "ReplicaSet";

    fn trim(raw: Value, complaints: &mut Vec<String>) -> Result<Self, serde_json::Error> {
        let mut set: api::ReplicaSet = serde_json::from_value(raw)?;
        let spec = set.spec.unwrap_or_default();
        Ok(Self {
            owner: controller(&mut set.metadata),
            template_hash: first_label(
                &set.metadata,
                &["rollouts-pod-template-hash", "pod-template-hash"],
            ),
            revision: revision(&set.metadata, complaints),
            created: set.metadata.creation_timestamp.map(|time| time.0),
            namespace: text(set.metadata.namespace),
            name: text(set.metadata.name),
            uid: text(set.metadata.uid),
            resource_version: text(set.metadata.resource_version),
            wanted: spec.replicas.unwrap_or(1),
            replicas: set.status.map_or(0, |status| status.replicas),
            template: template(spec.template.as_ref().and_then(|pods| pods.spec.as_ref())),
            images: images(spec.template.and_then(|pods| pods.spec)),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::object::Object;

    #[test]
    fn a_set_of_any_owner_tells_its_revision() {
        for (annotation, value, expected, complaints) in [
            ("deployment.kubernetes.io/revision", "3", Some(3), 0),
            ("rollout.argoproj.io/revision", "4", Some(4), 0),
            ("example.org/revision", "5", Some(5), 0),
            ("deployment.kubernetes.io/revision", "three", None, 1),
            ("example.org/other", "6", None, 0),
        ] {
            let set = Object::<ReplicaSetFacts>::from_value(json!({
                "metadata": {"namespace": "shop", "name": "api-1", "annotations": {annotation: value}},
                "spec": {"replicas": 0},
            }));
            assert_eq!(set.facts.unwrap().revision, expected, "{annotation}: {value}");
            assert_eq!(set.complaints.len(), complaints, "{annotation}: {value}");
        }
    }
}
