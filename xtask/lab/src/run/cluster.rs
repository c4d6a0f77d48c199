//! The cluster: fabric, API server, controllers, nodes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1::{Namespace, Node as NodeObject};
use kube::api::PostParams;
use kube::{Api, Client};
use rollrace_deploy::role::Role;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::workload::Workload;
use crate::cli::RunArgs;
use crate::journal::{Event, Journal};
use crate::net::{NodeAddresses, build_fabric};
use crate::node::{Node, NodeSettings};
use crate::{api, controllers};

/// The namespace of the workload and its clients.
pub const NAMESPACE: &str = "shop";
/// Folder of the containers' output, in the out directory.
pub const POD_LOGS: &str = "pods";
/// Port of the API server.
const API_PORT: u16 = 6443;
/// Port of the agents' own entrance to it.
const AGENTS_PORT: u16 = 6444;
/// The agents, by the beginning of their users' names.
pub const AGENTS: &str = "rollrace-agent-";
/// The first revision answers within this time, or the run fails.
const REACHABLE_WITHIN: Duration = Duration::from_secs(30);

/// A running cluster.
pub struct Cluster {
    /// URL of the API server.
    pub server: String,
    /// The API server's handle.
    pub api: api::Handle,
    /// The agents' way to it.
    pub agents_entrance: api::Entrance,
    /// The lab's own client.
    pub client: Client,
    /// The nodes.
    pub nodes: Vec<ClusterNode>,
    /// What happens.
    pub journal: Journal,
    watched: Option<Watched>,
    _shutdown: DropGuard,
}

/// A node as the run needs it.
pub struct ClusterNode {
    /// Its name and addresses.
    pub addresses: NodeAddresses,
    /// Its namespace.
    pub namespace: std::sync::Arc<crate::net::Namespace>,
}

/// What must not end before the run.
struct Watched {
    controllers: JoinSet<Result<()>>,
    nodes: Vec<Node>,
}

