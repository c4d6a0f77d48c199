//! The cluster side against a scripted API server: real HTTP, real watches, one story a test.

mod support;

use std::{sync::Arc, time::Duration};

use rollrace::{
    cluster::{self, ClusterStats, Restart, WatchName, WatchState},
    engine::{ClusterChange, Request},
    model::WorkloadKey,
};
use serde_json::{Value, json};
use support::api_server::{ApiServer, Call, Reply, Step, error_event, event};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Longer than any wait that the code under test makes: a test that needs it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

struct Agent {
    changes: mpsc::Receiver<ClusterChange>,
    requests: mpsc::Sender<Request>,
    stats: Arc<ClusterStats>,
    _shutdown: DropGuard,
}

impl Agent {
    async fn start(address: std::net::SocketAddr) -> Self {
        let name = format!("rollrace-{}-{}.kubeconfig", std::process::id(), address.port());
        let file = std::env::temp_dir().join(name);
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]});
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let client = cluster::connect(Some(&file)).await;
        std::fs::remove_file(&file).unwrap();
        let (sender, changes) = mpsc::channel(64);
        let (requests, receiver) = mpsc::channel(64);
        let stats = Arc::new(ClusterStats::default());
        let token = CancellationToken::new();
        let (stats_there, token_there) = (stats.clone(), token.clone());
        tokio::spawn(async move {
            let node = "n1".to_owned();
            cluster::run(client.unwrap(), node, sender, receiver, stats_there, token_there).await
        });
        Self { changes, requests, stats, _shutdown: token.drop_guard() }
    }

    /// Everything up to and with the first change that fits.
    async fn until(&mut self, fits: impl Fn(&ClusterChange) -> bool) -> Vec<ClusterChange> {
        let mut seen = Vec::new();
        loop {
            match timeout(PATIENCE, self.changes.recv()).await {
                Ok(Some(change)) => {
                    let found = fits(&change);
                    seen.push(change);
                    if found {
                        return seen;
                    }
                }
                Ok(None) => panic!("the cluster side ended after {seen:#?}"),
                Err(_) => panic!(
                    "nothing that fits within {PATIENCE:?}, but {seen:#?}\n{:#?}",
                    self.stats.snapshot()
                ),
            }
        }
    }

    async fn ask(&self, request: Request) {
        self.requests.send(request).await.unwrap();
    }
}

fn synced(change: &ClusterChange) -> bool {
    *change == ClusterChange::Synced(true)
}

fn pod(name: &str, version: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": version, "labels": {"app": "api"}},
        "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Running"}})
}

fn owned(mut object: Value, kind: &str, name: &str, uid: &str) -> Value {
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": kind,
        "name": name, "uid": uid, "controller": true}]);
    object
}

fn leaving(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-11-29T21:26:34Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    pod
}

fn replica_set(name: &str, deployment: &str) -> Value {
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": "50", "labels": {"app": "api"}},
        "spec": {"replicas": 1, "selector": {}}});
    owned(set, "Deployment", deployment, &format!("uid-{deployment}"))
}

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": "60"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "api"}}, "template": {}}})
}

fn slice(name: &str, version: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name, "resourceVersion": version,
            "labels": {"kubernetes.io/service-name": "api"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}],
        "ports": [{"port": 8080}]})
}

fn pod_name(change: &ClusterChange) -> Option<&str> {
    match change {
        ClusterChange::Pod(facts) => Some(&facts.name),
        _ => None,
    }
}

fn gone_pod(change: &ClusterChange) -> Option<&str> {
    match change {
        ClusterChange::PodGone(facts) => Some(&facts.name),
        _ => None,
    }
}

