//! Deployment, `StatefulSet`, `DaemonSet` or any other owner → [`WorkloadFacts`] and its selector.

use std::{marker::PhantomData, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, StatefulSet},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use kube::core::Selector;
use serde::Deserialize;
use serde_json::Value;

use super::{images, parsed, revision, template::template, text};
use crate::{
    cluster::object::Facts,
    model::{ObjectRef, StrategyFacts, WorkloadFacts, WorkloadStatus},
};

/// An owner of `ReplicaSet`s of a kind that is not built in, such as Argo's `Rollout`.
#[derive(Clone, Copy, Debug)]
pub enum Unknown {}

/// A workload with the selector of its pods; `K` is its API type, or [`Unknown`].
#[derive(Clone, Debug)]
pub struct Workload<K> {
    /// Its facts.
    pub facts: WorkloadFacts,
    /// Label selector of its pods and `ReplicaSet`s; `None` if it has none that can be used.
    pub selector: Option<Arc<str>>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Workload<K> {
    fn new(facts: WorkloadFacts, selector: LabelSelector, complaints: &mut Vec<String>) -> Self {
        let selector = Selector::try_from(selector)
            .inspect_err(|error| complaints.push(format!("spec.selector is left out: {error}")))
            .ok()
            .map(|selector| selector.to_string())
            .filter(|selector| !selector.is_empty())
            .map(Into::into);
        Self { facts, selector, kind: PhantomData }
    }
}

fn object(kind: &str, api_version: &str, metadata: &ObjectMeta) -> ObjectRef {
    ObjectRef {
        kind: kind.into(),
        api_version: api_version.into(),
        name: metadata.name.as_deref().unwrap_or_default().into(),
        uid: metadata.uid.as_deref().unwrap_or_default().into(),
    }
}

fn template_images(template: PodTemplateSpec) -> Vec<Arc<str>> {
    images(template.spec)
}

/// A strategy with its numbers worked out; `kind` is what the API takes an absent type for.
fn strategy_facts(kind: Option<&str>, surge: Option<i32>, unavailable: i32) -> StrategyFacts {
    let kind = kind.unwrap_or("RollingUpdate");
    let rolls = kind == "RollingUpdate";
    StrategyFacts {
        kind: kind.into(),
        max_surge: surge.filter(|_| rolls),
        max_unavailable: Some(unavailable).filter(|_| rolls),
    }
}

/// How many of `of` a number or a percentage means.
fn share(field: &str, value: &IntOrString, of: i32, up: bool, complaints: &mut Vec<String>) -> i32 {
    let percent = match value {
        IntOrString::Int(number) => return *number,
        IntOrString::String(text) => {
            let number = text.strip_suffix('%').unwrap_or(text);
            let Some(percent) = parsed::<i32>(field, number, complaints) else { return 0 };
            percent
        }
    };
    let product = i64::from(percent.max(0)) * i64::from(of.max(0));
    let rounded = if up { (product + 99) / 100 } else { product / 100 };
    i32::try_from(rounded).unwrap_or(i32::MAX)
}

impl Facts for Workload<Deployment> {
    const KIND: &'static str = "Deployment";

    fn trim(raw: Value, complaints: &mut Vec<String>) -> Result<Self, serde_json::Error> {
        let deployment: Deployment = serde_json::from_value(raw)?;
        let spec = deployment.spec.unwrap_or_default();
        let status = deployment.status.unwrap_or_default();
        let wanted = spec.replicas.unwrap_or(1);
        let strategy = spec.strategy.unwrap_or_default();
        let rolling = strategy.rolling_update.unwrap_or_default();
        let quarter = || IntOrString::String("25%".into());
        // Rounded as the controller does: the surge up, the unavailable down, and one unavailable
        // if both come to nothing (deploymentutil.ResolveFenceposts).
        let surge = rolling.max_surge.unwrap_or_else(quarter);
        let surge = share("maxSurge", &surge, wanted, true, complaints);
        let unavailable = rolling.max_unavailable.unwrap_or_else(quarter);
        let unavailable = share("maxUnavailable", &unavailable, wanted, false, complaints);
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
        let facts = WorkloadFacts {
            object: object("Deployment", "apps/v1", &deployment.metadata),
            generation: deployment.metadata.generation.unwrap_or(0),
            wanted,
            held: spec.paused.unwrap_or(false),
            outage_by_design: strategy.type_.as_deref() == Some("Recreate")
                || (wanted > 0 && unavailable >= wanted),
            template: template(spec.template.spec.as_ref()),
            strategy: Some(strategy_facts(strategy.type_.as_deref(), Some(surge), unavailable)),
            images: template_images(spec.template),
            status: WorkloadStatus {
                observed_generation: status.observed_generation.unwrap_or(0),
                replicas: status.replicas.unwrap_or(0),
                updated: status.updated_replicas.unwrap_or(0),
                available: status.available_replicas.unwrap_or(0),
                revision: revision(&deployment.metadata, complaints),
                ..WorkloadStatus::default()
            },
            namespace: text(deployment.metadata.namespace),
            resource_version: text(deployment.metadata.resource_version),
        };
        Ok(Self::new(facts, spec.selector, complaints))
    }
}

impl Facts for Workload<StatefulSet> {
    const KIND: &'static str = "StatefulSet";

