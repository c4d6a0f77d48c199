//! The defaults that a real API server fills in, as far as a kubelet, a proxy or an operator reads
//! them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::resource::{self, Resource};
use super::store::State;

/// Fills in the defaults of the object's type.
pub fn fill(resource: &Resource, object: &mut Value, state: &State) -> Result<(), Failure> {
    match resource.plural {
        "pods" => {
            pod_spec(&mut object["spec"]);
            default(&mut object["spec"], "enableServiceLinks", true);
            default_object(
                &mut object["status"],
                json!({ "phase": "Pending", "qosClass": "BestEffort" }),
            );
        }
        "deployments" => {
            default_object(
                &mut object["spec"],
                json!({ "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600 }),
            );
            strategy(&mut object["spec"]["strategy"], "25%", "25%");
            template(object);
        }
        "replicasets" => {
            default(&mut object["spec"], "replicas", 1);
            default_object(&mut object["status"], json!({ "replicas": 0 }));
            template(object);
        }
        "statefulsets" => {
            default_object(
                &mut object["spec"],
                json!({ "replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady" }),
            );
            default_object(
                &mut object["spec"]["updateStrategy"],
                json!({ "type": "RollingUpdate" }),
            );
            if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
                default_object(
                    &mut object["spec"]["updateStrategy"]["rollingUpdate"],
                    json!({ "partition": 0 }),
                );
            }
            default_object(&mut object["status"], json!({ "replicas": 0, "availableReplicas": 0 }));
            template(object);
        }
        "daemonsets" => {
            default(&mut object["spec"], "revisionHistoryLimit", 10);
            strategy(&mut object["spec"]["updateStrategy"], "0", "1");
            template(object);
        }
        "services" => return service(resource, object, state),
        "endpointslices" => {
            // Storage keeps no empty lists, so the slice of a Service without endpoints shows null.
            for field in ["endpoints", "ports"] {
                if object[field].as_array().is_some_and(Vec::is_empty) {
                    object[field] = Value::Null;
                }
            }
        }
        "namespaces" => default_object(&mut object["status"], json!({ "phase": "Active" })),
        _ => {}
    }
    Ok(())
}

fn default(object: &mut Value, field: &str, value: impl Into<Value>) {
    if object.is_null() {
        *object = Value::Object(Map::new());
    }
    if object.get(field).is_none_or(Value::is_null) {
        object[field] = value.into();
    }
}

fn default_object(object: &mut Value, fields: Value) {
    if let Value::Object(fields) = fields {
        for (field, value) in fields {
            default(object, &field, value);
        }
    }
}

/// A percentage stays text, a number becomes one.
fn int_or_percent(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
}

fn strategy(strategy: &mut Value, max_surge: &str, max_unavailable: &str) {
    default(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        default(strategy, "rollingUpdate", Map::new());
        default(&mut strategy["rollingUpdate"], "maxSurge", int_or_percent(max_surge));
        default(&mut strategy["rollingUpdate"], "maxUnavailable", int_or_percent(max_unavailable));
    }
}

fn template(object: &mut Value) {
    pod_spec(&mut object["spec"]["template"]["spec"]);
}

fn pod_spec(spec: &mut Value) {
    default_object(
        spec,
        json!({
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "securityContext": {}, "schedulerName": "default-scheduler",
        }),
    );
    let host_network = spec["hostNetwork"] == true;
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        default_object(
            container,
            json!({
                "resources": {}, "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }),
        );
        for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            default(port, "protocol", "TCP");
            if host_network {
                let container_port = port["containerPort"].clone();
                default(port, "hostPort", container_port);
            }
        }
        for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
            let Some(probe) = container.get_mut(probe).filter(|probe| probe.is_object()) else {
                continue;
            };
            default_object(
                probe,
                json!({ "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3 }),
            );
            if let Some(get) = probe.get_mut("httpGet") {
                default_object(get, json!({ "path": "/", "scheme": "HTTP" }));
            }
        }
    }
}

fn service(resource: &Resource, object: &mut Value, state: &State) -> Result<(), Failure> {
    let spec = &mut object["spec"];
    default_object(
        spec,
        json!({
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ipFamilyPolicy": "SingleStack",
        }),
    );
    if matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer")) {
        default(spec, "externalTrafficPolicy", "Cluster");
    }
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        default(port, "protocol", "TCP");
        let own = port["port"].clone();
        default(port, "targetPort", own);
    }
    if spec["type"] != "ExternalName" {
        cluster_ips(resource, spec, state)?;
    }
    default_object(&mut object["status"], json!({ "loadBalancer": {} }));
    Ok(())
}

/// `clusterIP`, `clusterIPs` and `ipFamilies` follow from one another; what is missing is
/// allocated.
fn cluster_ips(resource: &Resource, spec: &mut Value, state: &State) -> Result<(), Failure> {
    let mut addresses: Vec<String> = match (&spec["clusterIPs"], &spec["clusterIP"]) {
        (Value::Array(list), _) if !list.is_empty() => {
            list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
        }
        (_, Value::String(one)) if !one.is_empty() => vec![one.clone()],
        _ => Vec::new(),
    };
    let headless = addresses.first().is_some_and(|first| first == "None");
    if spec["ipFamilies"].as_array().is_none_or(Vec::is_empty) {
        let families: Vec<&str> =
            addresses.iter().map(|a| if a.contains(':') { "IPv6" } else { "IPv4" }).collect();
        spec["ipFamilies"] = if families.is_empty() { json!(["IPv4"]) } else { json!(families) };
    }
    if !headless {
        let families = spec["ipFamilies"].as_array().cloned().unwrap_or_default();
        for family in families.iter().skip(addresses.len()) {
            addresses.push(allocate(resource, family == "IPv6", state)?.to_string());
        }
        if families.len() > 1 && spec["ipFamilyPolicy"] == "SingleStack" {
            spec["ipFamilyPolicy"] = "RequireDualStack".into();
        }
    }
    spec["clusterIP"] = addresses.first().cloned().unwrap_or_default().into();
    spec["clusterIPs"] = addresses.into();
    Ok(())
}

/// The first free address of 10.96.1.0/24 or `fd00:10:96::/112` (kubeadm's service range is
/// 10.96.0.0/12; its first 256 addresses are left to those who choose their own).
fn allocate(resource: &Resource, v6: bool, state: &State) -> Result<IpAddr, Failure> {
    let services = resource::find("", "v1", "services").expect("services are in the table");
    let taken: BTreeSet<String> = state
        .list(services, None)
        .flat_map(|(_, service)| {
            service["spec"]["clusterIPs"].as_array().cloned().unwrap_or_default()
        })
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    (1..=254_u8)
        .map(|host| -> IpAddr {
            if v6 {
                Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 1, host.into()).into()
            } else {
                Ipv4Addr::new(10, 96, 1, host).into()
            }
        })
        .find(|address| !taken.contains(&address.to_string()))
        .ok_or_else(|| {
            Failure::invalid(resource, "", "spec.clusterIPs: no free address in the service range")
        })
}