#[tokio::test]
async fn first_lists_then_changes_are_delivered_in_order() {
    let server = ApiServer::start(|call| match &*call.resource {
        "endpointslices" if call.is_streamed_list() => {
            let later = [
                Step::Wait(Duration::from_millis(200)),
                event("MODIFIED", &slice("api-1", "11")),
                event("DELETED", &slice("api-1", "12")),
                Step::Hold,
            ];
            Reply::streamed(&[slice("api-1", "10")], "10", &later)
        }
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    let seen = agent.until(|c| matches!(c, ClusterChange::SliceGone { .. })).await;
    let version = |c: &ClusterChange| match c {
        ClusterChange::Slice(facts) => Some(facts.resource_version.to_string()),
        _ => None,
    };
    assert_eq!(seen.iter().filter_map(version).collect::<Vec<_>>(), ["10", "11"]);
    let listed = ClusterChange::SlicesListed(vec![("shop".into(), "api-1".into())]);
    let at = |change: &ClusterChange| seen.iter().position(|c| c == change);
    assert!(at(&listed) < at(&ClusterChange::Synced(true)) && at(&listed).is_some(), "{seen:#?}");

    let slices = server.calls(|c| c.resource == "endpointslices");
    assert!(slices[0].agent.starts_with("rollrace/"), "{}", slices[0].agent);
    assert_eq!(slices[0].param("labelSelector"), "!service.kubernetes.io/service-proxy-name");
    let pods = server.calls(|c| c.resource == "pods");
    assert_eq!(pods[0].param("fieldSelector"), "spec.nodeName=n1");
    let snapshot = agent.stats.snapshot();
    assert!(snapshot.synced);
    assert_eq!(snapshot.watches[&WatchName::EndpointSlices].objects, 3);
    assert_eq!(snapshot.requests[&("endpointslices.discovery.k8s.io".to_owned(), 200)], 1);
}

#[tokio::test]
async fn a_pod_that_the_list_after_a_410_lacks_is_gone() {
    let server = ApiServer::start(|call| match (&*call.resource, call.before) {
        ("pods", 0) => {
            let gone = [Step::Wait(Duration::from_millis(1200)), error_event(410, "too old")];
            Reply::streamed(&[pod("a", "5"), pod("b", "6")], "6", &gone)
        }
        ("pods", _) => Reply::streamed(&[pod("a", "5")], "90", &[Step::Hold]),
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    let seen = agent.until(synced).await;
    assert_eq!(seen.iter().filter_map(gone_pod).collect::<Vec<_>>(), ["b"], "{seen:#?}");
    assert!(seen.contains(&ClusterChange::NodePodsListed(vec!["uid-a".into()])));
    assert_eq!(seen[0], ClusterChange::Synced(false));
    assert_eq!(agent.stats.watch(WatchName::Pods).restarts[&Restart::Gone410], 1);
}

#[tokio::test]
async fn a_closed_watch_goes_on_where_it_was_and_nothing_is_listed_again() {
    let server = ApiServer::start(|call| match (&*call.resource, call.before) {
        ("pods", 0) => {
            let later =
                [event("MODIFIED", &pod("a", "7")), Step::Wait(Duration::from_millis(1200))];
            Reply::streamed(&[pod("a", "5")], "6", &later)
        }
        ("pods", _) => Reply::Watch(vec![event("MODIFIED", &pod("a", "8")), Step::Hold]),
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    let eight =
        |c: &ClusterChange| matches!(c, ClusterChange::Pod(f) if &*f.resource_version == "8");
    let seen = agent.until(eight).await;
    assert!(!seen.contains(&ClusterChange::Synced(false)), "{seen:#?}");
    let calls = server.calls(|c| c.resource == "pods");
    assert_eq!(calls[1].param("resourceVersion"), "7");
    assert!(!calls[1].is_streamed_list());
    assert_eq!(agent.stats.watch(WatchName::Pods).restarts[&Restart::Closed], 1);
}

#[tokio::test]
async fn a_version_that_is_refused_by_code_is_not_asked_for_again() {
    // 504 with this message: the server was restored from a backup, and is behind the agent.
    for (code, message, reason) in [
        (410, "The resourceVersion for the provided watch is too old.", Restart::Gone410),
        (504, "Too large resource version: 99, current: 40", Restart::Ahead),
    ] {
        let server = ApiServer::start(move |call| match (&*call.resource, call.before) {
            ("pods", 0) => {
                Reply::streamed(&[pod("a", "99")], "99", &[Step::Wait(Duration::from_millis(1200))])
            }
            ("pods", 1) => Reply::Status(code, message),
            ("pods", _) => Reply::streamed(&[], "40", &[Step::Hold]),
            _ => Reply::nothing(call),
        })
        .await;
        let mut agent = Agent::start(server.address).await;
        agent.until(|c| gone_pod(c) == Some("a")).await;
        assert_eq!(agent.stats.watch(WatchName::Pods).restarts[&reason], 1);
    }
}

#[tokio::test]
async fn what_is_forbidden_is_named_and_the_rest_goes_on() {
    let server = ApiServer::start(|call| match &*call.resource {
        "pods" => Reply::Status(403, "pods is forbidden: User \"agent\" cannot watch"),
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    let pods = agent.stats.watch(WatchName::Pods);
    assert_eq!(pods.state, WatchState::Denied);
    let error = pods.last_error.unwrap();
    assert!(error.contains("cannot watch pods: 403") && error.contains("ClusterRole"), "{error}");
    assert_eq!(agent.stats.watch(WatchName::Services).state, WatchState::Synced);
}

#[tokio::test]
async fn a_server_without_streamed_lists_is_read_in_pages() {
    let server = ApiServer::start(|call| {
        if call.is_streamed_list() {
            return Reply::Status(422, "sendInitialEvents: Forbidden: it is not enabled");
        }
        match (&*call.resource, call.is_watch(), call.param("continue")) {
            ("pods", false, "") => Reply::list(&[pod("a", "5")], "9", Some("more")),
            ("pods", false, _) => Reply::list(&[pod("b", "6")], "9", None),
            _ => Reply::nothing(call),
        }
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    let seen = agent.until(synced).await;
    assert_eq!(seen.iter().filter_map(pod_name).collect::<Vec<_>>(), ["a", "b"]);
    let both = vec!["uid-a".into(), "uid-b".into()];
    assert!(seen.contains(&ClusterChange::NodePodsListed(both)));
    let watch = server.calls(|c| c.resource == "pods" && c.is_watch() && !c.is_streamed_list());
    assert_eq!(watch[0].param("resourceVersion"), "9");
}

#[tokio::test]
async fn a_server_that_ignores_the_wish_for_a_streamed_list_is_found_out() {
    let server = ApiServer::start(|call| {
        if call.is_streamed_list() {
            return Reply::Watch(vec![Step::Hold]);
        }
        Reply::nothing(call)
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    assert!(agent.stats.watch(WatchName::Pods).restarts[&Restart::NoStreaming] > 0);
}

#[tokio::test]
async fn an_object_that_makes_no_sense_is_counted_by_kind_and_named() {
    let mut broken = slice("broken", "9");
    broken["endpoints"] = json!("none");
    let server = ApiServer::start(move |call| match &*call.resource {
        "endpointslices" if call.is_streamed_list() => {
            let odd = Step::Line(json!({"what": "is this"}));
            let later = [odd, event("MODIFIED", &slice("api-1", "12")), Step::Hold];
            Reply::streamed(&[broken.clone(), slice("api-1", "10")], "11", &later)
        }
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    let twelve =
        |c: &ClusterChange| matches!(c, ClusterChange::Slice(f) if &*f.resource_version == "12");
    let seen = agent.until(twelve).await;
    let names = vec![("shop".into(), "broken".into()), ("shop".into(), "api-1".into())];
    assert!(seen.contains(&ClusterChange::SlicesListed(names)), "it exists: {seen:#?}");
    assert_eq!(agent.stats.snapshot().skipped["EndpointSlice"], 2);
}

#[tokio::test]
async fn a_server_that_comes_late_is_waited_for() {
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let mut agent = Agent::start(address).await;
    let waiting = async {
        while agent.stats.watch(WatchName::Pods).restarts[&Restart::Error] == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("a counted failure");
    assert_eq!(agent.stats.watch(WatchName::Pods).state, WatchState::Starting);
    let _server = ApiServer::start_at(address, Reply::nothing).await;
    agent.until(synced).await;
}

fn follow(since: &str) -> Request {
    let workload = WorkloadKey {
        namespace: "shop".into(),
        kind: "Deployment".into(),
        name: "api".into(),
        uid: "uid-api".into(),
    };
    Request::Follow { workload, api_version: "apps/v1".into(), since: since.into() }
}

/// The followed Deployment and its two sets; pods are the test's own.
fn shop(call: &Call) -> Reply {
    match &*call.resource {
        "deployments" if call.is_streamed_list() => {
            Reply::streamed(&[deployment("api")], "60", &[Step::Hold])
        }
        "deployments/api" => Reply::Object(deployment("api")),
        "replicasets" => {
            let sets = [
                replica_set("api-6c", "api"),
                replica_set("api-7d", "api"),
                replica_set("web-1", "web"),
            ];
            if call.is_watch() {
                Reply::streamed(&sets, "60", &[Step::Hold])
            } else {
                Reply::list(&sets, "60", None)
            }
        }
        _ => Reply::nothing(call),
    }
}

#[tokio::test]
async fn following_catches_a_pod_that_was_deleted_before() {
    let server = ApiServer::start(|call| match (&*call.resource, &call.namespace) {
        ("pods", Some(_)) if call.param("resourceVersion") == "100" => {
            let old = leaving(pod("old", "101"));
            Reply::Watch(vec![
                event("MODIFIED", &old),
                event("DELETED", &leaving(pod("old", "102"))),
                Step::Hold,
            ])
        }
        ("pods", Some(_)) if !call.is_watch() => Reply::list(&[pod("new", "99")], "103", None),
        _ => shop(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    agent.ask(follow("100")).await;
    let seen = agent.until(|c| gone_pod(c) == Some("old")).await;
    let Some(ClusterChange::PodGone(facts)) = seen.last() else { unreachable!() };
    assert_eq!(facts.deleted_at().unwrap().to_string(), "2026-11-29T21:26:04Z");
    let seen: Vec<_> = if seen.iter().any(|c| pod_name(c) == Some("new")) {
        seen
    } else {
        let more = agent.until(|c| pod_name(c) == Some("new")).await;
        seen.into_iter().chain(more).collect()
    };
    assert!(seen.iter().any(|c| matches!(c, ClusterChange::Workload(_))));
    assert_eq!(agent.stats.snapshot().followed, 1);

    let watch = server.calls(|c| c.resource == "pods" && c.namespace.is_some() && c.is_watch());
    assert_eq!(watch[0].param("labelSelector"), "app=api");
    let Request::Follow { workload, .. } = follow("") else { unreachable!() };
    agent.ask(Request::Unfollow { workload }).await;
    let ended = async {
        while agent.stats.snapshot().followed > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("it is followed no longer");
}

#[tokio::test]
async fn following_from_a_version_that_is_too_old_lists_instead() {
    let server = ApiServer::start(|call| match (&*call.resource, &call.namespace) {
        ("pods", Some(_)) if call.is_streamed_list() => {
            Reply::streamed(&[pod("new", "99")], "103", &[Step::Hold])
        }
        ("pods", Some(_)) if call.is_watch() => Reply::Watch(vec![error_event(410, "too old")]),
        _ => shop(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    agent.ask(follow("100")).await;
    agent.until(|c| pod_name(c) == Some("new")).await;
    assert_eq!(agent.stats.watch(WatchName::FollowedPods).restarts[&Restart::Gone410], 1);
}

fn resolve(pod: &str) -> Request {
    Request::Resolve { namespace: "shop".into(), pod: pod.into(), uid: format!("uid-{pod}").into() }
}

fn is_owner(change: &ClusterChange) -> bool {
    matches!(change, ClusterChange::Owner { .. })
}

/// The owner's name, if any, and how it was found.
fn owner(seen: &[ClusterChange]) -> (Option<&str>, &str) {
    match seen.last() {
        Some(ClusterChange::Owner { owner, how, .. }) => {
            (owner.as_ref().map(|owner| &*owner.name), how)
        }
        other => panic!("no answer but {other:?}"),
    }
}

fn sets(seen: &[ClusterChange]) -> Vec<&str> {
    seen.iter()
        .filter_map(|change| match change {
            ClusterChange::ReplicaSet(facts) => Some(&*facts.name),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn a_pod_that_lives_is_asked_for_its_owner() {
    let server = ApiServer::start(|call| match &*call.resource {
        "pods/api-7d-bcdfg" => {
            Reply::Object(owned(pod("api-7d-bcdfg", "7"), "ReplicaSet", "api-7d", "uid-api-7d"))
        }
        _ => shop(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    agent.ask(resolve("api-7d-bcdfg")).await;
    let seen = agent.until(is_owner).await;
    assert_eq!(owner(&seen), (Some("api-7d"), "the pod names its controller"));
    assert_eq!(sets(&seen), ["api-6c", "api-7d"], "with its sibling, and no other's");
    assert!(
        seen.iter().any(|c| matches!(c, ClusterChange::Workload(w) if &*w.object.name == "api"))
    );

    agent.ask(resolve("api-7d-bcdfg")).await;
    assert_eq!(agent.until(is_owner).await.len(), 1, "the second time it is known");
    assert_eq!(agent.stats.snapshot().resolve_cached, 1);
}

#[tokio::test]
async fn a_pod_that_is_gone_is_told_by_the_set_that_made_its_name() {
    let server = ApiServer::start(shop).await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    agent.ask(resolve("api-6c-24567")).await;
    let seen = agent.until(is_owner).await;
    let (name, how) = owner(&seen);
    assert_eq!(name, Some("api-6c"));
    assert_eq!(how, "the pod is gone; only ReplicaSet api-6c makes such a name");
    assert_eq!(sets(&seen), ["api-6c", "api-7d"]);
    assert_eq!(agent.stats.snapshot().requests[&("pods".to_owned(), 404)], 1);
}

#[tokio::test]
async fn a_name_that_fits_several_owners_is_nobodys() {
    let set = |name: &str| {
        let mut set = deployment(name);
        set["kind"] = json!("DaemonSet");
        set
    };
    let server = ApiServer::start(move |call| match &*call.resource {
        "daemonsets" => Reply::list(&[set("api-6c")], "60", None),
        _ => shop(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    agent.ask(resolve("api-6c-24567")).await;
    let seen = agent.until(is_owner).await;
    let (name, how) = owner(&seen);
    assert_eq!(name, None);
    assert!(how.contains("several: ReplicaSet api-6c, DaemonSet api-6c"), "{how}");
    agent.ask(resolve("web-9-bcdfg")).await;
    let seen = agent.until(is_owner).await;
    assert!(owner(&seen).1.contains("no ReplicaSet, StatefulSet or DaemonSet"), "{seen:?}");
}

#[tokio::test]
async fn a_look_up_that_is_forbidden_says_so_in_its_answer() {
    let server = ApiServer::start(|call| match &*call.resource {
        "replicasets" => Reply::Status(403, "replicasets.apps is forbidden"),
        _ => Reply::nothing(call),
    })
    .await;
    let mut agent = Agent::start(server.address).await;
    agent.until(synced).await;
    agent.ask(resolve("api-6c-24567")).await;
    let seen = agent.until(is_owner).await;
    let (name, how) = owner(&seen);
    assert_eq!(name, None);
    assert!(how.contains("cannot list replicasets.apps: 403"), "{how}");
}
