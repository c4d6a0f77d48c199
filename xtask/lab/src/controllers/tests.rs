//! The controllers against a real API server over TCP, with a kubelet that only marks pods.

mod kubelet;
mod rollouts;
mod slices;

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::api;

/// Far longer than anything here takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A control plane with two nodes.
struct Cluster {
    server: api::Handle,
    client: Client,
    _controllers: tokio::task::JoinSet<anyhow::Result<()>>,
    _stop: DropGuard,
}

impl Cluster {
    async fn start() -> anyhow::Result<Self> {
        let server = api::start(TcpListener::bind("127.0.0.1:0").await?, api::Options::default());
        let stop = CancellationToken::new();
        let controllers = super::start(&server.url(), stop.clone());
        let client = api::client(&server.url(), "test")?;
        for name in ["n1", "n2"] {
            let node: Node = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
            Api::all(client.clone()).create(&PostParams::default(), &node).await?;
        }
        Ok(Self { server, client, _controllers: controllers, _stop: stop.drop_guard() })
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "shop")
    }

    async fn create<K>(&self, object: Value) -> anyhow::Result<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
        K: serde::de::DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
    {
        Ok(self.api().create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    /// Waits until the object is as it should be; an error after [`PATIENCE`].
    async fn until<K>(&self, name: &str, wanted: impl Fn(&K) -> bool) -> anyhow::Result<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
        K: serde::de::DeserializeOwned + Clone + std::fmt::Debug,
    {
        let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
        let mut events = self.api::<K>().watch(&parameters, "0").await?.boxed();
        let found = async {
            while let Some(event) = events.try_next().await? {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event
                    && wanted(&object)
                {
                    return Ok(object);
                }
            }
            anyhow::bail!("the watch of {name} ended")
        };
        tokio::time::timeout(PATIENCE, found)
            .await
            .map_err(|_| anyhow::anyhow!("{name} did not come to be as wanted"))?
    }
}

/// A Deployment named `api`, its version told by an environment variable.
fn deployment(replicas: i32, version: &str) -> Value {
    json!({
        "metadata": { "name": "api" },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": "api" } },
            "template": template(version),
        },
    })
}

fn template(version: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": "api" } },
        "spec": { "containers": [{
            "name": "app", "image": "registry.example.com/api:1.4.2",
            "env": [{ "name": "VERSION", "value": version }],
            "ports": [{ "name": "web", "containerPort": 8080 }],
        }] },
    })
}

/// A Service named `api` on the pods' named port.
fn service() -> Value {
    json!({
        "metadata": { "name": "api" },
        "spec": {
            "selector": { "app": "api" },
            "ports": [{ "name": "http", "port": 80, "targetPort": "web" }],
        },
    })
}

fn is_complete(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    status.observed_generation >= deployment.metadata.generation
        && status.updated_replicas.unwrap_or(0) == wanted
        && status.replicas.unwrap_or(0) == wanted
        && status.available_replicas.unwrap_or(0) == wanted
}

async fn create_service(cluster: &Cluster) -> anyhow::Result<Service> {
    cluster.create(service()).await
}
