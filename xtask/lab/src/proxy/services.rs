//! Services and slices folded into what a proxy programs: a list of ports with their backends.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

use crate::net::Family;

/// The label that names a slice's Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// One port of a Service, with the backends that get its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// `namespace/service:port`.
    pub name: String,
    /// The Service's cluster address and port.
    pub virtual_address: SocketAddr,
    /// Ready endpoints; when there are none, those that terminate and still serve.
    pub backends: Vec<SocketAddr>,
    /// Without a backend connections are dropped rather than rejected: there are endpoints, but none on
    /// this node, and the traffic policy is Local.
    pub drops: bool,
    /// Its port on every node.
    pub node_port: Option<NodePort>,
    /// `sessionAffinity: ClientIP`, and for how many seconds.
    pub affinity: Option<i32>,
}

/// A Service's port on every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePort {
    /// The port.
    pub port: u16,
    /// The backends of who comes from outside, where the policy for them is Local; all others have the
    /// Service's own.
    pub local: Option<Vec<SocketAddr>>,
}

impl NodePort {
    /// Who comes from outside is dropped: the policy is Local, and there are endpoints, but none here.
    pub fn drops(&self, service: &ServicePort) -> bool {
        let none_here = self.local.as_ref().is_some_and(Vec::is_empty);
        none_here && !service.backends.is_empty()
    }
}

impl ServicePort {
    /// The family of its addresses.
    pub fn family(&self) -> Family {
        Family::of(self.virtual_address.ip())
    }

    /// Whether it has an address at all: a headless one has only endpoints.
    pub fn is_headless(&self) -> bool {
        self.virtual_address.ip().is_unspecified()
    }

    /// Every backend that any of its rules leads to.
    pub fn all_backends(&self) -> BTreeSet<SocketAddr> {
        let local = self.node_port.iter().filter_map(|port| port.local.as_ref()).flatten();
        self.backends.iter().chain(local).copied().collect()
    }

    /// A name of 16 letters for the chains of this port (or of one of its backends), as stable as
    /// kube-proxy's own hashes.
    pub fn hash(&self, backend: Option<SocketAddr>) -> String {
        const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
        let mut letters = String::new();
        for half in 0..2_u8 {
            let mut hasher = DefaultHasher::new();
            (half, &self.name, "tcp", backend.map(|b| b.to_string())).hash(&mut hasher);
            let mut bits = hasher.finish();
            for _ in 0..8 {
                let index = usize::try_from(bits & 31).unwrap_or_default();
                letters.push(char::from(ALPHABET[index]));
                bits >>= 5;
            }
        }
        letters
    }
}

/// The Services and slices of a cluster, as one node sees them.
#[derive(Debug, Default)]
pub struct ServiceTable {
    node: String,
    services: Objects<Service>,
    slices: Objects<EndpointSlice>,
}

/// The objects of one watch, by namespace and name.
#[derive(Debug)]
struct Objects<K> {
    by_name: BTreeMap<(String, String), K>,
    listed: BTreeSet<(String, String)>,
    synced: bool,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), listed: BTreeSet::new(), synced: false }
    }
}

impl<K: Resource> Objects<K> {
    /// Applies a change; true when a list is complete or an object has changed.
    fn apply(&mut self, change: Event<K>) -> bool {
        match change {
            Event::Apply(object) => {
                self.by_name.insert(key(&object), object);
                true
            }
            Event::Delete(object) => self.by_name.remove(&key(&object)).is_some(),
            Event::Init => {
                self.listed.clear();
                false
            }
            Event::InitApply(object) => {
                let key = key(&object);
                self.listed.insert(key.clone());
                self.by_name.insert(key, object);
                false
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.by_name.retain(|key, _| listed.contains(key));
                self.synced = true;
                true
            }
        }
    }
}

fn key<K: Resource>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

impl ServiceTable {
    /// Nothing known yet, on a node.
    pub fn of_node(node: &str) -> Self {
        Self { node: node.to_owned(), ..Self::default() }
    }

    /// Applies a change of a Service; true when there may be something to program.
    pub fn apply_service(&mut self, change: Event<Service>) -> bool {
        self.services.apply(change)
    }

    /// Applies a change of a slice; true when there may be something to program.
    pub fn apply_slice(&mut self, change: Event<EndpointSlice>) -> bool {
        self.slices.apply(change)
    }

    /// Both first lists are complete: before that, rules would miss what is there.
    pub fn is_synced(&self) -> bool {
        self.services.synced && self.slices.synced
    }

