//! Stale conntrack entries as a live figure: how many, of which endpoint and rollout, until when; when
//! the table is to be scanned; which entries are to be deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use serde::Serialize;

use super::{
    ConntrackScan, EvictMode, Evicted, Eviction, Outputs, State, Watch, ask, dialled, verdicts,
};
use crate::{
    attempts::Failed,
    attribute::{self, Decision, service_dialled},
    endpoints::{Lifetime, Name},
    model::{
        Attempt, AttemptKey, Cause, Class, EvictionResult, Mono, RolloutId, SYN_SENT, Sighting,
        Transport,
    },
    stale::{Tracked, World, dead, may_evict},
};

/// After an endpoint's end, or a failure on one, stale entries may still come for so long: then it is
/// looked for them again.
const LOOK_NANOS: u64 = 10_000_000_000;

/// How often it is looked for the entries of endpoints that nobody on this node is known to dial.
const LAZY_NANOS: u64 = 30_000_000_000;

/// How often the figures are brought up to date between two scans.
const SUM_UP_NANOS: u64 = 1_000_000_000;

/// An eviction that was asked for is asked for again after this long, if the entry is still there.
const ASK_AGAIN_NANOS: u64 = 5_000_000_000;

/// Stale entries of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StaleEndpoint {
    /// Where they lead.
    pub endpoint: SocketAddr,
    /// Their protocol.
    pub protocol: Transport,
    /// Namespace of the endpoint.
    pub namespace: Arc<str>,
    /// Its pod; empty if unknown.
    pub pod: Arc<str>,
    /// The Service that was dialled; empty if unknown.
    pub service: Arc<str>,
    /// What took the endpoint away, if that is known by now.
    pub cause: Option<Cause>,
    /// The rollout, if that was it.
    pub rollout: Option<RolloutId>,
    /// How many.
    pub entries: u64,
    /// When the last of them expires, by its timer.
    pub expires: Mono,
    /// Some are kept alive: their timers do not tell their end.
    pub refreshed: bool,
}

/// Stale entries together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StaleSum {
    /// How many now.
    pub entries: u64,
    /// The most at a time so far.
    pub peak: u64,
    /// When the last of them expires, by its timer; `None` without any.
    pub expires: Option<Mono>,
    /// Some are kept alive by their clients: no end can be predicted.
    pub refreshed: bool,
}

impl StaleSum {
    /// When the last one will be gone; `None` without any, and where no end can be predicted.
    pub fn predicted(&self) -> Option<Mono> {
        self.expires.filter(|_| !self.refreshed)
    }

    fn add(&mut self, of: &StaleEndpoint) {
        self.entries += of.entries;
        self.expires = self.expires.max(Some(of.expires));
        self.refreshed |= of.refreshed;
        self.peak = self.peak.max(self.entries);
    }

    fn clear(&mut self) {
        *self = Self { peak: self.peak, ..Self::default() };
    }
}

/// The figures as last summed up.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) endpoints: Vec<StaleEndpoint>,
    pub(super) by_protocol: BTreeMap<Transport, StaleSum>,
    pub(super) by_rollout: BTreeMap<RolloutId, StaleSum>,
    pub(super) evictions: BTreeMap<EvictionResult, u64>,
    summed: Mono,
    /// Until when the table is to be scanned again and again.
    look_until: Mono,
    /// When it was last scanned for an endpoint that nobody here is known to dial.
    lazy: Mono,
    /// Clients and what they dialled of the entries that are older than the probes.
    pinned: BTreeSet<(SocketAddr, SocketAddr)>,
    /// A scan was taken in.
    is_known: bool,
}

/// An attempt that is older than the probes retransmits its SYN on the entry which it made itself: that
/// is no old one to it, though the kernel side cannot know.
pub(super) fn of_own_entry(state: &State, sighting: &Sighting) -> Sighting {
    let mut sighting = sighting.clone();
    if let Sighting::Abandoned { attempt, started: None, .. } = &mut sighting {
        let key = (attempt.key.client, attempt.key.original);
        attempt.stale &= !state.stale_figures.pinned.contains(&key);
    }
    sighting
}

