//! The running cluster as the acts use it, and the log of what they did.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::api;
use crate::controllers::is_pod_ready;
use crate::net::AddressPlan;
use crate::run::cluster::{Cluster, NAMESPACE};
use crate::run::workload::{self, SERVICE_PORT};
use crate::setup::Setup;

/// Number of a Service that no client dials: beyond those that are.
const UNDIALLED: u8 = 9;
/// What is waited for takes some seconds; this long means that it is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Something that an act did, beside removing pods (which the API server logs with the user).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// The application's template was changed to a version.
    RolledOut {
        /// The application.
        application: String,
        /// The version.
        version: String,
    },
    /// The application's count was changed.
    Scaled {
        /// The application.
        application: String,
        /// The new count.
        replicas: i32,
    },
    /// A node was cut off.
    NodeLost {
        /// Its name.
        node: String,
    },
    /// The agent of a node was killed.
    AgentKilled {
        /// The node.
        node: String,
    },
    /// Another agent of the node is ready.
    AgentReady {
        /// The node.
        node: String,
    },
    /// A ready pod refuses its clients from now on.
    MadeBad {
        /// Its name.
        pod: String,
    },
}

/// A Service that clients dial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Served {
    /// Its name.
    pub service: String,
    /// The application behind it.
    pub application: String,
    /// Its addresses and port.
    pub addresses: Vec<SocketAddr>,
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deployed {
    /// The application, which is the workload's name as well.
    pub application: String,
    /// Its kind.
    pub kind: String,
    /// Its API version.
    pub api_version: String,
    /// How many pods it starts with.
    pub pods: usize,
}

/// The cluster, and what was done to it.
pub struct Stage<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// How pods begin and end.
    pub setup: Setup,
    plan: AddressPlan,
    actions: Mutex<Vec<(Timestamp, Action)>>,
    served: Mutex<Vec<Served>>,
    deployed: Mutex<BTreeMap<String, Deployed>>,
}

impl<'a> Stage<'a> {
    /// A stage on which nothing was done yet.
    pub fn new(cluster: &'a Cluster, setup: Setup, plan: AddressPlan) -> Self {
        Self {
            cluster,
            setup,
            plan,
            actions: Mutex::default(),
            served: Mutex::default(),
            deployed: Mutex::default(),
        }
    }

    /// A client under a name of its own: the API server logs who removed a pod.
    pub fn user(&self, name: &str) -> Result<Client> {
        api::client(&self.cluster.server, name)
    }

    /// Notes an action that is about to be done.
    pub fn note(&self, action: Action) {
        self.cluster.journal.phase(&format!("{action:?}"));
        lock(&self.actions).push((Timestamp::now(), action));
    }

    /// All actions so far.
    pub fn actions(&self) -> Vec<(Timestamp, Action)> {
        lock(&self.actions).clone()
    }

    /// The Services so far.
    pub fn served(&self) -> Vec<Served> {
        lock(&self.served).clone()
    }

    /// The workloads so far.
    pub fn deployed(&self) -> BTreeMap<String, Deployed> {
        lock(&self.deployed).clone()
    }

    /// Creates a Service for an application's pods.
    pub async fn serve(&self, service: &str, application: &str) -> Result<()> {
        let number = u8::try_from(lock(&self.served).len()).context("too many Services")?;
        let addresses = self.plan.further_service(number);
        let object = workload::service(service, application, &addresses);
        Api::<Service>::namespaced(self.cluster.client.clone(), NAMESPACE)
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await
            .with_context(|| format!("create the Service {NAMESPACE}/{service}"))?;
        lock(&self.served).push(Served {
            service: service.to_owned(),
            application: application.to_owned(),
            addresses: addresses.iter().map(|a| SocketAddr::new(*a, SERVICE_PORT)).collect(),
        });
        Ok(())
    }

    /// Creates a Service for an application's pods that no client dials.
    pub async fn serve_others(&self, application: &str) -> Result<()> {
        let addresses = self.plan.further_service(UNDIALLED);
        let object = workload::service(application, application, &addresses);
        self.create("Service", "v1", object).await.map(drop)
    }

    /// Creates a workload that is named like its application.
    pub async fn deploy(
        &self,
        kind: &str,
        api_version: &str,
        mut object: Value,
        pods: usize,
    ) -> Result<DynamicObject> {
        object["kind"] = json!(kind);
        object["apiVersion"] = json!(api_version);
        let application =
            object["metadata"]["name"].as_str().context("a workload has a name")?.to_owned();
        let created = self.create(kind, api_version, object).await?;
        lock(&self.deployed).insert(
            application.clone(),
            Deployed {
                application,
                kind: kind.to_owned(),
                api_version: api_version.to_owned(),
                pods,
            },
        );
        Ok(created)
    }

