//! A small cluster that is told to the engine step by step: the Deployment `shop/api` behind a
//! Service, one pod a line, clients on the node `n1`.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use jiff::Timestamp;
use rollrace::{
    engine::{
        AttemptCounts, ClusterChange, Config, ConntrackScan, Eviction, FreshSyns, Input, Recalled,
        Request, State, Watch, What, step,
    },
    model::{
        Answer, Attempt, AttemptKey, Clock, ConntrackEntry, Drop, Endpoint, EndpointConditions,
        EntryKey, Failure, Mono, ObjectRef, PodFacts, ReplicaSetFacts, ServiceFacts, ServicePort,
        Sighting, SliceFacts, SlicePort, Transport, Wall, WorkloadFacts, WorkloadStatus,
    },
};

/// The Service's address.
pub const VIP: &str = "10.96.0.80:80";
/// A client pod on the agent's node.
pub const CLIENT: &str = "10.244.1.5";

const SECOND: u64 = 1_000_000_000;
const BEGIN: Mono = Mono(1_000 * SECOND);

/// Conditions of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Is {
    Ready,
    NotReady,
    Leaving,
}

impl Is {
    pub fn conditions(self) -> EndpointConditions {
        EndpointConditions {
            ready: self == Self::Ready,
            serving: self != Self::NotReady,
            terminating: self == Self::Leaving,
        }
    }
}

/// The engine, and what was told and said.
pub struct World {
    pub state: State,
    pub now: Mono,
    pub inputs: Vec<Input>,
    pub failures: Vec<Failure>,
    pub requests: Vec<Request>,
    pub watch: Vec<Watch>,
    pub evictions: Vec<Eviction>,
    /// The last input made it want a scan of the conntrack table.
    pub wants_scan: bool,
    /// How far the civil clock was stepped, in seconds.
    pub stepped: i64,
    /// When a revision's `ReplicaSet` is made, in seconds from the begin; each later by its number.
    pub sets_made: i64,
    /// When each was made: its first content says so.
    made: BTreeMap<String, Wall>,
    version: u64,
    pods: BTreeMap<String, PodFacts>,
    port: u16,
    attempts: u64,
}

/// The civil time of a reading; the two clocks began together.
pub fn wall(at: Mono, stepped: i64) -> Wall {
    let nanos = i128::from(at.0) + (1_800_000_000 + i128::from(stepped)) * i128::from(SECOND);
    Timestamp::from_nanosecond(nanos).unwrap()
}

/// Kind, name and UID.
pub fn object(kind: &str, name: &str) -> ObjectRef {
    let api_version = if kind == "Rollout" { "argoproj.io/v1alpha1" } else { "apps/v1" };
    ObjectRef {
        kind: kind.into(),
        api_version: api_version.into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
    }
}

impl World {
    /// The watches are in step, the Service is there and has been dialled, nothing is behind it.
    pub fn empty() -> Self {
        Self::unsynced().in_step()
    }

    fn in_step(mut self) -> Self {
        let world = &mut self;
        world.cluster(ClusterChange::SlicesListed(Vec::new()));
        world.cluster(ClusterChange::Synced(true));
        world.pass(100);
        self
    }

    /// As [`World::empty`], with the watches not in step yet.
    pub fn unsynced() -> Self {
        Self::with(Config::new("n1"))
    }

    /// As [`World::unsynced`], with another configuration.
    pub fn with(config: Config) -> Self {
        let mut world = Self {
            state: State::new(config),
            now: BEGIN,
            inputs: Vec::new(),
            failures: Vec::new(),
            requests: Vec::new(),
            watch: Vec::new(),
            evictions: Vec::new(),
            wants_scan: false,
            stepped: 0,
            sets_made: -86_400,
            made: BTreeMap::new(),
            version: 100,
            pods: BTreeMap::new(),
            port: 40_000,
            attempts: 0,
        };
        world.tick();
        world.input(What::Attached);
        world.service("api", "10.96.0.80");
        world.client("client", CLIENT);
        world.dial();
        world
    }

    /// Three pods of the first revision, ready since a minute.
    pub fn at_rest() -> Self {
        Self::at_rest_with(Config::new("n1"))
    }

