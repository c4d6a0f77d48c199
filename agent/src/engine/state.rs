//! What the engine remembers, and what it says.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{
    AttemptCounts, Request,
    announce::EventCounts,
    ask::{Asked, Followed, MAX_ASKED, MAX_NOT_FOLLOWED},
    coverage::Coverage,
    doubtful::Doubtful,
    history::Past,
    stale::Figures,
    verdicts::Held,
};
use crate::{
    attempts::{Attempts, Failed},
    closed::names,
    endpoints::{Endpoints, Name},
    failing::Failing,
    model::{Clock, EntryKey, Failure, Mono, Wall, WorkloadKey},
    nodes::Nodes,
    owners::{Owners, remembered::Remembered},
    rollouts::Rollouts,
    stale::Table,
};

/// What the engine is told once, before the first input; the first line of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// This node's name.
    pub node: Arc<str>,
    /// Failures held while evidence is awaited; past it they are decided as unknown.
    pub max_held: usize,
    /// Decided failures kept.
    pub max_failures: usize,
    /// A pod that does not leave is a bad backend when it has failed for so long.
    #[serde(default = "bad_backend_after")]
    pub bad_backend_after_nanos: u64,
    /// Whether a rollout that broke connections is told by a Kubernetes Event.
    #[serde(default)]
    pub events: bool,
    /// Whether stale conntrack entries are deleted.
    #[serde(default)]
    pub evict: EvictMode,
    /// How long a backend must have been gone before its entries are.
    #[serde(default = "evict_after")]
    pub evict_after_nanos: u64,
    /// All addresses of the cluster's pods and nodes. Who is in none of them is a client outside, and its
    /// direct connections are accounted for by the endpoint's node. Empty: not known.
    #[serde(default)]
    pub cluster_cidrs: Vec<IpNet>,
}

names! {
    #[derive(Default)]
    /// Whether stale conntrack entries are deleted.
    EvictMode {
        /// No: nothing asks for it.
        #[default]
        Off = "off",
        /// No, but what would be deleted is logged and counted.
        DryRun = "dry-run",
        /// Yes.
        On = "on",
    }
}

/// Two seconds.
fn evict_after() -> u64 {
    2_000_000_000
}

/// Decided failures listed, by default.
pub const MAX_FAILURES: usize = 10_000;

/// Five minutes.
fn bad_backend_after() -> u64 {
    300_000_000_000
}

impl Config {
    /// Defaults for a node.
    pub fn new(node: impl Into<Arc<str>>) -> Self {
        Self {
            node: node.into(),
            max_held: 10_000,
            max_failures: MAX_FAILURES,
            bad_backend_after_nanos: bad_backend_after(),
            events: false,
            evict: EvictMode::Off,
            evict_after_nanos: evict_after(),
            cluster_cidrs: Vec::new(),
        }
    }
}

/// A change of the kernel's watch set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Watch {
    /// SYNs to this backend are of interest.
    Endpoint(SocketAddr),
    /// SYNs to this Service's own address are of interest.
    Service(SocketAddr),
    /// What it answered before this was another pod's, which is gone.
    Anew(SocketAddr, Mono),
    /// They are no longer.
    Forget(SocketAddr),
    /// An unanswered entry that is older than the probes: SYNs of this tuple follow it.
    Pinned {
        /// Client.
        client: SocketAddr,
        /// What it dialled.
        original: SocketAddr,
        /// Where its SYNs go.
        backend: SocketAddr,
        /// When the entry expires.
        expires: Mono,
    },
    /// The address of a pod of this node.
    Local(IpAddr),
    /// It is no longer.
    NotLocal(IpAddr),
}

/// What follows from an input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outputs {
    /// Failures decided.
    pub failures: Vec<Failure>,
    /// Questions to the API server.
    pub requests: Vec<Request>,
    /// Changes of the kernel's watch set.
    pub watch: Vec<Watch>,
    /// The conntrack table is to be scanned.
    pub scan: bool,
    /// Conntrack entries to delete.
    pub evictions: Vec<Eviction>,
}

/// A conntrack entry to delete: by its tuple, zone and id, after another look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Eviction {
    /// Which.
    pub key: EntryKey,
    /// Its id.
    pub id: u32,
    /// Where it leads.
    pub backend: SocketAddr,
    /// Only say so.
    pub dry_run: bool,
}

