//! The `EndpointSlice` controller: Services and their pods to slices.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::pods;
use super::runner::{self, Reconciled, ignore};
use crate::api;

/// The name under which it writes.
const USER: &str = "endpointslice-controller";
/// The value of the managed-by label: the real controller's name.
const MANAGED_BY: &str = "endpointslice-controller.k8s.io";
const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
const TRIGGER_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Runs the controller.
pub async fn run(server: String, shutdown: CancellationToken) -> anyhow::Result<()> {
    let client = api::client(&server, USER)?;
    let config = watcher::Config::default();
    let controller = Controller::new(Api::<Service>::all(client.clone()), config.clone())
        .owns(Api::<EndpointSlice>::all(client.clone()), config.clone());
    let selecting = Selecting { services: controller.store(), before: Mutex::default() };
    let controller = controller.watches(Api::<Pod>::all(client.clone()), config, move |pod| selecting.services(&pod));
    let context = Context { client, triggers: Mutex::default() };
    runner::run(USER, controller, context, shutdown, reconcile).await
}

/// Which Services a pod's change concerns: those that select it, and those that did.
struct Selecting {
    services: Store<Service>,
    before: Mutex<HashMap<String, BTreeSet<String>>>,
}

impl Selecting {
    fn services(&self, pod: &Pod) -> Vec<ObjectRef<Service>> {
        let namespace = pod.namespace().unwrap_or_default();
        let now: BTreeSet<String> = self
            .services
            .state()
            .iter()
            .filter(|service| service.namespace().as_deref() == Some(&namespace) && selects(service, pod))
            .map(|service| service.name_any())
            .collect();
        let key = format!("{namespace}/{}", pod.name_any());
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let last = pod.metadata.deletion_grace_period_seconds == Some(0);
        let old = if last || now.is_empty() { before.remove(&key) } else { before.insert(key, now.clone()) };
        now.union(&old.unwrap_or_default()).map(|name| ObjectRef::new(name).within(&namespace)).collect()
    }
}

fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    service.spec.as_ref()?.selector.as_ref().filter(|selector| !selector.is_empty())
}

fn selects(service: &Service, pod: &Pod) -> bool {
    selector(service).is_some_and(|wanted| wanted.iter().all(|(key, value)| pod.labels().get(key) == Some(value)))
}

struct Context {
    client: Client,
    /// Of each Service by UID, what its last slices were made from.
    triggers: Mutex<HashMap<String, Triggers>>,
}

/// The times of change that the last turn saw (the real controller's `TriggerTimeTracker`).
#[derive(Default)]
struct Triggers {
    service: Option<Timestamp>,
    pods: BTreeMap<String, Timestamp>,
}

impl Context {
    /// The earliest change since the last turn that carries a time, which is what the annotation tells; none when
    /// nothing did, as for a deletion.
    fn trigger_time(&self, service: &Service, pods: &[Pod]) -> Option<Timestamp> {
        let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let times: BTreeMap<String, Timestamp> =
            pods.iter().filter_map(|pod| Some((pod.name_any(), pods::ready_since(pod)?))).collect();
        let mut all = self.triggers.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = service.uid().unwrap_or_default();
        let known = all.contains_key(&uid);
        let last = all.entry(uid).or_default();
        let changed = times
            .iter()
            .filter(|(pod, time)| last.pods.get(*pod).is_none_or(|before| *time > before))
            .map(|(_, time)| *time)
            .chain(created.filter(|time| last.service.is_none_or(|before| *time > before)))
            .min();
        *last = Triggers { service: created, pods: times };
        if known { changed } else { created }
    }

    fn forget(&self, service: &Service) {
        let mut all = self.triggers.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&service.uid().unwrap_or_default());
    }
}

async fn reconcile(seen: Arc<Service>, context: Arc<Context>) -> Reconciled {
    let namespace = seen.namespace().unwrap_or_default();
    let services: Api<Service> = Api::namespaced(context.client.clone(), &namespace);
    let Some(service) = services.get_opt(&seen.name_any()).await? else {
        context.forget(&seen);
        return Ok(Action::await_change());
    };
    let Some(selector) = selector(&service) else { return Ok(Action::await_change()) };
    let selector: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &namespace);
    let mut pods = api.list(&ListParams::default().labels(&selector.join(","))).await?.items;
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
    let trigger = context.trigger_time(&service, &pods);

    let slices: Api<EndpointSlice> = Api::namespaced(context.client.clone(), &namespace);
    let ours = format!("{SERVICE_LABEL}={},{MANAGED_BY_LABEL}={MANAGED_BY}", service.name_any());
    let mut existing = slices.list(&ListParams::default().labels(&ours)).await?.items;
    let parameters = PostParams::default();
    for wanted in wanted_slices(&service, &pods) {
        match take_matching(&mut existing, &wanted) {
            Some(current) => {
                let mut next = current.clone();
                next.endpoints = in_place(&current.endpoints, wanted.endpoints);
                next.ports = wanted.ports;
                next.metadata.labels = wanted.metadata.labels;
                let unchanged = next.endpoints == current.endpoints
                    && next.ports.as_deref().unwrap_or_default() == current.ports.as_deref().unwrap_or_default()
                    && next.metadata.labels == current.metadata.labels;
                if !unchanged {
                    annotate(&mut next.metadata, trigger);
                    slices.replace(&current.name_any(), &parameters, &next).await?;
                }
            }
            None => {
                let mut created = wanted;
                annotate(&mut created.metadata, trigger);
                slices.create(&parameters, &created).await?;
            }
        }
    }
    for stale in existing {
        ignore(slices.delete(&stale.name_any(), &DeleteParams::default()).await.map(drop), 404)?;
    }
    Ok(Action::await_change())
}

