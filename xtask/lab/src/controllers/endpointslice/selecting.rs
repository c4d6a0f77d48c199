//! Which Services a pod's change concerns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};

/// The Services that select a pod, and those that did.
pub struct Selecting {
    services: Store<Service>,
    before: Mutex<HashMap<String, BTreeSet<String>>>,
}

impl Selecting {
    /// Looks the Services up in a store.
    pub fn new(services: Store<Service>) -> Self {
        Self { services, before: Mutex::default() }
    }

    /// The Services to look at when this pod has changed.
    pub fn services(&self, pod: &Pod) -> Vec<ObjectRef<Service>> {
        let namespace = pod.namespace().unwrap_or_default();
        let now: BTreeSet<String> = self
            .services
            .state()
            .iter()
            .filter(|service| {
                service.namespace().as_deref() == Some(&namespace) && selects(service, pod)
            })
            .map(|service| service.name_any())
            .collect();
        let key = format!("{namespace}/{}", pod.name_any());
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let last = pod.metadata.deletion_grace_period_seconds == Some(0);
        let old = if last || now.is_empty() {
            before.remove(&key)
        } else {
            before.insert(key, now.clone())
        };
        now.union(&old.unwrap_or_default())
            .map(|name| ObjectRef::new(name).within(&namespace))
            .collect()
    }
}

/// The Service's selector; none when it has none, or an empty one.
pub fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    service.spec.as_ref()?.selector.as_ref().filter(|selector| !selector.is_empty())
}

fn selects(service: &Service, pod: &Pod) -> bool {
    selector(service).is_some_and(|wanted| {
        wanted.iter().all(|(key, value)| pod.labels().get(key) == Some(value))
    })
}