/// The state.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) config: Config,
    pub(super) clock: Clock,
    pub(super) now: Mono,
    pub(super) synced: bool,
    /// When that last changed; evidence is waited for from then on.
    pub(super) unsynced: Mono,
    pub(super) endpoints: Endpoints,
    pub(super) owners: Owners,
    pub(super) rollouts: Rollouts,
    pub(super) attempts: Attempts,
    pub(super) nodes: Nodes,
    pub(super) failing: Failing,
    pub(super) held: Vec<Held>,
    pub(super) failures: VecDeque<Failure>,
    /// Failures without a DNAT of clients that are not known to be this node's.
    pub(super) unclaimed: VecDeque<Failed>,
    pub(super) counts: BTreeMap<SocketAddr, AttemptCounts>,
    /// Of these, what has refused without ever answering, and since when that is known.
    pub(super) never_answered: BTreeMap<SocketAddr, Mono>,
    /// Services that this node's clients have dialled.
    pub(super) dialled: BTreeSet<Name>,
    /// Addresses of this node's pods, with the pod's UID.
    pub(super) local: BTreeMap<IpAddr, Arc<str>>,
    pub(super) node_addresses: BTreeSet<IpAddr>,
    /// Pods asked about, by UID.
    pub(super) asked: Remembered<Asked>,
    /// Workloads followed, by UID.
    pub(super) followed: BTreeMap<Arc<str>, Followed>,
    pub(super) coverage: Coverage,
    pub(super) events: EventCounts,
    /// The API server's version, once it has said it.
    pub(super) kubernetes: Option<Arc<str>>,
    /// Unanswered entries of the conntrack table.
    pub(super) stale: Table,
    pub(super) stale_figures: Figures,
    /// What was decided before this boot.
    pub(super) past: Past,
    /// Workloads that should be followed, and are not for want of room, by UID.
    pub(super) not_followed: Remembered<()>,
    pub(super) follow_refused: u64,
    pub(super) lost: u64,
    pub(super) cancelled: u64,
    pub(super) undirected: u64,
    pub(super) unseen: u64,
    /// Answered connections that an endpoint which did not leave ended.
    pub(super) stayed: u64,
    /// Answered connections ended by leaving endpoints of which the wire cannot tell whether anything
    /// was lost.
    pub(super) doubtful: Doubtful,
    /// Endpoints without a convergence for want of room in their rollout.
    pub(super) unmeasured: u64,
    /// Failures whose delay is in no histogram for want of room.
    pub(super) untimed: u64,
    /// Failures that are not listed any more.
    pub(super) unlisted: u64,
    pub(super) overflowed: u64,
    /// From a failure's end to its verdict, and its wait apart from that; newest last.
    pub(super) delays: Vec<u64>,
    /// The second in which every endpoint was last looked over.
    pub(super) swept: Mono,
}