/// The slice that this one replaces: of the same addresses and ports, else any of the same addresses.
fn take_matching(existing: &mut Vec<EndpointSlice>, wanted: &EndpointSlice) -> Option<EndpointSlice> {
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
    let uid = |endpoint: &Endpoint| endpoint.target_ref.as_ref().and_then(|target| target.uid.clone());
    let mut ordered = Vec::with_capacity(wanted.len());
    for old in current {
        if let Some(at) = wanted.iter().position(|new| new.addresses == old.addresses && uid(new) == uid(old)) {
            ordered.push(wanted.remove(at));
        }
    }
    ordered.append(&mut wanted);
    ordered
}

fn annotate(metadata: &mut ObjectMeta, trigger: Option<Timestamp>) {
    let annotations = metadata.annotations.get_or_insert_default();
    match trigger {
        Some(time) => annotations.insert(TRIGGER_ANNOTATION.into(), time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        None => annotations.remove(TRIGGER_ANNOTATION),
    };
    if annotations.is_empty() {
        metadata.annotations = None;
    }
}

/// The slices of a Service: one for each address family, and for each set of ports that its pods resolve to.
fn wanted_slices(service: &Service, pods: &[Pod]) -> Vec<EndpointSlice> {
    let families = service.spec.as_ref().and_then(|spec| spec.ip_families.clone()).unwrap_or_default();
    let families = if families.is_empty() { vec!["IPv4".to_owned()] } else { families };
    let mut slices = Vec::new();
    for family in &families {
        let mut groups: Vec<(Vec<EndpointPort>, Vec<Endpoint>)> = Vec::new();
        for pod in pods.iter().filter(|pod| !pods::is_terminal(pod)) {
            let Some(endpoint) = endpoint(service, pod, family) else { continue };
            let ports = resolve_ports(service, pod);
            match groups.iter_mut().find(|(of, _)| *of == ports) {
                Some((_, endpoints)) => endpoints.push(endpoint),
                None => groups.push((ports, vec![endpoint])),
            }
        }
        if groups.is_empty() {
            groups.push((Vec::new(), Vec::new()));
        }
        slices.extend(groups.into_iter().map(|(ports, endpoints)| EndpointSlice {
            address_type: family.clone(),
            endpoints,
            metadata: metadata(service),
            ports: Some(ports).filter(|ports| !ports.is_empty()),
        }));
    }
    slices
}

fn metadata(service: &Service) -> ObjectMeta {
    let mut labels = service.labels().clone();
    labels.insert(SERVICE_LABEL.into(), service.name_any());
    labels.insert(MANAGED_BY_LABEL.into(), MANAGED_BY.into());
    if service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None") {
        labels.insert(HEADLESS_LABEL.into(), String::new());
    }
    ObjectMeta {
        generate_name: Some(format!("{}-", service.name_any())),
        namespace: service.namespace(),
        labels: Some(labels),
        owner_references: Some(vec![pods::owner_reference(service)]),
        ..ObjectMeta::default()
    }
}

/// The pod as an endpoint; none while it has no address of the family.
fn endpoint(service: &Service, pod: &Pod, family: &str) -> Option<Endpoint> {
    let status = pod.status.as_ref()?;
    let addresses: Vec<String> = status
        .pod_ips
        .iter()
        .flatten()
        .map(|address| address.ip.clone())
        .filter(|address| address.contains(':') == (family == "IPv6"))
        .take(1)
        .collect();
    if addresses.is_empty() {
        return None;
    }
    let publish_not_ready =
        service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses).unwrap_or(false);
    let serving = pods::is_ready(pod);
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let spec = pod.spec.as_ref();
    let hostname = spec.and_then(|spec| spec.hostname.clone());
    let in_subdomain = spec.and_then(|spec| spec.subdomain.as_deref()) == Some(service.name_any().as_str());
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(publish_not_ready || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: hostname.filter(|_| in_subdomain),
        node_name: spec.and_then(|spec| spec.node_name.clone()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".into()),
            namespace: pod.namespace(),
            name: Some(pod.name_any()),
            uid: pod.uid(),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    })
}

/// The Service's ports on this pod; a named target port that the pod does not have is left out.
fn resolve_ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.clone()).unwrap_or_default();
    ports
        .iter()
        .filter_map(|port| {
            Some(EndpointPort {
                app_protocol: port.app_protocol.clone(),
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(target_port(port, pod)?),
                protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".into())),
            })
        })
        .collect()
}

fn target_port(port: &ServicePort, pod: &Pod) -> Option<i32> {
    match &port.target_port {
        None => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => pod
            .spec
            .iter()
            .flat_map(|spec| spec.containers.iter())
            .flat_map(|container| container.ports.iter().flatten())
            .find(|found| {
                found.name.as_ref() == Some(name)
                    && found.protocol.as_deref().unwrap_or("TCP") == port.protocol.as_deref().unwrap_or("TCP")
            })
            .map(|found| found.container_port),
    }
}
