//! Objects that make no sense: skipped, counted, named, and nothing else suffers.

use rollrace::{
    cluster::{Facts, Object},
    engine::{ClusterChange, Request},
    model::{NodeFacts, PodFacts, ReplicaSetFacts, ServiceFacts, SliceFacts, WorkloadKey},
};
use serde_json::{Value, json};

use crate::{
    agent::Agent,
    objects::{deployment, leaving, owned, pod, pod_name, replica_set, slice},
    support::api_server::{ApiServer, Reply, Step, event},
};

fn broken(mut object: Value, at: &str, with: &Value) -> Value {
    *object.pointer_mut(at).unwrap_or_else(|| panic!("no {at}")) = with.clone();
    object
}

#[tokio::test]
async fn objects_that_make_no_sense_are_named_and_the_watch_goes_on() {
    let server = ApiServer::start(|call| {
        let (good, bad) = match &*call.resource {
            "pods" if call.namespace.is_none() => {
                (pod("good", "5"), broken(pod("bad", "5"), "/spec", &json!("none")))
            }
            "services" => {
                let service = json!({"metadata": {"namespace": "shop", "name": "good"},
                    "spec": {"clusterIPs": ["10.96.0.1"]}});
                let bad = json!({"metadata": {"namespace": "shop", "name": "bad"}, "spec": 7});
                (service, bad)
            }
            "endpointslices" => {
                (slice("good", "5"), broken(slice("bad", "5"), "/endpoints", &json!({})))
            }
            "replicasets" => {
                let bad = broken(replica_set("bad", "api"), "/spec/replicas", &json!("three"));
                (replica_set("good", "api"), bad)
            }
            "deployments" => (deployment("api"), json!(["no object at all"])),
            _ => return Reply::nothing(call),
        };
        if !call.is_streamed_list() {
            return Reply::nothing(call);
        }
        let nameless = json!({"metadata": {"namespace": "shop"}});
        let later = [
            event("MODIFIED", &bad),
            event("UNHEARD-OF", &good),
            Step::Line(json!({"type": "MODIFIED"})),
            Step::Line(json!([1, 2, 3])),
            event("ADDED", &nameless),
            event("ADDED", &broken(good.clone(), "/metadata/name", &json!("last"))),
            Step::Hold,
        ];
        Reply::streamed(&[bad.clone(), good], "6", &later)
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(|c| *c == ClusterChange::Synced(true)).await;
    let workload = WorkloadKey {
        namespace: "shop".into(),
        kind: "Deployment".into(),
        name: "api".into(),
        uid: "uid-api".into(),
    };
    agent.ask(Request::Follow { workload, api_version: "apps/v1".into(), since: "".into() }).await;
    agent.until(|c| matches!(c, ClusterChange::ReplicaSet(f) if &*f.name == "last")).await;
    let snapshot = agent.stats.snapshot();
    for (kind, least) in [("Pod", 3), ("Service", 3), ("EndpointSlice", 3), ("ReplicaSet", 3)] {
        let count = snapshot.skipped.get(kind).copied().unwrap_or(0);
        assert!(count >= least, "{kind}: {count} in {snapshot:#?}");
    }
    let named = |what: &str| snapshot.complaints.iter().any(|text| text.starts_with(what));
    assert!(named("ReplicaSet shop/bad: cannot be read, the object is skipped: "), "{snapshot:#?}");
    assert!(snapshot.complaints.len() <= 16, "{snapshot:#?}");
    assert!(snapshot.synced, "none of it is a reason to stop");
}

#[tokio::test]
async fn a_pod_of_an_owner_of_unheard_kind_is_a_pod_all_the_same() {
    let odd = owned(pod("odd", "5"), "Contraption", "thing", "uid-thing");
    let server = ApiServer::start(move |call| match &*call.resource {
        "pods" if call.is_streamed_list() => {
            Reply::streamed(std::slice::from_ref(&odd), "6", &[Step::Hold])
        }
        "pods/odd" => Reply::Object(odd.clone()),
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(|c| pod_name(c) == Some("odd")).await;
    let (namespace, name) = ("shop".into(), "odd".into());
    agent.ask(Request::Resolve { namespace, pod: name, uid: "uid-odd".into() }).await;
    let seen = agent.until(|c| matches!(c, ClusterChange::Owner { .. })).await;
    let Some(ClusterChange::Owner { owner: Some(owner), .. }) = seen.last() else { panic!() };
    assert_eq!(&*owner.kind, "Contraption");
    assert!(agent.stats.snapshot().skipped.is_empty());
}

/// Every path to a value inside.
fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                paths(
                    inner,
                    &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                paths(inner, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// Replaces each value inside by each of these: the object is read, or skipped and complained about
/// under its name.
fn survives<F: Facts>(good: &Value) {
    let strange = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("\u{0}∞"),
        json!([]),
        json!([[null]]),
        json!({}),
        json!({"a": {"b": []}}),
    ];
    let mut all = Vec::new();
    paths(good, "", &mut all);
    for path in all {
        for with in &strange {
            let mut object = good.clone();
            *object.pointer_mut(&path).unwrap() = with.clone();
            let read = Object::<F>::from_value(object);
            let said = !read.complaints.is_empty();
            assert!(read.facts.is_some() || said, "{} {path} {with}: skipped in silence", F::KIND);
            if !path.starts_with("/metadata") && !path.is_empty() {
                let named = read.complaints.iter().all(|c| c.object.starts_with("shop/"));
                assert!(named, "{} {path} {with}: {:?}", F::KIND, read.complaints);
            }
        }
    }
}

#[test]
fn whatever_stands_in_an_object_it_is_read_or_skipped_and_named() {
    let mut full = leaving(owned(pod("a", "5"), "ReplicaSet", "r", "u"));
    full["status"] = json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "x"}],
        "containerStatuses": [{"name": "main", "restartCount": 1, "ready": true, "image": "i",
            "imageID": "d", "state": {"terminated": {"exitCode": 137}}}]});
    survives::<PodFacts>(&full);
    let mut with_all = slice("a", "5");
    with_all["endpoints"][0]["conditions"] = json!({"ready": true, "terminating": false});
    with_all["endpoints"][0]["targetRef"] = json!({"kind": "Pod", "name": "a", "uid": "u"});
    survives::<SliceFacts>(&with_all);
    survives::<ReplicaSetFacts>(&replica_set("a", "b"));
    survives::<ServiceFacts>(&json!({"metadata": {"namespace": "shop", "name": "s"}, "spec": {
        "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "externalIPs": ["192.0.2.1"],
        "selector": {"app": "api"}, "type": "NodePort",
        "ports": [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080}]}}));
    survives::<NodeFacts>(&json!({"metadata": {"namespace": "shop", "name": "n1"}, "status": {
        "conditions": [{"type": "Ready", "status": "True",
            "lastTransitionTime": "2026-11-29T21:26:34Z"}]}}));
}
