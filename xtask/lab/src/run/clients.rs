//! The clients of a run: a pod on the first node, and one in the last node's own namespace.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{interval, timeout};

use super::cluster::{Cluster, NAMESPACE, POD_LOGS};
use super::outside::Outside;
use super::progress::Progress;
use super::workload::{APPLICATION, NODE_PORT, SERVICE_PORT};
use crate::app::failure::{Line, Summary};
use crate::cli::{Dial, RunArgs, ServiceTrait};
use crate::compare::Truth;
use crate::journal::Event;
use crate::proxy::endpoints_file;

/// Slack for a client to end after its time is up.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// The clients, and at the end their records.
pub struct Clients {
    api: Client,
    pods: Vec<ClientPod>,
    outside: Option<Outside>,
    ends_after: Duration,
    /// Every failed request.
    pub truth: Vec<Truth>,
    /// Each client's summary.
    pub summaries: BTreeMap<String, Summary>,
}

pub(super) struct ClientPod {
    /// Its name.
    pub name: String,
    /// Its node, or that it is on none.
    pub node: String,
    /// Its own record.
    pub log: PathBuf,
}

impl Clients {
    /// Starts the clients and waits until both run.
    pub async fn start(cluster: &Cluster, args: &RunArgs, out: &Path) -> Result<Self> {
        let targets = targets(cluster, args);
        let outside = if args.outside {
            Some(Outside::start(cluster, args, out, &targets).await?)
        } else {
            None
        };
        let pair = [(String::new(), targets, APPLICATION)];
        let inside = Self::start_towards(cluster, args, out, &pair).await?;
        Ok(Self { outside, ..inside })
    }

    /// Starts a pair of clients for each target: what their names end with, where they send their
    /// requests (the threads are shared out among the addresses), and which application must answer.
    pub async fn start_towards(
        cluster: &Cluster,
        args: &RunArgs,
        out: &Path,
        targets: &[(String, Vec<SocketAddr>, &str)],
    ) -> Result<Self> {
        let (Some(first), Some(last)) = (cluster.nodes.first(), cluster.nodes.last()) else {
            bail!("a cluster has a node")
        };
        let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
        let mut clients = Vec::new();
        let pairs = targets.iter().flat_map(|(suffix, addresses, application)| {
            // From a node's own address to a pod of the same node only kubelet's probes go directly.
            let second = match args.dial {
                Dial::Endpoints => ("client-last", last, false),
                Dial::Service | Dial::NodePort => ("client-host", last, true),
            };
            [("client", first, false), second].map(|(name, node, host_network)| {
                (format!("{name}{suffix}"), node, host_network, addresses, *application)
            })
        });
        for (name, node, host_network, addresses, application) in pairs {
            let log = out.join(format!("{name}.jsonl"));
            let mut addresses = addresses.clone();
            if !host_network && args.service.contains(&ServiceTrait::ExternalLocal) {
                // Towards another node its network plugin would give it that of its own: its answers would
                // not come back the same way otherwise.
                addresses.retain(|address| node.addresses.addresses.contains(&address.ip()));
            }
            let node = node.addresses.name.clone();
            let place = (name.as_str(), node.as_str(), host_network);
            let endpoints =
                (args.dial == Dial::Endpoints).then(|| endpoints_file(&out.join(POD_LOGS), &node));
            let command =
                client_command((&addresses, application), args, &log, endpoints.as_deref())?;
            let pod = client_pod(place, &command);
            pods.create(&PostParams::default(), &serde_json::from_value(pod)?)
                .await
                .with_context(|| format!("create the pod {NAMESPACE}/{name}"))?;
            clients.push(ClientPod { name, node, log });
        }
        let running = cluster.journal.wait_for(|entries| {
            clients.iter().all(|client| {
                let name = format!("{NAMESPACE}/{}", client.name);
                entries
                    .iter()
                    .any(|e| matches!(&e.event, Event::PodStarted { pod, .. } if *pod == name))
            })
        });
        timeout(ENDS_WITHIN, running).await.context("the clients do not start: see pods/")??;
        let ends_after = Duration::from_secs(args.seconds) + args.client_timeout() + ENDS_WITHIN;
        Ok(Self {
            api: cluster.client.clone(),
            pods: clients,
            outside: None,
            ends_after,
            truth: Vec::new(),
            summaries: BTreeMap::new(),
        })
    }

