//! Kustomization and chart: valid, the same, and with the least rights.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, Namespace, PodSpec, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role},
};
use rollrace_deploy::{
    deploy,
    render::{self, Identity, identity},
    scrape::PodMonitor,
    tools::Tool,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::custom::PrometheusRule;

/// The chart's values that make it render what `deploy/monitoring` holds.
const MONITORED: [&str; 3] =
    ["podMonitor.enabled=true", "prometheusRule.enabled=true", "dashboards.enabled=true"];

/// The object as a Kubernetes type, with the paths of all that this type does not know.
fn typed<T: DeserializeOwned>(object: &Value) -> Result<T, String> {
    let mut unknown = Vec::new();
    let text = object.to_string();
    let mut json = serde_json::Deserializer::from_str(&text);
    let read = serde_ignored::deserialize(&mut json, |path| unknown.push(path.to_string()));
    match read {
        Err(error) => Err(format!("{:?}: {error}", identity(object))),
        Ok(_) if !unknown.is_empty() => {
            Err(format!("{:?}: unknown fields {unknown:?}", identity(object)))
        }
        Ok(read) => Ok(read),
    }
}

/// The operator's objects have no types here: their labels are Kubernetes's own, the rest this
/// package's.
fn pod_monitor(object: &Value) -> Result<PodMonitor, String> {
    let mut bare = object.clone();
    for (key, known) in [("apiVersion", true), ("kind", true)] {
        assert_eq!(bare.as_object_mut().unwrap().remove(key).is_some(), known);
    }
    bare["metadata"].as_object_mut().unwrap().remove("labels");
    let read: Result<PodMonitor, String> = typed(&bare);
    read.map_err(|error| format!("{:?}: {error}", identity(object)))
}

fn check(object: &Value) -> Result<(), String> {
    let (api_version, kind, _, _) = identity(object);
    match (api_version.as_str(), kind.as_str()) {
        ("v1", "Namespace") => typed::<Namespace>(object).map(drop),
        ("v1", "ServiceAccount") => typed::<ServiceAccount>(object).map(drop),
        ("v1", "ConfigMap") => typed::<ConfigMap>(object).map(drop),
        ("apps/v1", "DaemonSet") => typed::<DaemonSet>(object).map(drop),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => typed::<ClusterRole>(object).map(drop),
        ("rbac.authorization.k8s.io/v1", "Role") => typed::<Role>(object).map(drop),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => {
            typed::<ClusterRoleBinding>(object).map(drop)
        }
        ("monitoring.coreos.com/v1", "PodMonitor") => pod_monitor(object).map(drop),
        ("monitoring.coreos.com/v1", "PrometheusRule") => typed::<PrometheusRule>(object).map(drop),
        _ => Err(format!("nothing here knows {api_version} {kind}")),
    }
}

fn by_identity(objects: Vec<Value>) -> BTreeMap<Identity, Value> {
    let count = objects.len();
    let found: BTreeMap<_, _> =
        objects.into_iter().map(|object| (identity(&object), object)).collect();
    assert_eq!(found.len(), count, "an object is there twice");
    found
}

fn the_agents_pod(objects: &[Value]) -> PodSpec {
    let set = objects.iter().find(|object| object["kind"] == "DaemonSet").expect("a DaemonSet");
    let set: DaemonSet = typed(set).unwrap();
    set.spec.unwrap().template.spec.unwrap()
}

#[test]
fn every_object_has_the_fields_that_kubernetes_knows_and_no_other() {
    let objects = [
        render::kustomize("base").unwrap(),
        render::kustomize("monitoring").unwrap(),
        render::helm(&MONITORED).unwrap(),
    ];
    for object in objects.iter().flatten() {
        check(object).unwrap();
    }
    let mut wrong = objects[0].iter().find(|object| object["kind"] == "DaemonSet").unwrap().clone();
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = Value::Null;
    let complaint = check(&wrong).unwrap_err();
    assert!(complaint.contains("readinesProbe"), "a slip must be found: {complaint}");
}

#[test]
fn the_chart_renders_what_the_kustomizations_hold_but_for_the_namespace() {
    for (folder, values) in [("base", &[][..]), ("monitoring", &MONITORED[..])] {
        let mut kustomized = by_identity(render::kustomize(folder).unwrap());
        kustomized.retain(|(_, kind, _, _), _| kind != "Namespace");
        let chart = by_identity(render::helm(values).unwrap());
        assert_eq!(
            kustomized.keys().collect::<Vec<_>>(),
            chart.keys().collect::<Vec<_>>(),
            "{folder}"
        );
        for (identity, object) in &kustomized {
            assert_eq!(object, &chart[identity], "{identity:?} differs: kustomize, then Helm");
        }
    }
}

#[test]
fn values_that_the_chart_does_not_know_are_refused() {
    for wrong in [
        "imagge.repository=x",
        "extraCapabilities={ALL}",
        "extraCapabilities={CAP_SYS_ADMIN}",
        "extraArgs={replay}",
        "maxUnavailable=0",
        "events=no",
        "events=false",
        "evictStale=yes",
        "evictStale=true",
        "evictAfter=0",
        "seccompProfile.type=Localhost",
        "podMonitor.enabled=maybe",
    ] {
        assert!(render::helm(&[wrong]).is_err(), "{wrong} was taken");
    }
}

#[test]
fn the_charts_values_reach_the_objects() {
    let objects = render::helm(&[
        "image.repository=registry.example.com/rollrace",
        "image.tag=1.2.3",
        "image.pullPolicy=Always",
        "imagePullSecrets[0].name=pull",
        "extraArgs={--max-attempts=131072}",
        "extraCapabilities={SYS_ADMIN}",
        "maxUnavailable=3",
        "events=off",
        "evictStale=on",
        "evictAfter=5",
        "seccompProfile.type=Localhost",
        "seccompProfile.localhostProfile=profiles/rollrace.json",
        "stateDir=/srv/rollrace",
        "resources.limits.memory=1Gi",
        "podMonitor.enabled=true",
        "podMonitor.labels.release=prometheus",
    ])
    .unwrap();
    for object in &objects {
        check(object).unwrap();
    }
    let pod = the_agents_pod(&objects);
    let agent = &pod.containers[0];
    assert_eq!(agent.image.as_deref(), Some("registry.example.com/rollrace:1.2.3"));
    let arguments = agent.args.as_ref().unwrap();
    let last = ["--events=off", "--evict-stale=on", "--evict-after=5", "--max-attempts=131072"];
    assert!(arguments.ends_with(&last.map(str::to_owned)), "{arguments:?}");
    let context = agent.security_context.as_ref().unwrap();
    let added = context.capabilities.as_ref().unwrap().add.as_ref().unwrap();
    assert_eq!(added, &["BPF", "PERFMON", "NET_ADMIN", "SYS_ADMIN"]);
    let state = pod.volumes.unwrap().remove(0).host_path.unwrap();
    assert_eq!(state.path, "/srv/rollrace");
    let monitor = objects.iter().find(|object| object["kind"] == "PodMonitor").unwrap();
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
}

#[test]
fn nothing_is_deleted_unless_it_is_asked_for() {
    for objects in [render::kustomize("base").unwrap(), render::helm(&[]).unwrap()] {
        let pod = the_agents_pod(&objects);
        let arguments = pod.containers[0].args.as_ref().unwrap();
        assert!(!arguments.iter().any(|argument| argument.contains("evict")), "{arguments:?}");
    }
}

#[test]
fn helm_finds_nothing_to_complain_about() {
    let chart = deploy("helm/rollrace");
    Tool::Helm.run(["lint".as_ref(), "--strict".as_ref(), chart.as_os_str()]).unwrap();
}

#[test]
fn the_agent_runs_with_three_capabilities_a_read_only_root_and_the_runtimes_seccomp_profile() {
    let objects = render::kustomize("base").unwrap();
    let pod = the_agents_pod(&objects);
    assert_eq!(pod.host_network, Some(true));
    let tolerations = pod.tolerations.as_ref().unwrap();
    assert!(tolerations.iter().any(|toleration| {
        toleration.operator.as_deref() == Some("Exists") && toleration.key.is_none()
    }));
    let seccomp = pod.security_context.as_ref().unwrap().seccomp_profile.as_ref().unwrap();
    assert_eq!(seccomp.type_, "RuntimeDefault");
    let context = pod.containers[0].security_context.as_ref().unwrap();
    assert_eq!(context.read_only_root_filesystem, Some(true));
    assert_eq!(context.allow_privilege_escalation, Some(false));
    assert_ne!(context.privileged, Some(true));
    let capabilities = context.capabilities.as_ref().unwrap();
    assert_eq!(capabilities.drop.as_ref().unwrap(), &["ALL"]);
    assert_eq!(capabilities.add.as_ref().unwrap(), &["BPF", "PERFMON", "NET_ADMIN"]);
}

#[test]
fn whoever_is_given_the_viewer_role_reads_the_agents_and_nothing_else() {
    let objects = render::kustomize("base").unwrap();
    let role = objects.iter().find(|object| object["kind"] == "Role").unwrap();
    let role: Role = typed(role).unwrap();
    assert_eq!(role.metadata.namespace.as_deref(), Some(render::NAMESPACE));
    let rights: Vec<(String, Vec<String>)> = role
        .rules
        .unwrap()
        .into_iter()
        .map(|rule| (rule.resources.unwrap().join(","), rule.verbs))
        .collect();
    assert_eq!(
        rights,
        [("pods".into(), vec!["list".into()]), ("pods/proxy".into(), vec!["get".into()])]
    );
}

#[test]
fn the_namespace_admits_pods_of_the_host_network() {
    let objects = render::kustomize("base").unwrap();
    let namespace = objects.iter().find(|object| object["kind"] == "Namespace").unwrap();
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "privileged");
}

#[test]
fn the_pod_monitor_keeps_the_metrics_own_namespace_and_names_the_node() {
    let objects = render::kustomize("monitoring").unwrap();
    let monitor = objects.iter().find(|object| object["kind"] == "PodMonitor").unwrap();
    let monitor = pod_monitor(monitor).unwrap();
    let [endpoint] = monitor.spec.pod_metrics_endpoints.as_slice() else {
        panic!("one port has metrics")
    };
    assert!(endpoint.honor_labels);
    let [node] = endpoint.relabelings.as_slice() else { panic!("one label is made") };
    assert_eq!(node.source_labels, ["__meta_kubernetes_pod_node_name"]);
    assert_eq!(node.target_label, "node");
    let pod = the_agents_pod(&objects);
    let ports = pod.containers[0].ports.as_ref().unwrap();
    assert!(ports.iter().any(|port| port.name.as_deref() == Some(&endpoint.port)));
    let wanted = monitor.spec.selector["matchLabels"].as_object().unwrap();
    let set = objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
    for (key, value) in wanted {
        assert_eq!(&set["spec"]["template"]["metadata"]["labels"][key], value);
    }
}
