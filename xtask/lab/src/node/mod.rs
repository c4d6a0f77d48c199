//! A node: a network namespace, its pods' links, and the thread that its kubelet and proxy run on.

mod pod_network;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

pub use pod_network::{PodLink, PodNetwork};

use crate::cli::ProxyMode;
use crate::journal::Journal;
use crate::net::{Namespace, NodeAddresses};
use crate::{kubelet, proxy};

/// What a node's components are told.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// URL of the API server.
    pub server: String,
    /// From a container's exit to the removal of its pod's network.
    pub teardown_delay: Duration,
    /// From a change to programming it.
    pub program_delay: Duration,
    /// The least time between two programmings.
    pub min_sync_period: Duration,
    /// What the proxy programs.
    pub proxy: ProxyMode,
    /// Pods hang on a bridge instead of point-to-point links.
    pub bridge: bool,
    /// Directory for the containers' output.
    pub logs: PathBuf,
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    /// Its name and addresses.
    pub addresses: NodeAddresses,
    /// Its network namespace.
    pub namespace: Arc<Namespace>,
    ended: oneshot::Receiver<Result<()>>,
}

impl Node {
    /// Starts kubelet and proxy on a thread of their own inside the node's namespace, so that
    /// probes leave from the node and rules are programmed in it.
    pub fn start(
        addresses: NodeAddresses,
        namespace: Namespace,
        settings: NodeSettings,
        journal: Journal,
        shutdown: CancellationToken,
    ) -> Result<Self> {
        let namespace = Arc::new(namespace);
        let (tell, ended) = oneshot::channel();
        let thread_namespace = Arc::clone(&namespace);
        let thread_addresses = addresses.clone();
        std::thread::Builder::new()
            .name(addresses.name.clone())
            .spawn(move || {
                let outcome =
                    run(&thread_addresses, thread_namespace, settings, journal, &shutdown)
                        .with_context(|| format!("node {}", thread_addresses.name));
                // The receiver is gone only when the lab is ending anyway.
                drop(tell.send(outcome));
            })
            .context("start the node's thread")?;
        Ok(Self { addresses, namespace, ended })
    }

    /// Waits for the node's end: an error when its kubelet or proxy failed.
    pub async fn ended(&mut self) -> Result<()> {
        (&mut self.ended)
            .await
            .map_err(|_| anyhow!("the thread of node {} panicked", self.addresses.name))?
    }
}

fn run(
    addresses: &NodeAddresses,
    namespace: Arc<Namespace>,
    settings: NodeSettings,
    journal: Journal,
    shutdown: &CancellationToken,
) -> Result<()> {
    namespace.enter()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the node's runtime")?;
    runtime.block_on(async move {
        let network = PodNetwork::new(addresses.clone(), namespace, settings.bridge).await?;
        let kubelet = kubelet::run(addresses, &settings, network, journal.clone());
        let proxy = proxy::run(addresses, &settings, journal);
        tokio::select! {
            end = kubelet => end.context("kubelet"),
            end = proxy => end.context("proxy"),
            () = shutdown.cancelled() => Ok(()),
        }
    })
}