    /// Every TCP port of every Service, once for each of its cluster addresses.
    pub fn service_ports(&self) -> Vec<ServicePort> {
        let mut ports = Vec::new();
        for ((namespace, name), service) in &self.services.by_name {
            let Some(spec) = &service.spec else { continue };
            let own = spec.cluster_ips.as_deref().unwrap_or_default();
            let addresses = if own.is_empty() { spec.cluster_ip.as_slice() } else { own };
            let addresses: Vec<IpAddr> = match addresses {
                [none] if none == "None" => nowhere(spec),
                addresses => addresses.iter().flat_map(|a| a.parse()).collect(),
            };
            let affinity = affinity(spec);
            let external_local = spec.external_traffic_policy.as_deref() == Some("Local");
            for port in spec.ports.as_deref().unwrap_or_default() {
                let tcp = port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
                let (true, Ok(number)) = (tcp, u16::try_from(port.port)) else {
                    continue;
                };
                let port_name = port.name.as_deref().unwrap_or_default();
                let separator = if port_name.is_empty() { "" } else { ":" };
                let is_local = spec.internal_traffic_policy.as_deref() == Some("Local");
                ports.extend(addresses.iter().map(|address| {
                    let family = Family::of(*address);
                    let of = |node| self.backends((namespace, name), port_name, family, node);
                    let all = of(None);
                    let here = || of(Some(&*self.node));
                    let backends = if is_local { here() } else { all.clone() };
                    let node_port = port.node_port.and_then(|port| u16::try_from(port).ok());
                    ServicePort {
                        node_port: node_port
                            .map(|port| NodePort { port, local: external_local.then(here) }),
                        affinity,
                        name: format!("{namespace}/{name}{separator}{port_name}"),
                        virtual_address: SocketAddr::new(*address, number),
                        drops: backends.is_empty() && !all.is_empty(),
                        backends,
                    }
                }));
            }
        }
        ports
    }

    /// The backends of a port, on one node or on all.
    fn backends(
        &self,
        (namespace, name): (&str, &str),
        port: &str,
        family: Family,
        node: Option<&str>,
    ) -> Vec<SocketAddr> {
        let (mut ready, mut draining) = (BTreeSet::new(), BTreeSet::new());
        let slices = self.slices.by_name.iter().filter(|((slice_namespace, _), slice)| {
            slice_namespace == namespace
                && slice.labels().get(SERVICE_NAME).is_some_and(|service| service == name)
                && slice.address_type == family.name()
        });
        for (_, slice) in slices {
            let number =
                slice.ports.iter().flatten().find_map(|p| {
                    (p.name.as_deref().unwrap_or_default() == port).then_some(p.port?)
                });
            let Some(Ok(number)) = number.map(u16::try_from) else {
                continue;
            };
            let is_on = |endpoint: &&Endpoint| {
                node.is_none_or(|node| endpoint.node_name.as_deref() == Some(node))
            };
            for endpoint in slice.endpoints.iter().filter(is_on) {
                let Some(Ok(address)) = endpoint.addresses.first().map(|a| a.parse::<IpAddr>())
                else {
                    continue;
                };
                let backend = SocketAddr::new(address, number);
                if is_ready(endpoint) {
                    ready.insert(backend);
                } else if is_draining(endpoint) {
                    draining.insert(backend);
                }
            }
        }
        (if ready.is_empty() { draining } else { ready }).into_iter().collect()
    }
}

/// In place of a headless Service's addresses: none, of each of its families.
fn nowhere(spec: &ServiceSpec) -> Vec<IpAddr> {
    let families = spec.ip_families.iter().flatten();
    let of = |family: &String| match family.as_str() {
        "IPv6" => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    families.map(of).collect()
}

/// The seconds of `sessionAffinity: ClientIP`; three hours if it does not say.
fn affinity(spec: &ServiceSpec) -> Option<i32> {
    const THREE_HOURS: i32 = 10_800;
    let configured = || {
        let config = spec.session_affinity_config.as_ref()?;
        config.client_ip.as_ref()?.timeout_seconds
    };
    let by_address = spec.session_affinity.as_deref() == Some("ClientIP");
    by_address.then(|| configured().unwrap_or(THREE_HOURS))
}

/// Unknown readiness counts as ready (the API's rule).
fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true)
}