impl Cluster {
    /// Starts everything but the workload.
    pub async fn start(args: &RunArgs, out: &Path) -> Result<Self> {
        let logs = out.join(POD_LOGS);
        std::fs::create_dir_all(&logs).with_context(|| format!("create {}", logs.display()))?;
        let journal = Journal::create(&out.join("journal.jsonl"))?;
        let plan = args.address_plan();
        let addresses: Vec<NodeAddresses> = (1..=args.nodes).map(|n| plan.node(n)).collect();
        let namespaces = build_fabric(plan, &addresses).await.context("build the fabric")?;
        let address = SocketAddr::new(plan.api_server(), API_PORT);
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("listen on {address} for the API server"))?;
        let api = api::start(
            listener,
            api::Options { version: args.kubernetes.clone(), ..api::Options::default() },
        );
        api.bind_role(AGENTS, Role::shipped()?);
        let server = api.url();
        let address = SocketAddr::new(plan.api_server(), AGENTS_PORT);
        let agents_entrance = api::Entrance::new(address, &api).await?;
        let client = api::client(&server, "lab-user")?;
        create_objects(&client, &addresses).await?;
        let shutdown = CancellationToken::new();
        let controllers = controllers::start(&server, shutdown.clone());
        let (mut running, mut nodes) = (Vec::new(), Vec::new());
        for (addresses, namespace) in addresses.into_iter().zip(namespaces) {
            let settings = NodeSettings {
                server: server.clone(),
                teardown_delay: Duration::from_millis(args.teardown_delay),
                program_delay: Duration::from_millis(args.proxy_program_delay),
                min_sync_period: Duration::from_millis(args.proxy_min_sync_period),
                proxy: args.proxy,
                bridge: args.bridge_node.contains(&addresses.name),
                logs: logs.clone(),
            };
            let node =
                Node::start(addresses, namespace, settings, journal.clone(), shutdown.clone())?;
            nodes.push(ClusterNode {
                addresses: node.addresses.clone(),
                namespace: std::sync::Arc::clone(&node.namespace),
            });
            running.push(node);
        }
        Ok(Self {
            server,
            api,
            agents_entrance,
            client,
            nodes,
            journal,
            watched: Some(Watched { controllers, nodes: running }),
            _shutdown: shutdown.drop_guard(),
        })
    }

    /// Ends when a component of the cluster does, with the reason. To be called once.
    pub fn broken(&mut self) -> impl Future<Output = anyhow::Error> + use<> {
        let watched = self.watched.take();
        async move {
            let Some(mut watched) = watched else {
                return std::future::pending().await;
            };
            let nodes = watched.nodes.iter_mut().map(|node| {
                Box::pin(async {
                    let name = node.addresses.name.clone();
                    let reason = node.ended().await.err();
                    reason.unwrap_or_else(|| anyhow!("the node {name} ended"))
                })
            });
            let node = futures::future::select_all(nodes);
            tokio::select! {
                (reason, _, _) = node => reason,
                Some(end) = watched.controllers.join_next() => match end {
                    Ok(Ok(())) => anyhow!("a controller ended"),
                    Ok(Err(error)) => error.context("a controller"),
                    Err(error) => error.into(),
                },
            }
        }
    }

    /// Turns the dials of the watches.
    pub fn set_watch_delays(&self, args: &RunArgs) {
        self.api.set_watch_delay(AGENTS, Duration::from_millis(args.agent_watch_delay));
        self.api.set_watch_delay("lab-proxy-", Duration::from_millis(args.proxy_watch_delay));
    }

    /// Waits until every pod of the workload answers and every proxy has a rule for it.
    pub async fn backends_reachable(&self, workload: &Workload) -> Result<()> {
        let backends: BTreeSet<SocketAddr> = workload.backends().await?.into_iter().collect();
        self.reachable(&backends).await
    }

    /// Waits until no proxy has a rule for a pod that is gone: the rollout is over for clients, too.
    pub async fn only_backends_reachable(&self, workload: &Workload) -> Result<()> {
        let backends: BTreeSet<SocketAddr> = workload.backends().await?.into_iter().collect();
        self.reachable(&backends).await?;
        let programmed = self.journal.wait_for(|entries| {
            let mut rules = BTreeSet::new();
            for entry in entries {
                match &entry.event {
                    Event::RuleAdded { node, backend } => rules.insert((node, backend)),
                    Event::RuleGone { node, backend } => rules.remove(&(node, backend)),
                    _ => false,
                };
            }
            rules.iter().all(|(_, backend)| backends.contains(backend))
        });
        tokio::time::timeout(REACHABLE_WITHIN, programmed)
            .await
            .context("proxies still have rules for pods that are gone: see journal.jsonl")?
    }

    /// Waits until all these answer and every proxy has a rule for them.
    pub async fn reachable(&self, backends: &BTreeSet<SocketAddr>) -> Result<()> {
        let deadline = Instant::now() + REACHABLE_WITHIN;
        let node = self.nodes.first().context("a cluster has a node")?;
        for backend in backends {
            // A pod without a readiness probe is ready before it listens, and tells nobody.
            while !node.namespace.can_connect(*backend).await? {
                if Instant::now() > deadline {
                    bail!("the pod at {backend} does not answer after {REACHABLE_WITHIN:?}");
                }
                sleep(Duration::from_millis(100)).await;
            }
        }
        let names: Vec<&String> = self.nodes.iter().map(|n| &n.addresses.name).collect();
        let programmed = self.journal.wait_for(|entries| {
            names.iter().all(|name| {
                backends.iter().all(|backend| {
                    entries.iter().any(|entry| {
                        entry.event == Event::RuleAdded { node: (*name).clone(), backend: *backend }
                    })
                })
            })
        });
        tokio::time::timeout(REACHABLE_WITHIN, programmed)
            .await
            .context("the proxies have not programmed the first revision: see journal.jsonl")?
    }
}

async fn create_objects(client: &Client, nodes: &[NodeAddresses]) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in ["default", "kube-system", NAMESPACE] {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        match namespaces.create(&PostParams::default(), &namespace).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => {
                return Err(error).with_context(|| format!("create the namespace {name}"));
            }
        }
    }
    let objects: Api<NodeObject> = Api::all(client.clone());
    for node in nodes {
        let mut addresses: Vec<Value> = node
            .addresses
            .iter()
            .map(|address| json!({"type": "InternalIP", "address": address}))
            .collect();
        addresses.push(json!({"type": "Hostname", "address": node.name}));
        let ranges = node.pod_cidrs();
        let object = serde_json::from_value(json!({
            "metadata": {
                "name": node.name,
                "labels": {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux"},
            },
            "spec": {"podCIDR": ranges.first(), "podCIDRs": ranges},
            "status": {
                "addresses": addresses,
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "KubeletReady",
                    "message": "kubelet is posting ready status",
                }],
            },
        }))?;
        objects
            .create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("create the node {}", node.name))?;
    }
    Ok(())
}
