//! A large cluster's Services and slices, as an API server would write them.

use std::fmt::Write as _;

/// How large.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Services, each with a slice.
    pub services: u32,
    /// Endpoints of all slices.
    pub endpoints: u32,
}

/// One Service's slice as it stands.
#[derive(Clone, Debug)]
pub struct Slice {
    number: u32,
    version: u64,
    endpoints: Vec<Endpoint>,
}

#[derive(Clone, Copy, Debug)]
struct Endpoint {
    /// Which pod.
    number: u32,
    /// How many pods had its place before it.
    generation: u32,
    leaving: bool,
}

impl Size {
    /// Every slice, at the first versions.
    pub fn slices(self) -> Vec<Slice> {
        let (each, more) = (self.endpoints / self.services, self.endpoints % self.services);
        let mut next = 0;
        (0..self.services)
            .map(|number| {
                let count = each + u32::from(number < more);
                let endpoints = (next..next + count)
                    .map(|number| Endpoint { number, generation: 0, leaving: false })
                    .collect();
                next += count;
                Slice { number, version: u64::from(number) + 1, endpoints }
            })
            .collect()
    }
}

/// The namespace and name of a Service: a hundred namespaces.
fn name(number: u32) -> (String, String) {
    (format!("team-{:02}", number % 100), format!("service-{number:05}"))
}

/// A Service's object.
pub fn service(number: u32) -> String {
    let (namespace, name) = name(number);
    let [_, a, b, c] = (0x0060_0000 + number + 1).to_be_bytes();
    format!(
        r#"{{"kind":"Service","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"{namespace}","uid":"5e000000-0000-4000-8000-{number:012}","resourceVersion":"1","creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"{name}","app.kubernetes.io/managed-by":"Helm"}},"annotations":{{"meta.helm.sh/release-name":"{name}"}}}},"spec":{{"type":"ClusterIP","clusterIP":"10.{a}.{b}.{c}","clusterIPs":["10.{a}.{b}.{c}"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","internalTrafficPolicy":"Cluster","sessionAffinity":"None","selector":{{"app":"{name}"}},"ports":[{{"name":"http","protocol":"TCP","port":80,"targetPort":8080}}]}},"status":{{"loadBalancer":{{}}}}}}"#
    )
}

impl Slice {
    /// The next change of it: a pod of it leaves, or the one that leaves is replaced.
    pub fn change(&mut self, version: u64) {
        self.version = version;
        if let Some(leaves) = self.endpoints.iter_mut().find(|endpoint| endpoint.leaving) {
            leaves.leaving = false;
            leaves.generation += 1;
        } else if let Some(first) = self.endpoints.first_mut() {
            first.leaving = true;
            self.endpoints.rotate_left(1);
        }
    }

    /// Whether it has endpoints to change.
    pub fn can_change(&self) -> bool {
        !self.endpoints.is_empty()
    }

    /// The object.
    pub fn json(&self) -> String {
        let (namespace, service) = name(self.number);
        let mut text = format!(
            r#"{{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{{"name":"{service}-x7k2p","generateName":"{service}-","namespace":"{namespace}","uid":"e5000000-0000-4000-8000-{:012}","resourceVersion":"{}","generation":{},"creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"{service}","endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"{service}"}},"annotations":{{"endpoints.kubernetes.io/last-change-trigger-time":"2026-01-01T00:00:00Z"}},"ownerReferences":[{{"apiVersion":"v1","kind":"Service","name":"{service}","uid":"5e000000-0000-4000-8000-{:012}","controller":true,"blockOwnerDeletion":true}}],"managedFields":[{{"manager":"kube-controller-manager","operation":"Update","apiVersion":"discovery.k8s.io/v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:addressType":{{}},"f:endpoints":{{}},"f:metadata":{{"f:annotations":{{".":{{}},"f:endpoints.kubernetes.io/last-change-trigger-time":{{}}}},"f:generateName":{{}},"f:labels":{{".":{{}},"f:app":{{}},"f:kubernetes.io/service-name":{{}}}}}},"f:ports":{{}}}}}}]}},"addressType":"IPv4","endpoints":["#,
            self.number, self.version, self.version, self.number
        );
        for (place, endpoint) in self.endpoints.iter().enumerate() {
            let Endpoint { number, generation, leaving } = *endpoint;
            let [_, a, b, c] = (0x0080_0000 + number).to_be_bytes();
            let comma = if place == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                r#"{comma}{{"addresses":["10.{a}.{b}.{c}"],"conditions":{{"ready":{},"serving":true,"terminating":{leaving}}},"targetRef":{{"kind":"Pod","namespace":"{namespace}","name":"{service}-6c7d8f9b5-{number:06}{generation}","uid":"90d00000-0000-4000-{generation:04}-{number:012}"}},"nodeName":"node-{:04}","zone":"zone-{}"}}"#,
                !leaving,
                number % 5_000,
                number % 3
            );
        }
        text.push_str(r#"],"ports":[{"name":"http","protocol":"TCP","port":8080}]}"#);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_shared_out_and_what_is_written_is_json() {
        let slices = Size { services: 4, endpoints: 10 }.slices();
        let counts: Vec<usize> = slices.iter().map(|slice| slice.endpoints.len()).collect();
        assert_eq!(counts, [3, 3, 2, 2]);
        let of = |slice: &Slice| -> serde_json::Value {
            serde_json::from_str(&slice.json()).expect("JSON")
        };
        assert_eq!(of(&slices[0])["endpoints"].as_array().map(Vec::len), Some(3));
        let service: serde_json::Value = serde_json::from_str(&service(9_999)).expect("JSON");
        assert_eq!(service["spec"]["clusterIP"], "10.96.39.16");
        let mut slice = slices[0].clone();
        slice.change(20);
        let left = of(&slice);
        assert_eq!(left["endpoints"][2]["conditions"]["terminating"], true);
        let uid = left["endpoints"][2]["targetRef"]["uid"].clone();
        slice.change(21);
        assert_ne!(of(&slice)["endpoints"][2]["targetRef"]["uid"], uid);
        assert_eq!(of(&slice)["endpoints"][2]["conditions"]["terminating"], false);
    }
}