    /// Waits until all clients have ended, and shows how far they are meanwhile.
    pub async fn finished(&self, progress: &Progress) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.api.clone(), NAMESPACE);
        let ended = futures::future::try_join_all(self.pods.iter().map(|client| {
            await_condition(pods.clone(), &client.name, |pod: Option<&Pod>| {
                let phase = pod.and_then(|p| p.status.as_ref()?.phase.as_deref());
                matches!(phase, Some("Succeeded" | "Failed"))
            })
        }));
        let shown = async {
            let mut ticks = interval(Duration::from_secs(1));
            loop {
                ticks.tick().await;
                let (requests, failed) = self.so_far()?;
                progress.load(requests, failed);
            }
        };
        tokio::select! {
            end = timeout(self.ends_after, ended) => {
                for pod in end.context("the clients do not end: see pods/")?.context("watch the clients")? {
                    let phase = pod.as_ref().and_then(|p| p.status.as_ref()?.phase.as_deref());
                    ensure!(phase == Some("Succeeded"), "a client failed: see pods/ for its words");
                }
                if let Some(outside) = &self.outside {
                    timeout(self.ends_after, outside.ended()).await.context("the client outside does not end")??;
                }
                Ok(())
            }
            end = shown => end,
        }
    }

    /// Requests and failures so far.
    fn so_far(&self) -> Result<(u64, u64)> {
        let mut sum = (0, 0);
        let outside = self.outside.iter().map(|outside| &outside.client);
        for client in self.pods.iter().chain(outside) {
            let lines = lines_of(&client.log)?;
            let progress = lines.iter().rev().find_map(|line| match line {
                Line::Progress { requests, failed } => Some((*requests, *failed)),
                Line::Summary(summary) => Some((summary.requests, summary.failed)),
                _ => None,
            });
            let (requests, failed) = progress.unwrap_or_default();
            sum = (sum.0 + requests, sum.1 + failed);
        }
        Ok(sum)
    }

    /// Reads every client's record.
    pub fn read_logs(&mut self) -> Result<()> {
        let outside = self.outside.iter().map(|outside| &outside.client);
        for client in self.pods.iter().chain(outside) {
            for line in lines_of(&client.log)? {
                match line {
                    Line::Failure(failure) => self.truth.push(Truth {
                        client: client.name.clone(),
                        node: client.node.clone(),
                        failure,
                    }),
                    Line::Summary(summary) => {
                        self.summaries.insert(client.name.clone(), summary);
                    }
                    Line::Started { .. } | Line::Progress { .. } => {}
                }
            }
            ensure!(
                self.summaries.contains_key(&client.name),
                "the log of the client {} has no summary: {}",
                client.name,
                client.log.display()
            );
        }
        let failures: u64 = self.summaries.values().map(|s| s.failed).sum();
        ensure!(
            u64::try_from(self.truth.len()).ok() == Some(failures),
            "the clients' logs have {} failures, their summaries {failures}",
            self.truth.len()
        );
        Ok(())
    }
}

/// The whole lines of a log that may still be written to.
fn lines_of(path: &Path) -> Result<Vec<Line>> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("open {}", path.display())),
    };
    let mut reader = BufReader::new(file);
    let mut lines = Vec::new();
    let mut text = String::new();
    while reader.read_line(&mut text).with_context(|| format!("read {}", path.display()))? > 0 {
        if !text.ends_with('\n') {
            break;
        }
        lines.push(
            serde_json::from_str(&text)
                .with_context(|| format!("a line of {}: {text}", path.display()))?,
        );
        text.clear();
    }
    Ok(lines)
}

/// Where the clients of a run send their requests.
fn targets(cluster: &Cluster, args: &RunArgs) -> Vec<SocketAddr> {
    let own =
        || args.address_plan().service().into_iter().map(|a| SocketAddr::new(a, SERVICE_PORT));
    let of_nodes = || cluster.nodes.iter().flat_map(|node| &node.addresses.addresses);
    match args.dial {
        // Each is resolved to an endpoint of its family.
        Dial::Service | Dial::Endpoints => own().collect(),
        Dial::NodePort => of_nodes().map(|a| SocketAddr::new(*a, NODE_PORT)).collect(),
    }
}

/// A client's command line.
pub(super) fn client_command(
    (addresses, application): (&[SocketAddr], &str),
    args: &RunArgs,
    log: &Path,
    endpoints: Option<&Path>,
) -> Result<Vec<String>> {
    let log = log.to_str().context("the out directory's path is not UTF-8")?;
    let mut command = vec!["rollrace-lab".to_owned(), "client".to_owned()];
    let mut option = |name: &str, value: &str| {
        command.extend([format!("--{name}"), value.to_owned()]);
    };
    for address in addresses {
        option("target", &address.to_string());
    }
    option("application", application);
    option("mode", args.mode.name());
    option("threads", &args.threads.to_string());
    option("seconds", &args.seconds.to_string());
    option("timeout", &args.client_timeout.to_string());
    if let Some(ports) = args.source_ports {
        option("source-ports", &ports.to_string());
    }
    option("log", log);
    if let Some(path) = endpoints {
        option("endpoints", path.to_str().context("the out directory's path is not UTF-8")?);
    }
    Ok(command)
}

fn client_pod((name, node, host_network): (&str, &str, bool), command: &[String]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {
            "nodeName": node,
            "hostNetwork": host_network,
            "restartPolicy": "Never",
            "containers": [{
                "name": "client",
                "image": "registry.example/client:1",
                "command": command,
            }],
        },
    })
}
