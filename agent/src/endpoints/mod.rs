//! Folds slices and Services into lifetimes: who was behind (address, port), and when.
//!
//! An endpoint is (address, port, pod UID): addresses are reused, sometimes within 30 s. It
//! *leaves* when it is first not ready after having been ready, terminating, or absent from every
//! slice.
//!
//! # Layout
//! - `lifetime`: one pod's time at one address and port
//! - `said`: what the slices say now
//! - `services`: the addresses under which Services are dialled
//! - `recall`: lifetimes that outlive the agent

mod lifetime;
mod recall;
mod said;
mod services;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

pub use lifetime::{Lifetime, WATCH_LAG_NANOS};
use lifetime::{Origin, Seen, Stage};
use recall::Awaited;
use said::{Member, Slices};
use services::Services;

use crate::model::{EndpointConditions, Mono, ServiceFacts, SliceFacts};

/// Namespace and name.
pub type Name = (Arc<str>, Arc<str>);

/// How long a gone endpoint is remembered: thirty times as long as a stale conntrack entry lives
/// after its last SYN, since a client with few ports can keep one alive.
const REMEMBER_NANOS: u64 = 3_600 * 1_000_000_000;

/// How long a departure is recent: fresh SYNs to it are still asked for.
const RECENT_NANOS: u64 = 120 * 1_000_000_000;

/// The most lifetimes kept beside those that slices name now; the first gone go first.
const MAX_GONE: usize = if cfg!(test) { 64 } else { 200_000 };

/// The most recent departures kept.
const MAX_RECENT: usize = if cfg!(test) { 32 } else { 65_536 };

/// What one change of a slice did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A pod or address appeared.
    Appeared(SocketAddr),
    /// It left.
    Left(SocketAddr),
    /// Nobody has the address any more.
    Gone(SocketAddr),
    /// It was forgotten: nothing can point at it any more.
    Forgotten(SocketAddr),
}

/// The fold.
#[derive(Clone, Debug, Default)]
pub struct Endpoints {
    slices: Slices,
    services: Services,
    /// Current members with the merged conditions.
    members: BTreeMap<Member, EndpointConditions>,
    lifetimes: BTreeMap<SocketAddr, Vec<Lifetime>>,
    /// Where each Service's lifetimes are.
    of_service: BTreeMap<Name, BTreeSet<SocketAddr>>,
    /// Where each pod's lifetimes are, by UID.
    of_pod: BTreeMap<Arc<str>, BTreeSet<SocketAddr>>,
    /// Departures of late, oldest first.
    recent: VecDeque<(Mono, SocketAddr)>,
    /// Gone lifetimes, and departures of late, forgotten early for want of room.
    pub forgotten: u64,
    /// See `forgotten`.
    pub forgotten_departures: u64,
    /// How many lifetimes are serving, leaving, gone.
    stages: [usize; 3],
    listed: bool,
    /// What an earlier agent left present, and no slice has named yet.
    awaited: Awaited,
    /// The watches are out of step, or were just now.
    behind: Option<Behind>,
}

/// How long a connection may be dead before that is noticed: what its keepalive takes.
const UNNOTICED_NANOS: u64 = 20_000_000_000;

/// Watches that are out of step.
#[derive(Clone, Copy, Debug)]
struct Behind {
    since: Mono,
    /// A list was completed since: it says how things are.
    listed: bool,
    /// They are open again, and what they missed is on its way.
    back: Option<Mono>,
}

impl Endpoints {
    /// None known, and the watches not in step yet.
    pub fn out_of_step() -> Self {
        let behind = Behind { since: Mono(0), listed: false, back: None };
        Self { behind: Some(behind), ..Self::default() }
    }

    /// The watches are in step, or have been out of it since about then: what is seen next may be
    /// that old. Also when they are open again, for as long as a watch may lag: a watch that goes
    /// on where it was broken off first brings what was missed.
    pub fn in_step(&mut self, in_step: bool, at: Mono) {
        self.behind = match (self.behind, in_step) {
            (Some(behind), true) if !behind.listed && behind.since > Mono(0) => {
                Some(Behind { back: Some(at), ..behind })
            }
            (_, true) => None,
            (behind, false) => {
                let unnoticed = Mono(at.0.saturating_sub(UNNOTICED_NANOS).max(1));
                let since = behind.map_or(unnoticed, |behind| behind.since);
                Some(Behind { since, listed: false, back: None })
            }
        };
    }