    /// Creates any object of the namespace.
    pub async fn create(
        &self,
        kind: &str,
        api_version: &str,
        object: Value,
    ) -> Result<DynamicObject> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.objects(kind, api_version)
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await
            .with_context(|| format!("create the {kind} {NAMESPACE}/{name}"))
    }

    /// Patches any object of the namespace, or its status.
    pub async fn patch(
        &self,
        kind: &str,
        api_version: &str,
        name: &str,
        patch: &Value,
    ) -> Result<DynamicObject> {
        let api = self.objects(kind, api_version);
        let (parameters, merge) = (PatchParams::default(), Patch::Merge(patch));
        let patched = if patch.get("status").is_some() {
            api.patch_status(name, &parameters, &merge).await
        } else {
            api.patch(name, &parameters, &merge).await
        };
        patched.with_context(|| format!("change the {kind} {NAMESPACE}/{name}"))
    }

    fn objects(&self, kind: &str, api_version: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk_with_plural(
            &kube::core::GroupVersionKind::gvk(group, version, kind),
            &format!("{}s", kind.to_lowercase()),
        );
        Api::namespaced_with(self.cluster.client.clone(), NAMESPACE, &resource)
    }

    /// Changes a workload's template to a version.
    pub async fn roll_out(&self, application: &str, version: &str) -> Result<()> {
        let containers = self.setup.containers(application, version);
        let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        let workload = self.workload(application)?;
        self.note(Action::RolledOut {
            application: application.to_owned(),
            version: version.to_owned(),
        });
        self.patch(&workload.kind, &workload.api_version, application, &patch).await?;
        Ok(())
    }

    /// Changes a workload's count.
    pub async fn scale(&self, application: &str, replicas: i32) -> Result<()> {
        let workload = self.workload(application)?;
        self.note(Action::Scaled { application: application.to_owned(), replicas });
        let patch = json!({"spec": {"replicas": replicas}});
        self.patch(&workload.kind, &workload.api_version, application, &patch).await?;
        Ok(())
    }

    fn workload(&self, application: &str) -> Result<Deployed> {
        let deployed = lock(&self.deployed).get(application).cloned();
        deployed.with_context(|| format!("{application} was not deployed"))
    }

    /// Waits until an application has exactly so many pods, all of a version and ready.
    pub async fn settled(&self, application: &str, version: &str, count: usize) -> Result<()> {
        let what = format!("{application} has {count} ready pods of version {version} only");
        self.pods_until(application, &what, |pods| {
            pods.len() == count && ready(pods, version).count() == count
        })
        .await
        .map(drop)
    }

    /// Waits until at least so many pods of a version are ready, and returns these.
    pub async fn ready(&self, application: &str, version: &str, count: usize) -> Result<Vec<Pod>> {
        let what = format!("{application} has {count} ready pods of version {version}");
        let pods = self
            .pods_until(application, &what, |pods| ready(pods, version).count() >= count)
            .await?;
        Ok(ready(&pods, version).cloned().collect())
    }

    async fn pods_until(
        &self,
        application: &str,
        what: &str,
        enough: impl Fn(&[Pod]) -> bool,
    ) -> Result<Vec<Pod>> {
        let api = Api::<Pod>::namespaced(self.cluster.client.clone(), NAMESPACE);
        let config = watcher::Config::default().labels(&format!("app={application}"));
        let waited = async {
            let mut changes = pin!(watcher(api, config).default_backoff());
            let (mut pods, mut listed) = (BTreeMap::new(), false);
            while let Some(change) = changes.next().await {
                match change.context("watch pods")? {
                    watcher::Event::Init => pods.clear(),
                    watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => {
                        pods.insert(pod.name_any(), pod);
                    }
                    watcher::Event::Delete(pod) => {
                        pods.remove(&pod.name_any());
                    }
                    watcher::Event::InitDone => listed = true,
                }
                let now: Vec<Pod> = pods.values().cloned().collect();
                if listed && enough(&now) {
                    return Ok(now);
                }
            }
            bail!("the watch of pods ended")
        };
        timeout(STUCK_AFTER, waited)
            .await
            .with_context(|| format!("it is not so after {STUCK_AFTER:?} that {what}"))?
    }
}

/// The pods of a version that are ready and do not leave.
fn ready<'p>(pods: &'p [Pod], version: &str) -> impl Iterator<Item = &'p Pod> {
    let tag = format!(":{version}");
    pods.iter().filter(move |pod| {
        let image = pod.spec.as_ref().and_then(|spec| spec.containers.first()?.image.as_deref());
        image.is_some_and(|image| image.ends_with(&tag))
            && pod.metadata.deletion_timestamp.is_none()
            && is_pod_ready(pod)
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