impl State {
    /// An empty state.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            clock: Clock { mono: Mono(0), wall: Wall::UNIX_EPOCH },
            now: Mono(0),
            synced: false,
            unsynced: Mono(0),
            endpoints: Endpoints::out_of_step(),
            owners: Owners::default(),
            rollouts: Rollouts::default(),
            attempts: Attempts::default(),
            nodes: Nodes::default(),
            failing: Failing::default(),
            held: Vec::new(),
            failures: VecDeque::new(),
            unclaimed: VecDeque::new(),
            counts: BTreeMap::new(),
            never_answered: BTreeMap::new(),
            dialled: BTreeSet::new(),
            local: BTreeMap::new(),
            node_addresses: BTreeSet::new(),
            asked: Remembered::new(MAX_ASKED),
            followed: BTreeMap::new(),
            coverage: Coverage::default(),
            events: EventCounts::default(),
            kubernetes: None,
            stale: Table::default(),
            stale_figures: Figures::default(),
            past: Past::default(),
            not_followed: Remembered::new(MAX_NOT_FOLLOWED),
            follow_refused: 0,
            lost: 0,
            cancelled: 0,
            undirected: 0,
            unseen: 0,
            stayed: 0,
            doubtful: Doubtful::default(),
            unmeasured: 0,
            untimed: 0,
            unlisted: 0,
            overflowed: 0,
            delays: Vec::new(),
            swept: Mono(0),
        }
    }

    /// This node.
    pub fn node(&self) -> &Arc<str> {
        &self.config.node
    }

    /// Decided failures, oldest first.
    pub fn failures(&self) -> impl DoubleEndedIterator<Item = &Failure> {
        self.failures.iter()
    }

    /// Failures decided that are not listed any more: the number of the first that is.
    pub fn failures_unlisted(&self) -> u64 {
        self.unlisted
    }

    /// Counts by dialled address.
    pub fn counts(&self) -> &BTreeMap<SocketAddr, AttemptCounts> {
        &self.counts
    }

    /// Lifetimes and Services.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Pods and owners.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Rollouts.
    pub fn rollouts(&self) -> &Rollouts {
        &self.rollouts
    }

    /// The two clocks as last compared.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The civil time of the last input.
    pub fn wall_now(&self) -> Wall {
        self.clock.wall(self.now)
    }

    /// Whether the watches were in step at the last input.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Attempts about which something was seen, not yet decided.
    pub fn pending_attempts(&self) -> usize {
        self.attempts.len()
    }

    /// Failures that wait for their verdict.
    pub fn undecided_failures(&self) -> usize {
        self.held.len()
    }

    /// The API server's version as it says it; `None` if it was not asked or did not say.
    pub fn kubernetes(&self) -> Option<&Arc<str>> {
        self.kubernetes.as_ref()
    }

    /// What this agent was there for.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// What was decided before this boot.
    pub fn past(&self) -> &Past {
        &self.past
    }

    /// Kernel events and map entries lost: above 0, counts since the start are lower bounds.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Attempts given up by their client before they could fail, on endpoints that served.
    pub fn cancelled(&self) -> u64 {
        self.cancelled
    }

    /// Direct connections that no Service sent: kubelet's probes and the like.
    pub fn undirected(&self) -> u64 {
        self.undirected
    }

    /// Attempts given up of whose begin nothing was seen: they began before the agent.
    pub fn unseen(&self) -> u64 {
        self.unseen
    }

    /// Answered connections that endpoints which did not leave ended without an answer: no failures.
    pub fn stayed(&self) -> u64 {
        self.stayed
    }

    /// Failures decided as unknown for want of room to hold them, and attempts not held.
    pub fn overflowed(&self) -> u64 {
        self.overflowed + self.attempts.overflowed
    }

    /// Workloads with something in flight that were not followed for want of room: counted once
    /// each, until there is room.
    pub fn follow_refused(&self) -> u64 {
        self.follow_refused
    }

    /// Services that a workload's pods were seen behind.
    pub fn services_of(&self, workload: &WorkloadKey) -> BTreeSet<Arc<str>> {
        let lives = self
            .owners
            .pods_of(&workload.uid)
            .flat_map(|pod| self.endpoints.of_pod(&pod.facts.uid))
            .filter(|life| life.namespace == workload.namespace);
        lives.flat_map(|life| life.services.iter().cloned()).collect()
    }

    /// Nanoseconds from outcome to verdict of the failures decided since the last call.
    pub fn take_delays(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.delays)
    }

    /// Backends whose fresh SYNs matter now: they left in the last two minutes, or a failure on
    /// them waits for its verdict.
    pub fn fresh_wanted(&self) -> BTreeSet<SocketAddr> {
        let held = self.held.iter().filter_map(Held::backend);
        self.endpoints.left_recently(self.now).chain(held).collect()
    }

    /// Whether a client with this address lives on this node.
    pub(super) fn is_local(&self, client: IpAddr) -> bool {
        self.local.contains_key(&client) || self.node_addresses.contains(&client)
    }

    /// Whether a client with this address is outside the cluster for certain.
    pub(super) fn is_outside(&self, client: IpAddr) -> bool {
        let cluster = &self.config.cluster_cidrs;
        !cluster.is_empty() && !cluster.iter().any(|range| range.contains(&client))
    }

    /// What was forgotten before its time for want of room, by what it is. Verdicts that lack it are
    /// `unknown`; no count lacks anything for it.
    pub fn forgotten(&self) -> [(&'static str, u64); 16] {
        let [pods, looked_up, replica_sets, workloads] = self.owners.forgotten();
        [
            ("lifetimes", self.endpoints.forgotten),
            ("departures", self.endpoints.forgotten_departures),
            ("pods", pods),
            ("looked_up", looked_up),
            ("replica_sets", replica_sets),
            ("workloads", workloads),
            ("rollouts", self.rollouts.forgotten),
            ("rollout_targets", self.rollouts.forgotten_targets),
            ("rollout_workloads", self.rollouts.forgotten_workloads()),
            ("convergence", self.unmeasured),
            ("nodes", self.nodes.forgotten()),
            ("asked", self.asked.forgotten()),
            ("failing", self.failing.forgotten),
            ("failures", self.unlisted),
            ("delays", self.untimed),
            ("conntrack_entries", self.stale.left_out),
        ]
    }

    /// How much is remembered, by what it is.
    pub fn sizes(&self) -> BTreeMap<&'static str, usize> {
        let (serving, leaving, gone) = self.endpoints.counts();
        let [pods, looked_up, replica_sets, workloads] = self.owners.sizes();
        BTreeMap::from([
            ("lifetimes_present", serving + leaving),
            ("lifetimes_gone", gone),
            ("pods", pods),
            ("looked_up", looked_up),
            ("replica_sets", replica_sets),
            ("workloads", workloads),
            ("rollouts", self.rollouts.all().count()),
            ("attempts_pending", self.attempts.len()),
            ("attempts_decided", self.attempts.decided()),
            ("failures_held", self.held.len()),
            ("failures_unclaimed", self.unclaimed.len()),
            ("failures", self.failures.len()),
            ("counts", self.counts.len()),
            ("asked", self.asked.len()),
            ("followed", self.followed.len()),
            ("not_followed", self.not_followed.len()),
            ("delays", self.delays.len()),
            ("conntrack_entries", self.stale.len()),
        ])
    }
}
