//! The `EndpointSlice` controller: Services and their pods to slices.
//!
//! One slice a Service, address family and set of resolved ports; it is not split at 100 endpoints.
//!
//! # Layout
//! - `selecting`: which Services a pod's change concerns
//! - `wanted`: the slices that there should be
//! - `trigger`: the annotation that tells when the change happened

mod selecting;
mod trigger;
mod wanted;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::runner::{self, Reconciled, ignore};
use crate::api;
use selecting::Selecting;
use trigger::Triggers;

/// The name under which it writes.
const USER: &str = "endpointslice-controller";

/// Runs the controller.
pub async fn run(server: String, shutdown: CancellationToken) -> anyhow::Result<()> {
    let client = api::client(&server, USER)?;
    let config = watcher::Config::default();
    let controller = Controller::new(Api::<Service>::all(client.clone()), config.clone())
        .owns(Api::<EndpointSlice>::all(client.clone()), config.clone());
    let selecting = Selecting::new(controller.store());
    let controller = controller
        .watches(Api::<Pod>::all(client.clone()), config, move |pod| selecting.services(&pod));
    let context = Context { client, triggers: Triggers::default() };
    runner::run(USER, controller, context, shutdown, reconcile).await
}

struct Context {
    client: Client,
    triggers: Triggers,
}

async fn reconcile(seen: Arc<Service>, context: Arc<Context>) -> Reconciled {
    let namespace = seen.namespace().unwrap_or_default();
    let services: Api<Service> = Api::namespaced(context.client.clone(), &namespace);
    let Some(service) = services.get_opt(&seen.name_any()).await? else {
        return Ok(Action::await_change());
    };
    let Some(selector) = selecting::selector(&service) else {
        return Ok(Action::await_change());
    };
    let selector: Vec<String> =
        selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &namespace);
    let mut pods = api.list(&ListParams::default().labels(&selector.join(","))).await?.items;
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
    let changed = context.triggers.time(&service, &pods);

    let slices: Api<EndpointSlice> = Api::namespaced(context.client.clone(), &namespace);
    let ours = wanted::own_slices(&service);
    let mut existing = slices.list(&ListParams::default().labels(&ours)).await?.items;
    let parameters = PostParams::default();
    for mut wanted in wanted::slices(&service, &pods) {
        let Some(current) = take_matching(&mut existing, &wanted) else {
            trigger::annotate(&mut wanted.metadata, changed);
            slices.create(&parameters, &wanted).await?;
            continue;
        };
        let mut next = current.clone();
        next.endpoints = in_place(&current.endpoints, wanted.endpoints);
        next.ports = wanted.ports;
        next.metadata.labels = wanted.metadata.labels;
        let unchanged = next.endpoints == current.endpoints
            && next.ports.as_deref().unwrap_or_default()
                == current.ports.as_deref().unwrap_or_default()
            && next.metadata.labels == current.metadata.labels;
        if !unchanged {
            trigger::annotate(&mut next.metadata, changed);
            slices.replace(&current.name_any(), &parameters, &next).await?;
        }
    }
    for stale in existing {
        ignore(slices.delete(&stale.name_any(), &DeleteParams::default()).await.map(drop), 404)?;
    }
    Ok(Action::await_change())
}

/// The slice that this one replaces: of the same addresses and ports, else any of the same
/// addresses.
fn take_matching(
    existing: &mut Vec<EndpointSlice>,
    wanted: &EndpointSlice,
) -> Option<EndpointSlice> {
    let same_type = |slice: &EndpointSlice| slice.address_type == wanted.address_type;
    let same_ports = |slice: &EndpointSlice| slice.ports == wanted.ports;
    let at = existing
        .iter()
        .position(|slice| same_type(slice) && same_ports(slice))
        .or_else(|| existing.iter().position(same_type))?;
    Some(existing.remove(at))
}

/// The endpoints in the order in which the slice has them already, new ones at the end.
fn in_place(current: &[Endpoint], mut wanted: Vec<Endpoint>) -> Vec<Endpoint> {
    let uid =
        |endpoint: &Endpoint| endpoint.target_ref.as_ref().and_then(|target| target.uid.clone());
    let mut ordered = Vec::with_capacity(wanted.len());
    for old in current {
        if let Some(at) =
            wanted.iter().position(|new| new.addresses == old.addresses && uid(new) == uid(old))
        {
            ordered.push(wanted.remove(at));
        }
    }
    ordered.append(&mut wanted);
    ordered
}
