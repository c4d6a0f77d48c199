//! `EndpointSlice` → [`SliceFacts`].

use k8s_openapi::api::discovery::v1 as api;
use serde_json::Value;

use super::{address, first_label, port, protocol, text};
use crate::{
    cluster::object::Facts,
    model::{Endpoint, EndpointConditions, ObjectRef, SliceFacts, SlicePort},
};

impl Facts for SliceFacts {
    const KIND: &'static str = "EndpointSlice";

    fn trim(raw: Value, complaints: &mut Vec<String>) -> Result<Self, serde_json::Error> {
        let slice: api::EndpointSlice = serde_json::from_value(raw)?;
        let is_ip = matches!(slice.address_type.as_str(), "IPv4" | "IPv6");
        if !is_ip && slice.address_type != "FQDN" {
            complaints
                .push(format!("address type {:?} is unknown: no endpoints", slice.address_type));
        }
        let endpoints = if is_ip { slice.endpoints } else { Vec::new() };
        Ok(Self {
            service: first_label(&slice.metadata, &["kubernetes.io/service-name"]),
            managed_by: first_label(&slice.metadata, &["endpointslice.kubernetes.io/managed-by"]),
            namespace: text(slice.metadata.namespace),
            name: text(slice.metadata.name),
            resource_version: text(slice.metadata.resource_version),
            ports: slice
                .ports
                .unwrap_or_default()
                .into_iter()
                .filter_map(|port| slice_port(port, complaints))
                .collect(),
            endpoints: endpoints
                .into_iter()
                .filter_map(|endpoint| slice_endpoint(endpoint, complaints))
                .collect(),
        })
    }
}

/// An absent port number matches any; one that is no port number makes no sense at all.
fn slice_port(entry: api::EndpointPort, complaints: &mut Vec<String>) -> Option<SlicePort> {
    let number = match entry.port {
        Some(number) => Some(port("port", number, complaints)?),
        None => None,
    };
    Some(SlicePort { name: text(entry.name), protocol: protocol(entry.protocol), port: number })
}

fn slice_endpoint(entry: api::Endpoint, complaints: &mut Vec<String>) -> Option<Endpoint> {
    let addresses: Vec<_> =
        entry.addresses.iter().filter_map(|text| address("address", text, complaints)).collect();
    if addresses.is_empty() {
        return None;
    }
    let conditions = entry.conditions.unwrap_or_default();
    Some(Endpoint {
        addresses,
        conditions: EndpointConditions {
            ready: conditions.ready.unwrap_or(true),
            serving: conditions.serving.unwrap_or(true),
            terminating: conditions.terminating.unwrap_or(false),
        },
        node: entry.node_name.map(Into::into),
        pod: entry.target_ref.filter(|target| target.kind.as_deref() == Some("Pod")).and_then(
            |target| {
                Some(ObjectRef {
                    kind: "Pod".into(),
                    api_version: text(target.api_version),
                    name: target.name?.into(),
                    uid: text(target.uid),
                })
            },
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::object::Object;

    #[test]
    fn what_a_slice_leaves_out_has_its_documented_meaning() {
        let slice = Object::<SliceFacts>::from_value(json!({
            "metadata": {"namespace": "shop", "name": "api-x", "resourceVersion": "7"},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"]}],
        }));
        assert!(slice.complaints.is_empty(), "{:?}", slice.complaints);
        let facts = slice.facts.unwrap();
        assert!(facts.ports.is_empty());
        assert_eq!(&*facts.service, "");
        let endpoint = &facts.endpoints[0];
        assert_eq!(
            endpoint.conditions,
            EndpointConditions { ready: true, serving: true, terminating: false }
        );
        assert_eq!((endpoint.pod.as_ref(), endpoint.node.as_ref()), (None, None));
    }

    #[test]
    fn an_endpoint_that_makes_no_sense_is_named_and_the_others_stay() {
        let slice = Object::<SliceFacts>::from_value(json!({
            "metadata": {"namespace": "shop", "name": "api-x"},
            "addressType": "IPv6",
            "endpoints": [{"addresses": ["not an address"]}, {"addresses": ["fd00::1"]}],
            "ports": [{"name": "http", "port": 8080}, {"port": 70000}, {"name": "any"}],
        }));
        let facts = slice.facts.unwrap();
        assert_eq!(facts.endpoints.len(), 1);
        assert_eq!(facts.ports.len(), 2);
        assert_eq!(facts.ports[1].port, None);
        assert_eq!(slice.complaints.len(), 2);
        assert!(slice.complaints[0].to_string().starts_with("EndpointSlice shop/api-x: "));
    }

    #[test]
    fn names_instead_of_addresses_are_no_endpoints_and_no_fault() {
        let slice = Object::<SliceFacts>::from_value(json!({
            "metadata": {"namespace": "shop", "name": "outside"},
            "addressType": "FQDN",
            "endpoints": [{"addresses": ["example.org"]}],
        }));
        assert!(slice.complaints.is_empty());
        assert!(slice.facts.unwrap().endpoints.is_empty());
    }

    #[test]
    fn an_unreadable_slice_keeps_its_name() {
        let slice = Object::<SliceFacts>::from_value(json!({
            "metadata": {"namespace": "shop", "name": "broken", "resourceVersion": "9"},
            "addressType": "IPv4",
            "endpoints": "none",
        }));
        assert!(slice.facts.is_none());
        assert_eq!(&*slice.identity.name, "broken");
        assert_eq!(&*slice.identity.resource_version, "9");
        assert!(slice.complaints[0].what.contains("skipped"));
    }
}
