//! The slices that a Service and its pods ask for.

use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use crate::controllers::pods;

/// The value of the managed-by label: the real controller's name.
const MANAGED_BY: &str = "endpointslice-controller.k8s.io";
const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// The label selector of the slices that this controller made for a Service.
pub fn own_slices(service: &Service) -> String {
    format!("{SERVICE_LABEL}={},{MANAGED_BY_LABEL}={MANAGED_BY}", service.name_any())
}

/// The slices of a Service: one for each address family, and for each set of ports that its pods
/// resolve to.
pub fn slices(service: &Service, pods: &[Pod]) -> Vec<EndpointSlice> {
    let families =
        service.spec.as_ref().and_then(|spec| spec.ip_families.clone()).unwrap_or_default();
    let families = if families.is_empty() { vec!["IPv4".to_owned()] } else { families };
    let mut slices = Vec::new();
    for family in &families {
        let mut groups: Vec<(Vec<EndpointPort>, Vec<Endpoint>)> = Vec::new();
        for pod in pods.iter().filter(|pod| !pods::is_terminal(pod)) {
            let Some(endpoint) = endpoint(service, pod, family) else {
                continue;
            };
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
    let in_subdomain =
        spec.and_then(|spec| spec.subdomain.as_deref()) == Some(service.name_any().as_str());
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
                    && found.protocol.as_deref().unwrap_or("TCP")
                        == port.protocol.as_deref().unwrap_or("TCP")
            })
            .map(|found| found.container_port),
    }
}