    fn trim(raw: Value, complaints: &mut Vec<String>) -> Result<Self, serde_json::Error> {
        let set: StatefulSet = serde_json::from_value(raw)?;
        let spec = set.spec.unwrap_or_default();
        let status = set.status.unwrap_or_default();
        let wanted = spec.replicas.unwrap_or(1);
        let strategy = spec.update_strategy.unwrap_or_default();
        let rolling = strategy.rolling_update.unwrap_or_default();
        let unavailable = rolling
            .max_unavailable
            .map_or(1, |value| share("maxUnavailable", &value, wanted, false, complaints).max(1));
        let facts = WorkloadFacts {
            object: object("StatefulSet", "apps/v1", &set.metadata),
            generation: set.metadata.generation.unwrap_or(0),
            wanted,
            held: strategy.type_.as_deref() == Some("OnDelete"),
            outage_by_design: wanted > 0 && unavailable >= wanted,
            template: template(spec.template.spec.as_ref()),
            strategy: Some(strategy_facts(strategy.type_.as_deref(), None, unavailable)),
            images: template_images(spec.template),
            status: WorkloadStatus {
                observed_generation: status.observed_generation.unwrap_or(0),
                replicas: status.replicas,
                updated: status.updated_replicas.unwrap_or(0),
                available: status.available_replicas.unwrap_or(0),
                revision: None,
                current_revision: text(status.current_revision),
                update_revision: text(status.update_revision),
                partition: rolling.partition.unwrap_or(0),
            },
            namespace: text(set.metadata.namespace),
            resource_version: text(set.metadata.resource_version),
        };
        Ok(Self::new(facts, spec.selector, complaints))
    }
}

impl Facts for Workload<DaemonSet> {
    const KIND: &'static str = "DaemonSet";

