//! The workload: a Deployment and its Service, and what its rollout really was.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Pod, Service};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::cluster::NAMESPACE;
use crate::cli::{Dial, RunArgs, ServiceTrait};
use crate::net::Family;
use crate::setup::Setup;

/// The application: name of the Deployment and of the Service.
pub const APPLICATION: &str = "api";
/// The Service's port.
pub const SERVICE_PORT: u16 = 80;
/// Its port on every node, where it has one.
pub const NODE_PORT: u16 = 30_080;
/// Port that the pods listen on.
pub const POD_PORT: u16 = 8080;
/// Where a Deployment and its `ReplicaSets` have their revision.
const REVISION: &str = "deployment.kubernetes.io/revision";
const TEMPLATE_HASH: &str = "pod-template-hash";
/// A rollout of a few pods takes some seconds; this long means that it is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// Between two looks at the pods.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The Deployment under test.
pub struct Workload {
    client: Client,
    setup: Setup,
    replicas: i32,
    addresses: Vec<IpAddr>,
    special: Special,
}

/// What is special about the Service.
#[derive(Debug, Clone, Default)]
pub struct Special {
    /// It has a port on every node.
    pub node_port: bool,
    /// The rest.
    pub traits: Vec<ServiceTrait>,
}

/// What the rollout really was.
#[derive(Debug, Clone, Serialize)]
pub struct RolloutTruth {
    /// The workload's namespace.
    pub namespace: String,
    /// The workload's kind.
    pub kind: String,
    /// The workload's name.
    pub name: String,
    /// Where it came from.
    pub from: RevisionTruth,
    /// Where it led.
    pub to: RevisionTruth,
    /// When the template was changed.
    pub started: Timestamp,
    /// When `rollout status` would have returned.
    pub completed: Timestamp,
    /// The time between the two.
    pub seconds: f64,
}

/// A revision.
#[derive(Debug, Clone, Serialize)]
pub struct RevisionTruth {
    /// Its number.
    pub revision: String,
    /// Its template's hash.
    pub hash: String,
}

impl Workload {
    /// The workload in a setup, behind cluster addresses.
    pub fn new(client: Client, args: &RunArgs) -> Self {
        let special =
            Special { node_port: args.dial == Dial::NodePort, traits: args.service.clone() };
        let addresses = args.address_plan().service();
        Self { client, setup: args.setup, replicas: args.replicas, addresses, special }
    }

    /// Creates the Service and the Deployment.
    pub async fn create(&self) -> Result<()> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut service = service(APPLICATION, APPLICATION, &self.addresses);
        self.special.apply(&mut service["spec"]);
        services
            .create(&PostParams::default(), &serde_json::from_value(service)?)
            .await
            .with_context(|| format!("create the Service {NAMESPACE}/{APPLICATION}"))?;
        let deployment = self.setup.deployment(NAMESPACE, APPLICATION, self.replicas);
        self.deployments()
            .create(&PostParams::default(), &serde_json::from_value(deployment)?)
            .await
            .with_context(|| format!("create the Deployment {NAMESPACE}/{APPLICATION}"))?;
        Ok(())
    }

    /// Changes the template to another version, whatever it has become: a rollout.
    pub async fn roll_out(&self, version: &str) -> Result<()> {
        self.patch_container(&Setup::version(APPLICATION, version))
            .await
            .context("change the pod template")
    }

    /// Another version of the application, one that drains.
    pub async fn drain(&self) -> Result<()> {
        self.patch_container(&Setup::drains(APPLICATION)).await.context("let the application drain")
    }

    async fn patch_container(&self, container: &Value) -> Result<()> {
        let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        self.patch_strategically(&patch).await
    }

    /// Patches the Deployment as `kubectl patch` does.
    pub async fn patch_strategically(&self, patch: &Value) -> Result<()> {
        self.deployments()
            .patch(APPLICATION, &PatchParams::default(), &Patch::Strategic(patch))
            .await?;
        Ok(())
    }

    /// Waits until no pod is there but the replicas of the last revision.
    pub async fn old_pods_gone(&self) -> Result<()> {
        let deadline = Instant::now() + STUCK_AFTER;
        let selector = ListParams::default().labels(&format!("app={APPLICATION}"));
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        loop {
            let count = pods.list(&selector).await.context("list the workload's pods")?.items.len();
            if i32::try_from(count).ok() == Some(self.replicas) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "old pods are still there after {STUCK_AFTER:?}");
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until `kubectl rollout status` would return.
    pub async fn completed(&self) -> Result<()> {
        let complete =
            await_condition(self.deployments(), APPLICATION, |found: Option<&Deployment>| {
                found.is_some_and(is_complete)
            });
        match timeout(STUCK_AFTER, complete).await {
            Ok(end) => end.map(|_| ()).context("watch the Deployment"),
            Err(_) => bail!(
                "the rollout of {NAMESPACE}/{APPLICATION} is not complete after {STUCK_AFTER:?}: see journal.jsonl and pods/"
            ),
        }
    }

    /// The addresses and ports of the pods that exist now.
    pub async fn backends(&self) -> Result<Vec<SocketAddr>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let selector = ListParams::default().labels(&format!("app={APPLICATION}"));
        let pods = pods.list(&selector).await.context("list the workload's pods")?;
        let mut backends = Vec::new();
        for pod in &pods {
            let found = pod_backends(pod)?;
            ensure!(!found.is_empty(), "the pod {} has no address yet", pod.name_any());
            backends.extend(found);
        }
        Ok(backends)
    }

    /// What the rollout from the first to the latest revision was.
    pub async fn truth(&self, started: Timestamp, completed: Timestamp) -> Result<RolloutTruth> {
        let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), NAMESPACE);
        let sets = sets.list(&ListParams::default()).await.context("list the ReplicaSets")?;
        let mut revisions: Vec<(u64, RevisionTruth)> = Vec::new();
        for set in &sets {
            let revision = set
                .annotations()
                .get(REVISION)
                .with_context(|| format!("the ReplicaSet {} has no revision", set.name_any()))?;
            let hash = set
                .labels()
                .get(TEMPLATE_HASH)
                .with_context(|| format!("the ReplicaSet {} has no hash", set.name_any()))?;
            let number = revision.parse().context("read a ReplicaSet's revision")?;
            let truth = RevisionTruth { revision: revision.clone(), hash: hash.clone() };
            revisions.push((number, truth));
        }
        revisions.sort_by_key(|(number, _)| *number);
        let [(_, from), .., (_, to)] = revisions.as_slice() else {
            bail!("the rollout made no second ReplicaSet")
        };
        Ok(RolloutTruth {
            namespace: NAMESPACE.to_owned(),
            kind: "Deployment".to_owned(),
            name: APPLICATION.to_owned(),
            from: from.clone(),
            to: to.clone(),
            started,
            completed,
            seconds: completed.duration_since(started).as_secs_f64(),
        })
    }

    /// The Kubernetes Events on the Deployment, as `kubectl describe` finds them.
    pub async fn events(&self) -> Result<Vec<Event>> {
        let deployment = self.deployments().get(APPLICATION).await.context("get the Deployment")?;
        let events: Api<Event> = Api::namespaced(self.client.clone(), NAMESPACE);
        let on = [
            ("kind", "Deployment"),
            ("name", APPLICATION),
            ("namespace", NAMESPACE),
            ("uid", deployment.metadata.uid.as_deref().unwrap_or_default()),
        ];
        let on = on.map(|(field, value)| format!("involvedObject.{field}={value}")).join(",");
        let found = events.list(&ListParams::default().fields(&on)).await;
        Ok(found.context("list the Events on the Deployment")?.items)
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }
}

