//! A kubelet stand-in: watches its node's pods and gives each a worker that runs it.

mod container;
mod pod;
mod probe;
mod status;

pub use pod::ADDRESS_OF_ANNOTATION;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api;
use crate::journal::Journal;
use crate::net::NodeAddresses;
use crate::node::{NodeSettings, PodNetwork};

/// A pod with this annotation only shows what runs already: it is not run.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// What every pod of a node shares.
#[derive(Clone)]
struct Shared {
    node: NodeAddresses,
    settings: NodeSettings,
    network: PodNetwork,
    client: kube::Client,
    journal: Journal,
}

/// Runs the pods of a node until an error.
pub async fn run(
    node: &NodeAddresses,
    settings: &NodeSettings,
    network: PodNetwork,
    journal: Journal,
) -> Result<()> {
    let client = api::client(&settings.server, &format!("lab-kubelet-{}", node.name))?;
    let context = Shared {
        node: node.clone(),
        settings: settings.clone(),
        network,
        client: client.clone(),
        journal,
    };
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", node.name));
    let mut changes = pin!(watcher(Api::<Pod>::all(client), config).default_backoff());
    let mut pods = Workers { context, known: BTreeMap::new(), tasks: JoinSet::new() };
    let mut listed = BTreeSet::new();
    loop {
        tokio::select! {
            change = changes.next() => match change.context("the watch of pods ended")? {
                Ok(watcher::Event::Apply(pod)) => pods.apply(pod)?,
                Ok(watcher::Event::Delete(pod)) => pods.forget(&pod)?,
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(pod)) => {
                    listed.insert(uid(&pod)?);
                    pods.apply(pod)?;
                }
                // A pod that the list lacks has been deleted.
                Ok(watcher::Event::InitDone) => pods.known.retain(|uid, _| listed.contains(uid)),
                Err(error) => tracing::warn!(node = node.name, %error, "watch pods"),
            },
            Some(end) = pods.tasks.join_next() => end.context("a pod's worker panicked")??,
        }
    }
}

/// A worker for each pod, by UID. A worker whose sender is dropped kills its pod at once.
struct Workers {
    context: Shared,
    known: BTreeMap<String, watch::Sender<Pod>>,
    tasks: JoinSet<Result<()>>,
}

impl Workers {
    fn apply(&mut self, pod: Pod) -> Result<()> {
        if pod.annotations().contains_key(MIRROR_ANNOTATION) {
            return Ok(());
        }
        let uid = uid(&pod)?;
        if let Some(known) = self.known.get(&uid) {
            known.send_replace(pod);
            return Ok(());
        }
        let name = pod.name_any();
        let (sender, receiver) = watch::channel(pod);
        self.known.insert(uid, sender);
        let context = self.context.clone();
        self.tasks.spawn(async move {
            Box::pin(pod::run(context, receiver))
                .await
                .with_context(|| format!("run the pod {name}"))
        });
        Ok(())
    }

    fn forget(&mut self, pod: &Pod) -> Result<()> {
        self.known.remove(&uid(pod)?);
        Ok(())
    }
}

fn uid(pod: &Pod) -> Result<String> {
    pod.uid().with_context(|| format!("the pod {} has no UID", pod.name_any()))
}
