//! Every pod that ever was, as the API server told it: which application, which version, which hash.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;

use crate::run::cluster::NAMESPACE;

/// Labels that name a pod's revision.
const HASH_LABELS: [&str; 3] =
    ["pod-template-hash", "rollouts-pod-template-hash", "controller-revision-hash"];

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodRecord {
    /// Its name.
    pub name: String,
    /// Its label `app`.
    pub application: String,
    /// The tag of its image: the version of the template.
    pub version: String,
    /// Its revision's hash.
    pub hash: String,
}

/// The log; clones share it. Bounded by the scenario: an entry a pod.
#[derive(Debug, Clone, Default)]
pub struct PodLog {
    pods: Arc<Mutex<BTreeMap<String, PodRecord>>>,
}

impl PodLog {
    /// Watches the pods of the namespace for as long as the task is kept.
    pub fn start(&self, client: Client) -> tokio::task::JoinHandle<()> {
        let log = self.clone();
        tokio::spawn(async move {
            let api = Api::<Pod>::namespaced(client, NAMESPACE);
            let mut changes = pin!(watcher(api, watcher::Config::default()).default_backoff());
            while let Some(change) = changes.next().await {
                match change {
                    Ok(
                        watcher::Event::Apply(pod)
                        | watcher::Event::InitApply(pod)
                        | watcher::Event::Delete(pod),
                    ) => log.note(&pod),
                    Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
                    Err(error) => tracing::warn!(%error, "watch pods for the scenario's log"),
                }
            }
        })
    }

    fn note(&self, pod: &Pod) {
        let label = |name: &str| pod.labels().get(name).cloned();
        let image = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.containers.first()?.image.as_deref())
            .unwrap_or_default();
        let record = PodRecord {
            name: pod.name_any(),
            application: label("app").unwrap_or_default(),
            version: image.rsplit_once(':').map_or("", |(_, tag)| tag).to_owned(),
            hash: HASH_LABELS.iter().find_map(|name| label(name)).unwrap_or_default(),
        };
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        pods.insert(pod.uid().unwrap_or_default(), record);
    }

    /// All pods so far, by UID.
    pub fn all(&self) -> BTreeMap<String, PodRecord> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
