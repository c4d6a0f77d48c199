//! Service → [`ServiceFacts`].

use k8s_openapi::api::core::v1 as api;
use serde_json::Value;

use super::{address, port, protocol, text};
use crate::{
    cluster::object::Facts,
    model::{ServiceFacts, ServicePort},
};

impl Facts for ServiceFacts {
    const KIND: &'static str = "Service";

    fn trim(raw: Value, complaints: &mut Vec<String>) -> Result<Self, serde_json::Error> {
        let service: api::Service = serde_json::from_value(raw)?;
        let spec = service.spec.unwrap_or_default();
        // `clusterIP` alone comes from servers and tools that do not know dual stack.
        let cluster_ips = spec
            .cluster_ips
            .filter(|ips| !ips.is_empty())
            .unwrap_or_else(|| spec.cluster_ip.into_iter().collect());
        let balancers = service
            .status
            .and_then(|status| status.load_balancer)
            .and_then(|balancer| balancer.ingress)
            .unwrap_or_default();
        let external = spec
            .external_ips
            .unwrap_or_default()
            .into_iter()
            .chain(balancers.into_iter().filter_map(|ingress| ingress.ip));
        Ok(Self {
            namespace: text(service.metadata.namespace),
            name: text(service.metadata.name),
            resource_version: text(service.metadata.resource_version),
            cluster_ips: cluster_ips
                .iter()
                .filter(|ip| !ip.is_empty() && *ip != "None")
                .filter_map(|ip| address("cluster IP", ip, complaints))
                .collect(),
            external_ips: external
                .filter_map(|ip| address("external IP", &ip, complaints))
                .collect(),
            ports: spec
                .ports
                .unwrap_or_default()
                .into_iter()
                .filter_map(|entry| service_port(entry, complaints))
                .collect(),
            has_selector: spec.selector.is_some_and(|selector| !selector.is_empty()),
            publish_not_ready: spec.publish_not_ready_addresses.unwrap_or(false),
            external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
            internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
        })
    }
}

fn service_port(entry: api::ServicePort, complaints: &mut Vec<String>) -> Option<ServicePort> {
    Some(ServicePort {
        port: port("port", entry.port, complaints)?,
        // Some clients write the absent node port as 0.
        node_port: entry
            .node_port
            .filter(|number| *number != 0)
            .and_then(|number| port("node port", number, complaints)),
        name: text(entry.name),
        protocol: protocol(entry.protocol),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::object::Object;

    #[test]
    fn a_headless_service_has_no_cluster_address() {
        let service = Object::<ServiceFacts>::from_value(json!({
            "metadata": {"namespace": "shop", "name": "db"},
            "spec": {"clusterIP": "None", "clusterIPs": ["None"], "selector": {"app": "db"},
                     "publishNotReadyAddresses": true, "ports": [{"port": 5432}]},
        }));
        assert!(service.complaints.is_empty());
        let facts = service.facts.unwrap();
        assert!(facts.cluster_ips.is_empty() && facts.has_selector && facts.publish_not_ready);
        assert_eq!(&*facts.ports[0].protocol, "TCP");
    }

    #[test]
    fn every_address_of_a_service_is_known() {
        let service = Object::<ServiceFacts>::from_value(json!({
            "metadata": {"namespace": "shop", "name": "api"},
            "spec": {"clusterIPs": ["10.96.0.80", "fd00::80"], "externalIPs": ["192.0.2.1"],
                     "externalTrafficPolicy": "Local",
                     "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.2"}, {"hostname": "lb"}]}},
        }));
        let facts = service.facts.unwrap();
        assert_eq!(facts.cluster_ips.len(), 2);
        assert_eq!(facts.external_ips.len(), 2);
        assert!(facts.external_local && !facts.internal_local && !facts.has_selector);
        assert_eq!(facts.ports[0].node_port, Some(30080));
    }
}