    fn seen(&self, at: Mono) -> Seen {
        let caught_up = |back: Mono| at.since(back) >= WATCH_LAG_NANOS;
        let behind = self.behind.filter(|behind| !behind.back.is_some_and(caught_up));
        let since = behind.map_or(at, |behind| behind.since).min(at);
        Seen { at, after: Mono(since.0.saturating_sub(WATCH_LAG_NANOS)) }
    }

    /// A slice exists with this content.
    pub fn slice(&mut self, slice: &SliceFacts, at: Mono) -> Vec<Change> {
        let touched = self.slices.put(slice);
        self.settle(touched, at)
    }

    /// A slice is gone.
    pub fn slice_gone(&mut self, name: &Name, at: Mono) -> Vec<Change> {
        let touched = self.slices.remove(name);
        self.settle(touched, at)
    }

    /// A list was completed: slices that it lacks are gone.
    pub fn slices_listed(&mut self, names: &[Name], at: Mono) -> Vec<Change> {
        let mut touched = BTreeSet::new();
        for name in self.slices.missing(names) {
            touched.extend(self.slices.remove(&name));
        }
        let changes = self.settle(touched, at);
        self.settle_awaited(at);
        self.listed = true;
        self.behind = match self.behind {
            Some(Behind { back: Some(_), .. }) => None,
            behind => behind.map(|behind| Behind { listed: true, ..behind }),
        };
        changes
    }

    /// The newest version of the slices of this Service as last seen.
    pub fn slice_version(&self, namespace: &Arc<str>, service: &Arc<str>) -> Option<Arc<str>> {
        self.slices.version(&(namespace.clone(), service.clone()))
    }

    /// Merges what all slices say of each touched member, and folds that into its lifetime.
    fn settle(&mut self, touched: BTreeSet<Member>, at: Mono) -> Vec<Change> {
        let seen = self.seen(at);
        let mut changes = Vec::new();
        for member in touched {
            let said = self.slices.say(&member);
            let endpoint = member.endpoint;
            let had_left = if let Some(said) = &said {
                if self.members.insert(member.clone(), said.conditions).is_none() {
                    self.begin(&member, said.origin.clone(), seen);
                    changes.push(Change::Appeared(endpoint));
                }
                for service in &said.services {
                    let name = (member.namespace.clone(), service.clone());
                    self.of_service.entry(name).or_default().insert(endpoint);
                }
                self.change(&member, |life| {
                    life.services.extend(said.services.iter().cloned());
                    life.observe(said.conditions, seen);
                })
            } else if self.members.remove(&member).is_some() {
                self.change(&member, |life| life.vanish(seen))
            } else {
                continue;
            };
            if had_left == Some((false, true)) {
                self.recent.push_back((at, endpoint));
                if self.recent.len() > MAX_RECENT {
                    self.recent.pop_front();
                    self.forgotten_departures += 1;
                }
                changes.push(Change::Left(endpoint));
            }
            if said.is_none() && self.at(endpoint).iter().all(|life| life.gone.is_some()) {
                changes.push(Change::Gone(endpoint));
            }
        }
        changes
    }

    /// Changes the lifetime of a member; whether it had left before and has after.
    fn change(
        &mut self,
        member: &Member,
        change: impl FnOnce(&mut Lifetime),
    ) -> Option<(bool, bool)> {
        let life = last_of(self.lifetimes.get_mut(&member.endpoint)?, member)?;
        let before = (life.stage(), life.left.is_some());
        change(life);
        let after = (life.stage(), life.left.is_some());
        self.count(before.0, after.0);
        Some((before.1, after.1))
    }

    fn count(&mut self, before: Stage, after: Stage) {
        self.stages[before as usize] = self.stages[before as usize].saturating_sub(1);
        self.stages[after as usize] += 1;
    }

