//! A kube-proxy stand-in: watches Services and `EndpointSlices`, and programs the kernel's rules in
//! its node's namespace, in kube-proxy's own chain shapes.

mod iptables;
mod ipvs;
mod nftables;
mod programmed;
mod services;

use std::pin::pin;

use anyhow::{Context, Result};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use tokio::time::{Instant, sleep_until};

pub use programmed::endpoints_file;
pub use services::{NodePort, ServicePort, ServiceTable};

use self::programmed::Programmed;
use crate::api;
use crate::journal::Journal;
use crate::net::NodeAddresses;
use crate::node::NodeSettings;

/// Keeps a node's rules in step with the Services until an error.
pub async fn run(node: &NodeAddresses, settings: &NodeSettings, journal: Journal) -> Result<()> {
    let client = api::client(&settings.server, &format!("lab-proxy-{}", node.name))?;
    let mut services = pin!(watch::<Service>(client.clone()));
    let mut slices = pin!(watch::<EndpointSlice>(client));
    let mut table = ServiceTable::of_node(&node.name);
    let mut rules = Programmed::new(node, settings.proxy, &settings.logs, journal).await?;
    // When to program next: set by the first change, so that later ones are coalesced. As in
    // kube-proxy's runner, that is at once unless the last time was less than the period ago.
    let mut due: Option<Instant> = None;
    let mut earliest = Instant::now();
    loop {
        let changed = tokio::select! {
            biased;
            change = services.next() => match change.context("the watch of Services ended")? {
                Ok(change) => table.apply_service(change),
                Err(error) => {
                    tracing::warn!(node = node.name, %error, "watch Services");
                    false
                }
            },
            change = slices.next() => match change.context("the watch of EndpointSlices ended")? {
                Ok(change) => table.apply_slice(change),
                Err(error) => {
                    tracing::warn!(node = node.name, %error, "watch EndpointSlices");
                    false
                }
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                due = None;
                earliest = Instant::now() + settings.min_sync_period;
                rules.program(&table.service_ports()).await?;
                false
            }
        };
        if changed && table.is_synced() && due.is_none() {
            due = Some(earliest.max(Instant::now()) + settings.program_delay);
        }
    }
}

fn watch<K>(client: Client) -> impl Stream<Item = watcher::Result<watcher::Event<K>>>
where
    K: Resource<DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
{
    watcher(Api::<K>::all(client), watcher::Config::default()).default_backoff()
}