/// Takes a scan of the table in.
pub(super) fn scanned(state: &mut State, scan: &ConntrackScan, out: &mut Outputs) {
    if !state.stale_figures.is_known {
        state.stale_figures.is_known = true;
        // A SYN on one of these follows it, though the probes did not see the SYN that made it.
        let unanswered = scan
            .entries
            .iter()
            .filter(|entry| entry.key.protocol == Transport::Tcp && entry.state == Some(SYN_SENT));
        let pinned = &mut state.stale_figures.pinned;
        out.watch.extend(
            unanswered
                .inspect(|entry| {
                    pinned.insert((entry.key.client, entry.key.original));
                })
                .map(|entry| Watch::Pinned {
                    client: entry.key.client,
                    original: entry.key.original,
                    backend: entry.backend,
                    expires: entry.expires,
                }),
        );
    }
    state.stale.scan(scan);
    sum_up(state, out);
}

/// An endpoint left, or nobody has its address any more.
pub(super) fn endpoint_ended(state: &mut State, endpoint: SocketAddr) {
    let lives = state.endpoints.at(endpoint);
    let is_dialled = lives.iter().rev().take(2).any(|life| dialled::is_dialled(state, life));
    let now = state.now;
    if is_dialled {
        look(state);
    } else if now.since(state.stale_figures.lazy) >= LAZY_NANOS {
        state.stale_figures.lazy = now;
        state.stale_figures.look_until = state.stale_figures.look_until.max(now.plus(1));
    }
}

/// The table may now have stale entries.
pub(super) fn look(state: &mut State) {
    let until = state.now.plus(LOOK_NANOS);
    state.stale_figures.look_until = state.stale_figures.look_until.max(until);
}

/// Time passed.
pub(super) fn tick(state: &mut State, out: &mut Outputs) {
    let now = state.now;
    let evicts = state.config.evict != EvictMode::Off;
    if evicts || now.since(state.stale_figures.summed) >= SUM_UP_NANOS {
        sum_up(state, out);
    }
    let figures = &state.stale_figures;
    out.scan |= now <= figures.look_until || !figures.endpoints.is_empty();
}

/// What became of an eviction.
pub(super) fn evicted(state: &mut State, evicted: &Evicted) {
    *state.stale_figures.evictions.entry(evicted.result).or_insert(0) += 1;
    let same = state.stale.get(&evicted.key).is_some_and(|known| known.entry.id == evicted.id);
    if same && matches!(evicted.result, EvictionResult::Evicted | EvictionResult::Gone) {
        state.stale.remove(&evicted.key);
    }
}

/// Brings the figures up to date, and asks for evictions.
fn sum_up(state: &mut State, out: &mut Outputs) {
    let now = state.now;
    state.stale.expire(now);
    let (endpoints, evictions) = look_over(state);
    for eviction in &evictions {
        state.stale.asked(&eviction.key, now);
    }
    out.evictions.extend(evictions);
    for found in endpoints.iter().filter(|found| found.rollout.is_none()) {
        ask::about(state, found.endpoint, out);
    }
    let State { stale_figures: figures, rollouts, .. } = state;
    figures.by_protocol.values_mut().for_each(StaleSum::clear);
    figures.by_rollout.values_mut().for_each(StaleSum::clear);
    figures.by_rollout.retain(|id, _| rollouts.get(id).is_some());
    for found in &endpoints {
        figures.by_protocol.entry(found.protocol).or_default().add(found);
        if let Some(id) = &found.rollout {
            figures.by_rollout.entry(id.clone()).or_default().add(found);
        }
    }
    figures.endpoints = endpoints;
    figures.summed = now;
}