    fn begin(&mut self, member: &Member, origin: Origin, seen: Seen) {
        let list = self.lifetimes.entry(member.endpoint).or_default();
        // The same pod back in a slice: its lifetime goes on, unless another had the address since.
        let same = list.iter().rposition(|life| is_of(life, member));
        if let Some(index) = same
            && let Some(gone) = list[index].gone
            && !list[index + 1..].iter().any(|later| later.first_seen >= gone)
        {
            list[index].gone = None;
            self.awaited.remove(&(member.endpoint, member.uid.clone()));
            let stage = list[index].stage();
            self.count(Stage::Gone, stage);
            return;
        }
        let namespace = member.namespace.clone();
        // Most addresses have one lifetime, and of those there are very many: a push alone makes room for
        // four.
        list.reserve_exact(1);
        list.push(Lifetime::new(member.endpoint, namespace, origin, seen, !self.listed));
        self.stages[Stage::Serving as usize] += 1;
        if !member.uid.is_empty() {
            self.of_pod.entry(member.uid.clone()).or_default().insert(member.endpoint);
        }
    }

    /// A Service exists with this content. Returns its virtual addresses.
    pub fn service(&mut self, service: Arc<ServiceFacts>, at: Mono) -> Vec<SocketAddr> {
        self.services.put(service, at)
    }

    /// A Service is gone. Its addresses keep its name until another Service takes them: stale
    /// entries still point there.
    pub fn service_gone(&mut self, name: &Name, at: Mono) {
        self.services.remove(name, at);
    }

    /// A list was completed: Services that it lacks are gone.
    pub fn services_listed(&mut self, names: &[Name], at: Mono) {
        self.services.listed(names, at);
    }

    /// A Service as last seen.
    pub fn service_facts(&self, name: &Name) -> Option<&Arc<ServiceFacts>> {
        self.services.get(name)
    }

    /// The Service that a client means when it dials this address.
    pub fn service_at(&self, original: SocketAddr) -> Option<&Name> {
        self.services.at(original)
    }

    /// The Service whose node port this is.
    pub fn service_at_node_port(&self, port: u16) -> Option<&Name> {
        self.services.at_node_port(port)
    }

    /// The Service that has this address now, rather than having had it.
    pub fn serves_at(&self, original: SocketAddr) -> Option<&Name> {
        self.services.current(original)
    }

    /// The Service that has this node port now.
    pub fn serves_at_node_port(&self, port: u16) -> Option<&Name> {
        self.services.current_node_port(port)
    }

    /// Lifetimes at an address and port, oldest first; those without a port if there are none.
    pub fn at(&self, endpoint: SocketAddr) -> &[Lifetime] {
        let exact = self.lifetimes.get(&endpoint);
        let any_port = || self.lifetimes.get(&SocketAddr::new(endpoint.ip(), 0));
        exact.or_else(any_port).map_or(&[], Vec::as_slice)
    }

    /// Lifetimes on any port of an address.
    pub fn on(&self, address: IpAddr) -> impl Iterator<Item = &Lifetime> {
        let ports = SocketAddr::new(address, 0)..=SocketAddr::new(address, u16::MAX);
        self.lifetimes.range(ports).flat_map(|(_, lives)| lives)
    }

    /// Lifetimes of a pod.
    pub fn of_pod(&self, uid: &str) -> impl Iterator<Item = &Lifetime> {
        let addresses = self.of_pod.get(uid).into_iter().flatten();
        addresses
            .filter_map(|endpoint| self.lifetimes.get(endpoint))
            .flatten()
            .filter(move |life| life.is_pod(uid))
    }

    /// Lifetimes behind a Service.
    pub fn of_service<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a Lifetime> {
        let addresses = self.of_service.get(name).into_iter().flatten();
        addresses
            .filter_map(|endpoint| self.lifetimes.get(endpoint))
            .flatten()
            .filter(|life| life.namespace == name.0 && life.services.contains(&name.1))
    }

    /// Takes note of when this pod first answered here, if it did. An answer that came before it can
    /// have existed was its predecessor's at the address, and hides its own.
    pub fn answered(&mut self, endpoint: SocketAddr, uid: &str, first: Option<Mono>) {
        let Some(list) = self.lifetimes.get_mut(&endpoint) else { return };
        let Some(index) = list.iter().rposition(|life| life.uid() == uid) else { return };
        let begun = list[index].begun_after;
        // The record begins anew when a predecessor is gone: this one's begin must not be older.
        let others = list.iter().filter(|other| other.uid() != uid);
        let mut before = others.filter(|other| other.first_seen <= list[index].first_seen);
        let is_own = before.all(|other| other.gone.is_some_and(|gone| gone <= begun));
        let life = &mut list[index];
        life.answers_known = is_own && first.is_none_or(|first| first >= begun);
        if life.answers_known
            && let Some(first) = first
        {
            life.first_answer = Some(life.first_answer.map_or(first, |known| known.min(first)));
        }
    }