    /// As [`World::at_rest`], with another configuration.
    pub fn at_rest_with(config: Config) -> Self {
        let mut world = Self::with(config).in_step();
        world.set("old", 1, 3, 3);
        world.workload(1, 3, [3, 3, 3]);
        for pod in ["old-a", "old-b", "old-c"] {
            world.pod(pod, "n2");
        }
        world.slice(&[("old-a", Is::Ready), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
        world.pass(60_000);
        world
    }

    /// As [`World::at_rest`]; the second revision's first pod is ready, and the first old one is
    /// being removed for it.
    pub fn rolling() -> Self {
        Self::rolling_with(Config::new("n1"))
    }

    /// As [`World::rolling`], with another configuration.
    pub fn rolling_with(config: Config) -> Self {
        let mut world = Self::at_rest_with(config);
        world.roll();
        world
    }

    /// The second revision's first pod is ready, and the first old one is being removed for it.
    pub fn roll(&mut self) {
        self.workload_in("Deployment", 2, 3, [3, 3, 3], 1, false);
        self.set("new", 2, 1, 0);
        self.pod("new-a", "n2");
        let old = [("old-a", Is::Ready), ("old-b", Is::Ready), ("old-c", Is::Ready)];
        self.slice(&[old[0], old[1], old[2], ("new-a", Is::NotReady)]);
        self.pass(2_000);
        self.slice(&[old[0], old[1], old[2], ("new-a", Is::Ready)]);
        self.answered("new-a");
        self.set("old", 1, 2, 3);
        self.delete("old-a");
        self.slice(&[("old-a", Is::Leaving), old[1], old[2], ("new-a", Is::Ready)]);
        self.set("old", 1, 2, 2);
    }

    /// Another agent takes over what this one left, after so many milliseconds without any: probes
    /// attached, watches not in step yet. A reboot begins the monotonic clock anew.
    pub fn restart(&mut self, millis: u64, reboot: bool) {
        self.restart_with(Config::new("n1"), millis, reboot);
    }

    /// As [`World::restart`], with another configuration.
    pub fn restart_with(&mut self, config: Config, millis: u64, reboot: bool) {
        let left = serde_json::to_string(&self.state.history()).unwrap();
        let history = serde_json::from_str(&left).unwrap();
        self.now = self.now.plus(millis * 1_000_000);
        if reboot {
            self.stepped += i64::try_from((self.now.0 - BEGIN.0) / SECOND).unwrap();
            self.now = BEGIN;
        }
        (self.state, self.inputs, self.requests) = (State::new(config), Vec::new(), Vec::new());
        self.tick();
        let recalled = Recalled { history, same_boot: !reboot };
        self.input(What::Recalled(Box::new(recalled)));
        self.input(What::Attached);
        self.service("api", "10.96.0.80");
        self.client("client", CLIENT);
    }

    /// The first lists of an agent that has just come: these endpoints, and a Deployment of two
    /// revisions that has moved on to the second.
    pub fn listed(&mut self, endpoints: &[(&str, Is)], old: i32, new: i32) {
        self.set("new", 2, new, new);
        self.set("old", 1, old, old);
        self.slice(endpoints);
        self.cluster(ClusterChange::SlicesListed(vec![("shop".into(), "api-1".into())]));
        self.workload_in("Deployment", 2, 3, [old + new, new, new], 2, false);
        self.cluster(ClusterChange::Synced(true));
        self.pass(250);
    }

    fn tick(&mut self) {
        let clock = Clock { mono: self.now, wall: wall(self.now, self.stepped) };
        self.input(What::Tick(clock));
    }

    /// Lets time pass, with the agent's ticks.
    pub fn pass(&mut self, millis: u64) {
        let end = self.now.plus(millis * 1_000_000);
        while self.now.plus(250_000_000) < end {
            self.now = self.now.plus(250_000_000);
            self.tick();
        }
        self.now = end;
        self.tick();
    }

    /// Lets much time pass, with fewer ticks the longer it is.
    pub fn pass_coarsely(&mut self, millis: u64) {
        for _ in 0..20 {
            self.now = self.now.plus(millis * 1_000_000 / 20);
            self.tick();
        }
    }

    /// Tells the engine.
    pub fn input(&mut self, what: What) {
        let input = Input { at: self.now, what };
        self.inputs.push(input.clone());
        let out = step(&mut self.state, input);
        self.failures.extend(out.failures);
        self.requests.extend(out.requests);
        self.watch.extend(out.watch);
        self.evictions.extend(out.evictions);
        self.wants_scan = out.scan;
    }

    pub fn cluster(&mut self, change: ClusterChange) {
        self.input(What::Cluster(change));
    }

    /// The API server's next version.
    pub fn version(&mut self) -> Arc<str> {
        self.version += 1;
        self.version.to_string().into()
    }

    /// The API server was restored: its versions begin anew, below those it gave out.
    pub fn restart_versions(&mut self) {
        self.version = 10;
        self.cluster(ClusterChange::VersionsRestarted);
    }

    pub fn service(&mut self, name: &str, ip: &str) {
        let facts = ServiceFacts {
            namespace: "shop".into(),
            name: name.into(),
            resource_version: self.version(),
            cluster_ips: vec![ip.parse().unwrap()],
            external_ips: Vec::new(),
            ports: vec![ServicePort {
                name: "http".into(),
                protocol: "TCP".into(),
                port: 80,
                node_port: None,
            }],
            has_selector: true,
            publish_not_ready: false,
            external_local: false,
            internal_local: false,
        };
        self.cluster(ClusterChange::Service(Arc::new(facts)));
    }

    /// A pod of this node that is no endpoint.
    pub fn client(&mut self, name: &str, ip: &str) {
        let mut facts = self.new_pod(name, "n1");
        facts.ips = vec![ip.parse().unwrap()];
        facts.owner = None;
        self.cluster(ClusterChange::Pod(Arc::new(facts)));
    }

    fn new_pod(&mut self, name: &str, node: &str) -> PodFacts {
        let set = name.rsplit_once('-').map_or(name, |(set, _)| set);
        let address = u8::try_from(self.pods.len() + 10).unwrap();
        PodFacts {
            namespace: "shop".into(),
            name: name.into(),
            uid: format!("uid-{name}").into(),
            resource_version: self.version(),
            node: Some(node.into()),
            ips: vec![[10, 244, 2, address].into()],
            host_network: false,
            owner: Some(object("ReplicaSet", set)),
            revision_hash: set.into(),
            deletion_timestamp: None,
            deletion_grace: None,
            disruption: None,
            finished: false,
            restarts: 0,
            exit_codes: BTreeMap::new(),
        }
    }

    /// A pod of the `ReplicaSet` that its name begins with.
    pub fn pod(&mut self, name: &str, node: &str) {
        let facts = self.new_pod(name, node);
        self.pods.insert(name.to_owned(), facts);
        self.change(name, |_| {});
    }

    /// A pod that the API server has, and of which the agent is not told.
    pub fn unseen_pod(&mut self, name: &str) {
        let facts = self.new_pod(name, "n2");
        self.pods.insert(name.to_owned(), facts);
    }

    /// Changes a pod and tells of it.
    pub fn change(&mut self, name: &str, change: impl FnOnce(&mut PodFacts)) {
        let version = self.version();
        let pod = self.pods.get_mut(name).unwrap();
        pod.resource_version = version;
        change(pod);
        let facts = Arc::new(pod.clone());
        self.cluster(ClusterChange::Pod(facts));
    }

    /// The content of a pod as last told.
    pub fn facts(&self, name: &str) -> PodFacts {
        self.pods[name].clone()
    }

    /// A pod is deleted with 30 s of grace.
    pub fn delete(&mut self, name: &str) {
        self.mark_deleted(name);
        let facts = Arc::new(self.facts(name));
        self.cluster(ClusterChange::Pod(facts));
    }

    /// As [`World::delete`], without telling.
    pub fn mark_deleted(&mut self, name: &str) {
        let version = self.version();
        let deleted = wall(self.now, 0).as_second() + 30;
        let pod = self.pods.get_mut(name).unwrap();
        pod.resource_version = version;
        pod.deletion_grace = Some(30);
        pod.deletion_timestamp = Some(Timestamp::from_second(deleted).unwrap());
    }

    /// A pod's object is gone.
    pub fn gone(&mut self, name: &str) {
        let mut facts = self.facts(name);
        facts.resource_version = self.version();
        self.cluster(ClusterChange::PodGone(Arc::new(facts)));
    }

    /// A `ReplicaSet` of the Deployment, made now.
    pub fn set(&mut self, name: &str, revision: u64, wanted: i32, replicas: i32) {
        self.set_of("Deployment", name, revision, wanted, replicas);
    }

    pub fn set_of(&mut self, kind: &str, name: &str, revision: u64, wanted: i32, replicas: i32) {
        let made = wall(BEGIN, self.sets_made + i64::try_from(revision).unwrap());
        let made = *self.made.entry(name.to_owned()).or_insert(made);
        let facts = ReplicaSetFacts {
            namespace: "shop".into(),
            name: name.into(),
            uid: format!("uid-{name}").into(),
            resource_version: self.version(),
            owner: Some(object(kind, "api")),
            template_hash: name.into(),
            revision: Some(revision),
            created: Some(made),
            wanted,
            replicas,
            images: vec![format!("api:{revision}").into()],
            template: None,
        };
        self.cluster(ClusterChange::ReplicaSet(Arc::new(facts)));
    }

    /// The Deployment: revision, wanted count, and its status's replicas, updated and available.
    pub fn workload(&mut self, revision: u64, wanted: i32, status: [i32; 3]) {
        self.workload_in("Deployment", revision, wanted, status, revision, false);
    }

    pub fn workload_in(
        &mut self,
        kind: &str,
        generation: u64,
        wanted: i32,
        [replicas, updated, available]: [i32; 3],
        revision: u64,
        held: bool,
    ) {
        let generation = i64::try_from(generation).unwrap();
        let facts = WorkloadFacts {
            namespace: "shop".into(),
            object: object(kind, "api"),
            resource_version: self.version(),
            generation,
            wanted,
            held,
            outage_by_design: false,
            images: Vec::new(),
            template: None,
            strategy: None,
            status: WorkloadStatus {
                observed_generation: i64::try_from(revision).unwrap(),
                replicas,
                updated,
                available,
                revision: Some(revision),
                ..WorkloadStatus::default()
            },
        };
        self.cluster(ClusterChange::Workload(Arc::new(facts)));
    }

    /// The Service's one slice.
    pub fn slice(&mut self, endpoints: &[(&str, Is)]) {
        let slice = self.slice_facts("api-1", "api", endpoints);
        self.cluster(ClusterChange::Slice(Arc::new(slice)));
    }

    pub fn slice_facts(
        &mut self,
        name: &str,
        service: &str,
        endpoints: &[(&str, Is)],
    ) -> SliceFacts {
        let endpoints = endpoints.iter().map(|(pod, is)| {
            let facts = &self.pods[*pod];
            Endpoint {
                addresses: facts.ips.clone(),
                conditions: is.conditions(),
                node: facts.node.clone(),
                pod: Some(ObjectRef {
                    kind: "Pod".into(),
                    api_version: "".into(),
                    name: facts.name.clone(),
                    uid: facts.uid.clone(),
                }),
            }
        });
        let endpoints = endpoints.collect();
        SliceFacts {
            namespace: "shop".into(),
            name: name.into(),
            resource_version: self.version(),
            service: service.into(),
            managed_by: "endpointslice-controller.k8s.io".into(),
            ports: vec![SlicePort {
                name: "http".into(),
                protocol: "TCP".into(),
                port: Some(8080),
            }],
            endpoints,
        }
    }

    /// Clients have dialled the Service.
    pub fn dial(&mut self) {
        self.attempts += 10;
        self.input(What::Attempts(AttemptCounts {
            original: VIP.parse().unwrap(),
            attempts: self.attempts,
            answered: self.attempts,
            refused: 0,
        }));
    }

    /// Clients have dialled what refuses every one of them.
    pub fn dial_in_vain(&mut self, original: SocketAddr) {
        self.input(What::Attempts(AttemptCounts {
            original,
            attempts: 10,
            answered: 0,
            refused: 10,
        }));
    }

    /// Where a pod listens.
    pub fn backend(&self, pod: &str) -> SocketAddr {
        SocketAddr::new(self.pods[pod].ips[0], 8080)
    }

    /// The kernel's counts say that the pod answered for the first time now.
    pub fn answered(&mut self, pod: &str) {
        self.fresh(pod, Some(self.now));
    }

    /// The kernel's counts: a fresh SYN just now.
    pub fn fresh(&mut self, pod: &str, first_answer: Option<Mono>) {
        let fresh = FreshSyns {
            endpoint: self.backend(pod),
            last: self.now,
            first_answer,
            answers_forgotten: false,
            by_second: vec![(self.now.0 / SECOND, 1)],
        };
        self.input(What::Fresh(fresh));
    }

    /// A new attempt that is dialled through the Service and NATed to the pod now.
    pub fn attempt(&mut self, pod: &str) -> Attempt {
        let backend = self.backend(pod);
        self.attempt_to(VIP.parse().unwrap(), backend)
    }

    pub fn attempt_to(&mut self, original: SocketAddr, backend: SocketAddr) -> Attempt {
        self.port += 1;
        Attempt {
            key: AttemptKey {
                client: SocketAddr::new(CLIENT.parse().unwrap(), self.port),
                original,
                isn: u32::from(self.port) * 7,
            },
            backend: Some(backend),
            first_syn: self.now,
            last_syn: self.now,
            syns: 1,
            dnat: original != backend,
            confirmed: true,
            stale: false,
        }
    }

    pub fn refuse(&mut self, attempt: Attempt) {
        let sighting = Sighting::Answered { attempt, answer: Answer::Rst, at: self.now };
        self.input(What::Saw(sighting));
    }

    /// A SYN to the pod is answered by a RST.
    pub fn refused(&mut self, pod: &str) {
        let attempt = self.attempt(pod);
        self.refuse(attempt);
    }

    /// The client gives up.
    pub fn abandon(&mut self, attempt: Attempt, errno: i32) {
        let started = Some(attempt.first_syn);
        let sighting = Sighting::Abandoned { attempt, started, errno, at: self.now };
        self.input(What::Saw(sighting));
    }

    /// A SYN to the pod, retransmitted twice, is not answered within 3 s.
    pub fn timed_out(&mut self, pod: &str) {
        let mut attempt = self.attempt(pod);
        self.pass(2_000);
        attempt.last_syn = self.now;
        attempt.syns = 3;
        self.pass(1_000);
        self.abandon(attempt, 0);
    }

    /// An entry that a SYN just now has left: from this port of the client, NATed to the pod.
    pub fn entry(&self, port: u16, pod: &str) -> ConntrackEntry {
        ConntrackEntry {
            key: EntryKey {
                protocol: Transport::Tcp,
                client: SocketAddr::new(CLIENT.parse().unwrap(), port),
                original: VIP.parse().unwrap(),
                zone: 0,
            },
            backend: self.backend(pod),
            id: u32::from(port),
            status: 0x1A8,
            state: Some(1),
            expires: self.now.plus(120 * SECOND),
        }
    }

    /// The conntrack table is scanned, and these are all its unanswered entries.
    pub fn scan(&mut self, entries: &[ConntrackEntry]) {
        self.input(What::Conntrack(ConntrackScan {
            began: self.now,
            whole: true,
            entries: entries.to_vec(),
            ended: Vec::new(),
            left_out: 0,
        }));
    }

    /// As [`World::rolling`], with the old pod's object and endpoint gone.
    pub fn after_the_first() -> Self {
        Self::after_the_first_with(Config::new("n1"))
    }

    /// The same, with another configuration.
    pub fn after_the_first_with(config: Config) -> Self {
        let mut world = Self::rolling_with(config);
        world.pass(300);
        world.gone("old-a");
        world.slice(&[("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Ready)]);
        world
    }

    pub fn dropped(&mut self, attempt: Attempt, reason: &str) {
        let drop = Drop { reason: reason.into() };
        self.input(What::Saw(Sighting::Dropped { attempt, drop, at: self.now }));
    }

    /// The verdict, once the longest wait is over: the only one.
    pub fn verdict(&mut self) -> Failure {
        self.pass(40_000);
        assert_eq!(self.failures.len(), 1, "{:#?}", self.failures);
        assert_eq!(self.state.undecided_failures(), 0);
        self.failures.pop().unwrap()
    }

    /// There is no failure, also not after the longest wait.
    pub fn no_verdict(&mut self) {
        self.pass(40_000);
        assert!(self.failures.is_empty(), "{:#?}", self.failures);
        assert_eq!(self.state.undecided_failures(), 0);
    }

    /// The only rollout there is.
    pub fn rollout(&self) -> &rollrace::model::Rollout {
        let mut rollouts = self.state.rollouts().all();
        let rollout = rollouts.next().expect("a rollout");
        assert!(rollouts.next().is_none());
        rollout
    }
}