/// Which entries are stale, by endpoint; and which of them may be deleted.
fn look_over(state: &State) -> (Vec<StaleEndpoint>, Vec<Eviction>) {
    let now = state.now;
    let (mut found, mut evictions) = (Vec::new(), Vec::new());
    let world = World {
        endpoints: &state.endpoints,
        node_addresses: &state.node_addresses,
        synced: state.synced,
        after: state.config.evict_after_nanos,
        now,
    };
    for (_, entries) in state.stale.by_backend() {
        let mut of: BTreeMap<(Transport, Mono, Option<Name>), StaleEndpoint> = BTreeMap::new();
        for tracked in entries {
            let entry = &tracked.entry;
            let asked = tracked.eviction.is_some_and(|at| now.since(at) < ASK_AGAIN_NANOS);
            if state.config.evict != EvictMode::Off && !asked && may_evict(tracked, &world).is_ok()
            {
                let dry_run = state.config.evict == EvictMode::DryRun;
                // A rehearsal tells each entry once.
                if !dry_run || tracked.eviction.is_none() {
                    let (key, id, backend) = (entry.key, entry.id, entry.backend);
                    evictions.push(Eviction { key, id, backend, dry_run });
                }
            }
            let Some(life) = dead(tracked, &state.endpoints) else { continue };
            let service = service_dialled(entry.key.original, true, &state.endpoints);
            let (refreshed, expires) = (tracked.is_refreshed(now), entry.expires);
            let key = (entry.key.protocol, life.first_seen, service.clone());
            let sum = of.entry(key).or_insert_with(|| endpoint(state, tracked, life, service));
            sum.entries += 1;
            sum.expires = sum.expires.max(expires);
            sum.refreshed |= refreshed;
        }
        found.extend(of.into_values());
    }
    (found, evictions)
}

fn endpoint(
    state: &State,
    tracked: &Tracked,
    life: &Lifetime,
    service: Option<Name>,
) -> StaleEndpoint {
    let entry = &tracked.entry;
    let blame = blame(state, tracked, life, service.as_ref());
    StaleEndpoint {
        endpoint: entry.backend,
        protocol: entry.key.protocol,
        namespace: life.namespace.clone(),
        pod: life.pod.as_ref().map_or_else(|| "".into(), |pod| pod.name.clone()),
        service: service.map_or_else(|| "".into(), |(_, name)| name),
        cause: blame.as_ref().map(|blame| blame.cause),
        rollout: blame.and_then(|blame| blame.rollout),
        entries: 0,
        expires: entry.expires,
        refreshed: false,
    }
}

/// What a failure of a SYN on this entry would be blamed on: one rule for both.
fn blame(
    state: &State,
    tracked: &Tracked,
    life: &Lifetime,
    service: Option<&Name>,
) -> Option<attribute::Blame> {
    let entry = &tracked.entry;
    let left = life.left?;
    let key = AttemptKey { client: entry.key.client, original: entry.key.original, isn: 0 };
    // As if sent when the endpoint was gone, while nobody else had the address yet.
    let sent = life.gone.unwrap_or(left).max(life.first_seen);
    let attempt = Attempt {
        key,
        backend: Some(life.endpoint),
        first_syn: sent,
        last_syn: sent,
        syns: 1,
        dnat: true,
        confirmed: true,
        stale: false,
    };
    let failed = Failed {
        attempt,
        began: sent,
        ended: sent,
        class: Class::Timeout,
        wire: String::new(),
        early: false,
        doubtful: false,
    };
    match attribute::decide(&failed, service, &verdicts::known(state, sent, state.now)) {
        Decision::Blame(blame) => Some(*blame),
        _ => None,
    }
}

impl State {
    /// Stale entries by protocol.
    pub fn stale_by_protocol(&self) -> &BTreeMap<Transport, StaleSum> {
        &self.stale_figures.by_protocol
    }

    /// Stale entries by endpoint.
    pub fn stale_endpoints(&self) -> &[StaleEndpoint] {
        &self.stale_figures.endpoints
    }

    /// Stale entries of a rollout; nothing if it never had any.
    pub fn stale_of(&self, rollout: &RolloutId) -> Option<&StaleSum> {
        self.stale_figures.by_rollout.get(rollout)
    }

    /// All stale entries.
    pub fn stale_sum(&self) -> StaleSum {
        let mut sum = StaleSum::default();
        self.stale_figures.endpoints.iter().for_each(|of| sum.add(of));
        sum.peak = self.stale_figures.by_protocol.values().map(|of| of.peak).max().unwrap_or(0);
        sum
    }

    /// When the conntrack table was last scanned.
    pub fn stale_scanned(&self) -> Option<Mono> {
        self.stale.scanned()
    }

    /// Evictions by result.
    pub fn evictions(&self) -> &BTreeMap<EvictionResult, u64> {
        &self.stale_figures.evictions
    }
}