    /// All lifetimes.
    pub fn all(&self) -> impl Iterator<Item = &Lifetime> {
        self.lifetimes.values().flatten()
    }

    /// Endpoints of a Service that are ready now.
    pub fn ready_of(&self, name: &Name) -> usize {
        let present = self.of_service(name).filter(|life| life.gone.is_none());
        present.filter(|life| life.ready.is_some() && life.left.is_none()).count()
    }

    /// Endpoints that left not longer ago than their fresh SYNs matter.
    pub fn left_recently(&self, now: Mono) -> impl Iterator<Item = SocketAddr> {
        let horizon = now.0.saturating_sub(RECENT_NANOS);
        let recent = self.recent.iter().rev().take_while(move |(at, _)| at.0 >= horizon);
        recent.map(|(_, endpoint)| *endpoint)
    }

    /// Counts by state: serving, leaving, gone.
    pub fn counts(&self) -> (usize, usize, usize) {
        let [serving, leaving, gone] = self.stages;
        (serving, leaving, gone)
    }

    /// Forgets what has been gone long enough, and the first gone ones past the bound.
    pub fn forget(&mut self, now: Mono) -> Vec<Change> {
        let mut horizon = Mono(now.0.saturating_sub(REMEMBER_NANOS));
        let gone_count = self.stages[Stage::Gone as usize];
        if gone_count > MAX_GONE {
            let mut gone: Vec<Mono> = self.all().filter_map(|life| life.gone).collect();
            gone.sort_unstable();
            // Some more than needed, so that this is not done at every call.
            let excess = gone_count - MAX_GONE + MAX_GONE / 16;
            if let Some(at) = gone.get(excess.min(gone.len()).saturating_sub(1)) {
                horizon = horizon.max(at.plus(1));
            }
        }
        let recent = now.0.saturating_sub(RECENT_NANOS);
        while self.recent.front().is_some_and(|(at, _)| at.0 < recent) {
            self.recent.pop_front();
        }
        let forgotten = self.services.forget(Mono(now.0.saturating_sub(REMEMBER_NANOS)));
        let mut changes: Vec<Change> = forgotten.into_iter().map(Change::Forgotten).collect();
        let due = Mono(now.0.saturating_sub(REMEMBER_NANOS));
        let Self { lifetimes, of_service, of_pod, stages, forgotten, .. } = self;
        lifetimes.retain(|endpoint, list| {
            let (kept, dropped): (Vec<_>, Vec<_>) = std::mem::take(list)
                .into_iter()
                .partition(|life| life.gone.is_none_or(|gone| gone >= horizon));
            stages[Stage::Gone as usize] -= dropped.len();
            for life in &dropped {
                *forgotten += u64::from(life.gone.is_some_and(|gone| gone >= due));
                unlist(of_pod, &life.uid().into(), *endpoint, || {
                    kept.iter().any(|other| other.uid() == life.uid())
                });
                for service in &life.services {
                    let name = (life.namespace.clone(), service.clone());
                    unlist(of_service, &name, *endpoint, || {
                        kept.iter().any(|other| {
                            other.namespace == name.0 && other.services.contains(service)
                        })
                    });
                }
            }
            if kept.is_empty() {
                changes.push(Change::Forgotten(*endpoint));
            }
            *list = kept;
            !list.is_empty()
        });
        changes
    }

    /// Whether so many have gone since the last [`Self::forget`] that it is due.
    pub fn is_overfull(&self) -> bool {
        self.stages[Stage::Gone as usize] > MAX_GONE
    }
}

fn is_of(life: &Lifetime, member: &Member) -> bool {
    life.uid() == &*member.uid && life.namespace == member.namespace
}

fn last_of<'a>(list: &'a mut [Lifetime], member: &Member) -> Option<&'a mut Lifetime> {
    list.iter_mut().rev().find(|life| is_of(life, member))
}

fn unlist<K: Ord>(
    index: &mut BTreeMap<K, BTreeSet<SocketAddr>>,
    key: &K,
    endpoint: SocketAddr,
    still: impl FnOnce() -> bool,
) {
    if let Some(addresses) = index.get_mut(key)
        && !still()
    {
        addresses.remove(&endpoint);
        if addresses.is_empty() {
            index.remove(key);
        }
    }
}