fn is_draining(endpoint: &Endpoint) -> bool {
    endpoint
        .conditions
        .as_ref()
        .is_some_and(|c| c.serving.unwrap_or(true) && c.terminating.unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service() -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": "api", "namespace": "shop"},
            "spec": {"clusterIP": "10.96.0.80", "ports": [{"name": "http", "port": 80}]},
        }))
        .expect("a Service")
    }

    fn slice(endpoints: &Value) -> EndpointSlice {
        slice_of("IPv4", endpoints)
    }

    fn slice_of(family: &str, endpoints: &Value) -> EndpointSlice {
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("api-{family}"), "namespace": "shop",
                "labels": {"kubernetes.io/service-name": "api"},
            },
            "addressType": family,
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": endpoints,
        }))
        .expect("a slice")
    }

    fn backends(endpoints: &Value) -> Vec<String> {
        let mut table = ServiceTable::default();
        table.apply_service(Event::Apply(service()));
        table.apply_slice(Event::Apply(slice(endpoints)));
        table.service_ports()[0].backends.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ready_endpoints_hide_those_that_terminate() {
        let endpoints = json!([
            {"addresses": ["10.244.1.2"], "conditions": {"ready": true}},
            {"addresses": ["10.244.1.3"],
             "conditions": {"ready": false, "serving": true, "terminating": true}},
        ]);
        assert_eq!(backends(&endpoints), ["10.244.1.2:8080"]);
    }

    #[test]
    fn without_a_ready_endpoint_those_that_still_serve_are_used() {
        let endpoints = json!([
            {"addresses": ["10.244.1.2"],
             "conditions": {"ready": false, "serving": false, "terminating": true}},
            {"addresses": ["10.244.1.3"],
             "conditions": {"ready": false, "serving": true, "terminating": true}},
            {"addresses": ["10.244.1.4"],
             "conditions": {"ready": false, "serving": false, "terminating": false}},
        ]);
        assert_eq!(backends(&endpoints), ["10.244.1.3:8080"]);
    }

    #[test]
    fn a_local_policy_takes_endpoints_of_the_own_node_and_drops_without_any() {
        let mut local = service();
        let spec = local.spec.as_mut().expect("a spec");
        spec.internal_traffic_policy = Some("Local".to_owned());
        let endpoints = json!([{"addresses": ["10.244.1.2"], "nodeName": "n1"}]);
        for (node, count, drops) in [("n1", 1, false), ("n2", 0, true)] {
            let mut table = ServiceTable::of_node(node);
            table.apply_service(Event::Apply(local.clone()));
            table.apply_slice(Event::Apply(slice(&endpoints)));
            let port = table.service_ports().remove(0);
            assert_eq!((port.backends.len(), port.drops), (count, drops), "{node}");
        }
        let mut table = ServiceTable::of_node("n2");
        table.apply_service(Event::Apply(local));
        assert!(!table.service_ports()[0].drops, "without any endpoint it is rejected");
    }

    #[test]
    fn an_endpoint_without_conditions_is_ready() {
        assert_eq!(backends(&json!([{"addresses": ["10.244.1.2"]}])), ["10.244.1.2:8080"]);
    }

    #[test]
    fn each_cluster_address_has_the_backends_of_its_own_family() {
        let mut dual = service();
        let spec = dual.spec.as_mut().expect("a spec");
        spec.cluster_ips = Some(vec!["10.96.0.80".to_owned(), "fd00:10:96::50".to_owned()]);
        let mut table = ServiceTable::default();
        table.apply_service(Event::Apply(dual));
        table.apply_slice(Event::Apply(slice(&json!([{"addresses": ["10.244.1.2"]}]))));
        let v6 = slice_of("IPv6", &json!([{"addresses": ["fd00:10:244:1::2"]}]));
        table.apply_slice(Event::Apply(v6));
        let ports = table.service_ports();
        let text = |port: &ServicePort| (port.virtual_address.to_string(), port.backends.clone());
        let of = |address: &str| vec![address.parse().expect("an address")];
        assert_eq!(
            ports.iter().map(text).collect::<Vec<_>>(),
            [
                ("10.96.0.80:80".to_owned(), of("10.244.1.2:8080")),
                ("[fd00:10:96::50]:80".to_owned(), of("[fd00:10:244:1::2]:8080")),
            ]
        );
    }

    #[test]
    fn a_list_without_an_object_removes_it() {
        let mut table = ServiceTable::default();
        table.apply_service(Event::Apply(service()));
        assert!(!table.apply_service(Event::Init));
        assert!(table.apply_service(Event::InitDone));
        assert!(table.service_ports().is_empty());
    }
}