    fn trim(raw: Value, complaints: &mut Vec<String>) -> Result<Self, serde_json::Error> {
        let set: DaemonSet = serde_json::from_value(raw)?;
        let spec = set.spec.unwrap_or_default();
        let status = set.status.unwrap_or_default();
        let wanted = status.desired_number_scheduled;
        let strategy = spec.update_strategy.unwrap_or_default();
        let rolling = strategy.rolling_update.unwrap_or_default();
        // Rounded up both, as the DaemonSet controller does; a surge forbids unavailability.
        let surge = rolling
            .max_surge
            .map_or(0, |value| share("maxSurge", &value, wanted, true, complaints));
        let unavailable = rolling
            .max_unavailable
            .map_or(1, |value| share("maxUnavailable", &value, wanted, true, complaints));
        let facts = WorkloadFacts {
            object: object("DaemonSet", "apps/v1", &set.metadata),
            generation: set.metadata.generation.unwrap_or(0),
            wanted,
            held: strategy.type_.as_deref() == Some("OnDelete"),
            outage_by_design: wanted > 0 && surge == 0 && unavailable >= wanted,
            template: template(spec.template.spec.as_ref()),
            strategy: Some(strategy_facts(strategy.type_.as_deref(), Some(surge), unavailable)),
            images: template_images(spec.template),
            status: WorkloadStatus {
                observed_generation: status.observed_generation.unwrap_or(0),
                replicas: status.current_number_scheduled,
                updated: status.updated_number_scheduled.unwrap_or(0),
                available: status.number_available.unwrap_or(0),
                ..WorkloadStatus::default()
            },
            namespace: text(set.metadata.namespace),
            resource_version: text(set.metadata.resource_version),
        };
        Ok(Self::new(facts, spec.selector, complaints))
    }
}

/// The shape that owners of `ReplicaSet`s share by convention.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Shape {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: ShapeSpec,
    status: ShapeStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ShapeSpec {
    replicas: Option<i32>,
    paused: bool,
    selector: LabelSelector,
    template: Option<PodTemplateSpec>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ShapeStatus {
    /// Argo writes it as text.
    observed_generation: Value,
    replicas: i32,
    updated_replicas: i32,
    available_replicas: i32,
    /// Argo's way to say that a step waits for somebody.
    pause_conditions: Vec<serde::de::IgnoredAny>,
}

impl Facts for Workload<Unknown> {
    const KIND: &'static str = "other workload";

    fn trim(raw: Value, complaints: &mut Vec<String>) -> Result<Self, serde_json::Error> {
        let shape: Shape = serde_json::from_value(raw)?;
        let observed = match &shape.status.observed_generation {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let generation = shape.metadata.generation.unwrap_or(0);
        let facts = WorkloadFacts {
            object: object(&shape.kind, &shape.api_version, &shape.metadata),
            generation,
            wanted: shape.spec.replicas.unwrap_or(1),
            held: shape.spec.paused || !shape.status.pause_conditions.is_empty(),
            outage_by_design: false,
            template: template(shape.spec.template.as_ref().and_then(|pods| pods.spec.as_ref())),
            strategy: None,
            images: shape.spec.template.map(template_images).unwrap_or_default(),
            status: WorkloadStatus {
                // A controller that reports none, or a hash (old Argo), is taken at its word.
                observed_generation: observed.unwrap_or(generation),
                replicas: shape.status.replicas,
                updated: shape.status.updated_replicas,
                available: shape.status.available_replicas,
                revision: revision(&shape.metadata, complaints),
                ..WorkloadStatus::default()
            },
            namespace: text(shape.metadata.namespace),
            resource_version: text(shape.metadata.resource_version),
        };
        Ok(Self::new(facts, shape.spec.selector, complaints))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::object::Object;

    fn deployment(replicas: i32, strategy: &Value) -> WorkloadFacts {
        let raw = json!({
            "metadata": {"namespace": "shop", "name": "api", "uid": "d", "generation": 2,
                         "annotations": {"deployment.kubernetes.io/revision": "2"}},
            "spec": {"replicas": replicas, "strategy": strategy,
                     "selector": {"matchLabels": {"app": "api"},
                                  "matchExpressions": [
                                      {"key": "tier", "operator": "In", "values": ["web"]}]},
                     "template": {"spec": {"containers": [{"name": "c", "image": "api:2"}]}}},
            "status": {"observedGeneration": 2, "updatedReplicas": 1},
        });
        let object = Object::<Workload<Deployment>>::from_value(raw);
        assert!(object.complaints.is_empty(), "{:?}", object.complaints);
        let workload = object.facts.unwrap();
        let selector = workload.selector.as_deref().unwrap();
        assert!(selector.contains("app=api") && selector.contains("tier in (web)"), "{selector}");
        workload.facts.clone()
    }

    #[test]
    fn a_strategy_that_may_take_every_replica_away_is_said_to_be() {
        let rolling = |surge: Value, unavailable: Value| {
            json!({"type": "RollingUpdate",
                   "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
        };
        for (replicas, strategy, outage) in [
            (3, json!({}), false),
            (1, json!({}), false),
            (3, json!({"type": "Recreate"}), true),
            (1, rolling(json!(0), json!(1)), true),
            (1, rolling(json!(0), json!("25%")), true),
            (4, rolling(json!(1), json!("100%")), true),
            (3, rolling(json!(0), json!(1)), false),
        ] {
            let facts = deployment(replicas, &strategy);
            assert_eq!(facts.outage_by_design, outage, "{replicas} replicas, {strategy}");
            assert_eq!(facts.status.revision, Some(2));
            assert_eq!(facts.images, ["api:2".into()]);
        }
    }

    #[test]
    fn an_argo_rollout_is_read_by_its_shape() {
        let object = Object::<Workload<Unknown>>::from_value(json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
            "metadata": {"namespace": "shop", "name": "web", "uid": "w", "generation": 4,
                         "annotations": {"rollout.argoproj.io/revision": "7"}},
            "spec": {"replicas": 5, "selector": {"matchLabels": {"app": "web"}},
                     "strategy": {"canary": {}}},
            "status": {"observedGeneration": "4", "updatedReplicas": 2, "replicas": 5,
                       "availableReplicas": 5, "pauseConditions": [{"reason": "CanaryPauseStep"}]},
        }));
        assert!(object.complaints.is_empty(), "{:?}", object.complaints);
        let workload = object.facts.unwrap();
        assert_eq!(&*workload.facts.object.kind, "Rollout");
        assert_eq!(workload.facts.status.observed_generation, 4);
        assert_eq!(workload.facts.status.revision, Some(7));
        assert!(workload.facts.held);
        assert_eq!(workload.selector.as_deref(), Some("app=web"));
    }

    #[test]
    fn a_stateful_set_of_one_replica_is_an_outage_by_design() {
        let object = Object::<Workload<StatefulSet>>::from_value(json!({
            "metadata": {"namespace": "shop", "name": "db", "uid": "s"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "db"}},
                     "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}},
            "status": {"replicas": 1, "currentRevision": "db-1", "updateRevision": "db-2"},
        }));
        let facts = &object.facts.unwrap().facts;
        assert!(facts.outage_by_design && !facts.held);
        assert_eq!(facts.status.partition, 2);
        assert_eq!(&*facts.status.update_revision, "db-2");
    }
}