impl Special {
    fn apply(&self, spec: &mut Value) {
        if self.node_port {
            spec["type"] = json!("NodePort");
            spec["ports"][0]["nodePort"] = json!(NODE_PORT);
        }
        for special in &self.traits {
            match special {
                ServiceTrait::ExternalLocal => spec["externalTrafficPolicy"] = json!("Local"),
                ServiceTrait::Affinity => spec["sessionAffinity"] = json!("ClientIP"),
                ServiceTrait::Headless => {
                    spec["clusterIP"] = json!("None");
                    spec["clusterIPs"] = json!(["None"]);
                }
                ServiceTrait::PublishNotReady => spec["publishNotReadyAddresses"] = json!(true),
            }
        }
    }
}

/// A Service for the pods of an application, with a cluster address of each family.
pub fn service(name: &str, application: &str, addresses: &[IpAddr]) -> Value {
    let families: Vec<&str> = addresses.iter().map(|a| Family::of(*a).name()).collect();
    let policy = if families.len() > 1 { "RequireDualStack" } else { "SingleStack" };
    json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": addresses.first(),
            "clusterIPs": addresses,
            "ipFamilies": families,
            "ipFamilyPolicy": policy,
            "selector": {"app": application},
            "ports": [{
                "name": "http", "port": SERVICE_PORT, "targetPort": POD_PORT, "protocol": "TCP",
            }],
        },
    })
}

/// Where a pod is to be reached, in each family.
pub fn pod_backends(pod: &Pod) -> Result<Vec<SocketAddr>> {
    let addresses = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
    addresses
        .map(|address| {
            let address = address.ip.parse().context("read a pod's address")?;
            Ok(SocketAddr::new(address, POD_PORT))
        })
        .collect()
}

/// What `kubectl rollout status` waits for.
fn is_complete(deployment: &Deployment) -> bool {
    let (Some(spec), Some(status)) = (&deployment.spec, &deployment.status) else {
        return false;
    };
    let updated = status.updated_replicas.unwrap_or(0);
    status.observed_generation >= deployment.metadata.generation
        && updated >= spec.replicas.unwrap_or(1)
        && status.replicas.unwrap_or(0) <= updated
        && status.available_replicas.unwrap_or(0) >= updated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_says_its_families_as_its_addresses_are() {
        let spec = |addresses: &[&str]| {
            let parsed: Vec<IpAddr> =
                addresses.iter().map(|a| a.parse().expect("an address")).collect();
            service("api", "api", &parsed)["spec"].clone()
        };
        let single = spec(&["fd00:10:96::50"]);
        assert_eq!(single["ipFamilies"], json!(["IPv6"]));
        assert_eq!(single["ipFamilyPolicy"], "SingleStack");
        let dual = spec(&["10.96.0.80", "fd00:10:96::50"]);
        assert_eq!(dual["ipFamilies"], json!(["IPv4", "IPv6"]));
        assert_eq!(dual["ipFamilyPolicy"], "RequireDualStack");
        assert_eq!(dual["clusterIP"], "10.96.0.80");
    }
}
