//! A thousand Deployments that roll out at once, all dialled by this node.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rollrace::{
    engine::{AttemptCounts, Config, Input, State, What, step},
    model::{Answer, Attempt, AttemptKey, Cause, Clock, Failure, Mono, Sighting},
};
use serde_json::{Value, json};

use crate::{
    agent::Agent,
    objects::owned,
    support::api_server::{ApiServer, Call, Reply, Step, event},
};

const MANY: usize = 1_000;
const CLIENT: &str = "10.9.9.9";
/// A failure waits for its evidence at most this long.
const EVIDENCE: Duration = Duration::from_secs(31);

fn address(kind: u8, number: usize) -> String {
    format!("10.{kind}.{}.{}", number / 250, number % 250 + 1)
}

fn meta(name: &str, version: u64, hash: Option<&str>) -> Value {
    let app = name.split('-').next();
    let mut meta = json!({"namespace": "shop", "name": name, "uid": format!("uid-{name}"),
        "resourceVersion": version.to_string(), "labels": {"app": app}});
    if let Some(hash) = hash {
        meta["labels"]["pod-template-hash"] = json!(hash);
    }
    meta
}

fn deployment(number: usize, rolls: bool) -> Value {
    let mut meta = meta(&format!("d{number}"), if rolls { 5_000 } else { 50 }, None);
    meta["generation"] = json!(if rolls { 2 } else { 1 });
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta,
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": format!("d{number}")}},
            "template": {}},
        "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2,
            "availableReplicas": 2}})
}

fn sets(number: usize, rolls: bool) -> Vec<Value> {
    let of = |hash: &str, revision: &str, wanted: i32, version: u64| {
        let mut meta = meta(&format!("d{number}-{hash}"), version, Some(hash));
        meta["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
        meta["annotations"] = json!({"deployment.kubernetes.io/revision": revision});
        let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta,
            "spec": {"replicas": wanted, "selector": {}}, "status": {"replicas": wanted}});
        owned(set, "Deployment", &format!("d{number}"), &format!("uid-d{number}"))
    };
    if rolls {
        vec![of("old", "1", 1, 5_001), of("new", "2", 1, 5_002)]
    } else {
        vec![of("old", "1", 2, 40)]
    }
}

fn pod(number: usize, rolls: bool) -> Value {
    let name = format!("d{number}-old-bcdfg");
    let mut meta = meta(&name, if rolls { 5_003 } else { 45 }, Some("old"));
    if rolls {
        let ends = Timestamp::now() + Duration::from_secs(30);
        meta["deletionTimestamp"] = json!(ends.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        meta["deletionGracePeriodSeconds"] = json!(30);
    }
    let pod = json!({"metadata": meta, "spec": {"nodeName": "n2", "containers": []},
        "status": {"phase": "Running", "podIP": address(1, number)}});
    let set = format!("d{number}-old");
    owned(pod, "ReplicaSet", &set, &format!("uid-{set}"))
}

fn slice(number: usize, rolls: bool) -> Value {
    json!({"metadata": {"namespace": "shop", "name": format!("d{number}-x"),
            "resourceVersion": if rolls { "6000" } else { "60" },
            "labels": {"kubernetes.io/service-name": format!("d{number}")}},
        "addressType": "IPv4", "ports": [{"port": 8080}],
        "endpoints": [{"addresses": [address(1, number)], "nodeName": "n2",
            "conditions": {"ready": !rolls, "serving": true, "terminating": rolls},
            "targetRef": {"kind": "Pod", "namespace": "shop", "name": format!("d{number}-old-bcdfg"),
                "uid": format!("uid-d{number}-old-bcdfg")}}]})
}

fn service(number: usize) -> Value {
    json!({"metadata": {"namespace": "shop", "name": format!("d{number}"), "resourceVersion": "30"},
        "spec": {"clusterIP": address(2, number), "clusterIPs": [address(2, number)],
            "selector": {"app": "a"}, "ports": [{"port": 80, "protocol": "TCP"}]}})
}

fn answer(call: &Call, rolls: bool) -> Reply {
    let all = |make: &dyn Fn(usize) -> Value| (0..MANY).map(make).collect::<Vec<_>>();
    if call.namespace.is_none() {
        let client = json!({"metadata": {"namespace": "shop", "name": "client", "uid": "uid-client",
            "resourceVersion": "9"}, "spec": {"nodeName": "n1", "containers": []},
            "status": {"phase": "Running", "podIP": CLIENT}});
        let items = match &*call.resource {
            "endpointslices" => all(&|number| slice(number, false)),
            "services" => all(&service),
            "pods" => vec![client],
            _ => return Reply::nothing(call),
        };
        if call.resource != "endpointslices" {
            return Reply::streamed(&items, "100", &[Step::Hold]);
        }
        // The rollouts begin when the test says so: the watch is closed, and goes on with them.
        if call.is_streamed_list() {
            return Reply::streamed(&items, "100", &[Step::Wait(Duration::from_secs(2))]);
        }
        let leaving = (0..MANY).map(|number| event("MODIFIED", &slice(number, true)));
        return Reply::Watch(leaving.chain([Step::Hold]).collect());
    }
    let number_of = |name: &str| name.trim_start_matches('d').split('-').next()?.parse().ok();
    let by_name = call.param("fieldSelector").strip_prefix("metadata.name=");
    let selected: Option<usize> =
        by_name.or(call.param("labelSelector").strip_prefix("app=")).and_then(number_of);
    if let Some((kind, name)) = call.resource.split_once('/') {
        return match (kind, number_of(name)) {
            ("pods", Some(number)) => Reply::Object(pod(number, rolls)),
            ("deployments", Some(number)) => Reply::Object(deployment(number, rolls)),
            _ => Reply::Status(404, "not found"),
        };
    }
    let items = match (&*call.resource, selected) {
        ("deployments", Some(number)) => vec![deployment(number, rolls)],
        ("replicasets", Some(number)) => sets(number, rolls),
        ("pods", Some(number)) => vec![pod(number, rolls)],
        ("deployments", None) => all(&|number| deployment(number, rolls)),
        ("replicasets", None) => (0..MANY).flat_map(|number| sets(number, rolls)).collect(),
        ("pods", None) => all(&|number| pod(number, rolls)),
        _ => Vec::new(),
    };
    match (call.is_streamed_list(), call.is_watch()) {
        (true, _) => Reply::streamed(&items, "7000", &[Step::Hold]),
        (false, true) => Reply::Watch(vec![Step::Hold]),
        (false, false) => Reply::list(&items, "7000", None),
    }
}

/// The engine on the cluster side's changes, on a clock that can be put forward.
struct Node {
    agent: Agent,
    state: State,
    began: Instant,
    ahead: Duration,
    failures: Vec<Failure>,
}

impl Node {
    fn now(&self) -> Mono {
        let passed = self.began.elapsed() + self.ahead;
        Mono(1_000_000_000_000 + u64::try_from(passed.as_nanos()).unwrap())
    }

    fn tell(&mut self, what: What) {
        let input = Input { at: self.now(), what };
        let out = step(&mut self.state, input);
        self.failures.extend(out.failures);
        for request in out.requests {
            // As the agent does: one too many is dropped, and asked again.
            let _full = self.agent.requests.try_send(request);
        }
    }

    fn tick(&mut self) {
        let mono = self.now();
        self.tell(What::Tick(Clock { mono, wall: Timestamp::now() }));
    }

    async fn run(&mut self, until: impl Fn(&State) -> bool, longest: Duration) {
        let end = Instant::now() + longest;
        let mut ticked = Instant::now();
        while !until(&self.state) && Instant::now() < end {
            let change = tokio::time::timeout(Duration::from_millis(50), self.agent.changes.recv());
            if let Ok(change) = change.await {
                self.tell(What::Cluster(change.expect("the cluster side runs")));
            }
            if ticked.elapsed() >= Duration::from_millis(250) {
                ticked = Instant::now();
                self.tick();
            }
        }
    }

    fn refuse(&mut self, number: usize) {
        let at = self.now();
        let port = u16::try_from(10_000 + number).unwrap();
        let attempt = Attempt {
            key: AttemptKey {
                client: SocketAddr::new(CLIENT.parse().unwrap(), port),
                original: format!("{}:80", address(2, number)).parse().unwrap(),
                isn: u32::from(port),
            },
            backend: Some(format!("{}:8080", address(1, number)).parse().unwrap()),
            first_syn: at,
            last_syn: at,
            syns: 1,
            dnat: true,
            confirmed: true,
            stale: false,
        };
        self.tell(What::Saw(Sighting::Answered { attempt, answer: Answer::Rst, at }));
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_rollouts_at_once_are_followed_as_far_as_there_is_room_and_none_is_mistaken() {
    let rolls = Arc::new(AtomicBool::new(false));
    let rolling = rolls.clone();
    let server = ApiServer::start(move |call| {
        if call.resource == "endpointslices" && !call.is_streamed_list() {
            rolling.store(true, SeqCst);
        }
        answer(call, rolling.load(SeqCst))
    })
    .await;
    let agent = Agent::start(server.address).await;
    let state = State::new(Config::new("n1"));
    let began = Instant::now();
    let mut node = Node { agent, state, began, ahead: Duration::ZERO, failures: Vec::new() };
    node.tick();
    node.run(State::is_synced, Duration::from_secs(30)).await;
    assert!(node.state.is_synced());
    for number in 0..MANY {
        let original = format!("{}:80", address(2, number)).parse().unwrap();
        let counts = AttemptCounts { original, attempts: 10, answered: 10, refused: 0 };
        node.tell(What::Attempts(counts));
    }
    let before = resident_kib();
    let is_leaving = |state: &State| state.endpoints().counts().1 == MANY;
    node.run(is_leaving, Duration::from_secs(30)).await;
    assert!(is_leaving(&node.state));
    for number in 0..MANY {
        node.refuse(number);
    }
    let room = u64::try_from(MANY - 64).unwrap();
    let cluster = node.agent.stats.clone();
    // Look-ups are rationed: on a busy machine the last are answered when all verdicts have been given.
    let are_counted =
        |state: &State| state.follow_refused() + cluster.snapshot().follow_refused >= room;
    let asked = Instant::now();
    let is_done = |state: &State| state.undecided_failures() == 0 && are_counted(state);
    node.run(is_done, Duration::from_secs(60)).await;
    let took = asked.elapsed();
    node.ahead = EVIDENCE;
    node.tick();
    let grew = resident_kib().saturating_sub(before);

    let mut causes: BTreeMap<Cause, usize> = BTreeMap::new();
    for failure in &node.failures {
        *causes.entry(failure.cause).or_insert(0) += 1;
        let number = usize::from(failure.client.port()) - 10_000;
        let workload = failure.workload.as_ref().map(|workload| workload.name.to_string());
        assert!(workload.is_none_or(|name| name == format!("d{number}")), "{failure:?}");
        match failure.cause {
            Cause::Rollout => {
                let rollout = failure.rollout.as_ref().unwrap();
                assert_eq!(&*rollout.workload_uid, format!("uid-d{number}"), "{failure:?}");
                assert_eq!(&*rollout.target, "new", "{failure:?}");
            }
            cause => assert_eq!(cause, Cause::Unknown, "{failure:?}"),
        }
    }
    let snapshot = node.agent.stats.snapshot();
    println!(
        "{causes:?} after {took:?}; followed {}, not for want of room {}, look-ups dropped {}, \
         requests {:?}; {} KiB more resident, the mock API server's share included",
        snapshot.followed,
        node.state.follow_refused(),
        snapshot.resolve_dropped,
        snapshot.requests,
        grew,
    );
    assert_eq!(node.failures.len(), MANY, "each has a verdict");
    assert_eq!(snapshot.followed, 64);
    assert_eq!(node.state.follow_refused() + snapshot.follow_refused, room, "each is counted once");
    let told = causes.get(&Cause::Rollout).copied().unwrap_or(0);
    assert!(told >= 64, "those that are followed are told: {causes:?}");
    for failure in node.failures.iter().filter(|failure| failure.cause == Cause::Unknown) {
        assert!(!failure.evidence.is_empty(), "an unknown cause says what is missing");
    }
}
