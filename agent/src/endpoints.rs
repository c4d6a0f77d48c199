//! Folds slices and Services into lifetimes: who was behind (address, port), and when.
//!
//! An endpoint is (address, port, pod UID): addresses are reused, sometimes within 30 s. It
//! *leaves* when it is first not ready after having been ready, terminating, or absent from every
//! slice.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use serde::Serialize;

use crate::model::{EndpointConditions, Mono, ObjectRef, ServiceFacts, SliceFacts};

/// Namespace and name.
pub type Name = (Arc<str>, Arc<str>);

/// How long a gone endpoint is remembered: thirty times as long as a stale conntrack entry lives
/// after its last SYN, since a client with few ports can keep one alive.
const REMEMBER_NANOS: u64 = 3_600 * 1_000_000_000;

/// The most lifetimes kept; the oldest gone ones go first.
const MAX_LIFETIMES: usize = 400_000;

/// One pod's (or bare address's) time as a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lifetime {
    /// Address and port; port 0 where the slice names none.
    pub endpoint: SocketAddr,
    /// Namespace of its slices.
    pub namespace: Arc<str>,
    /// The pod, if a `targetRef` said one.
    pub pod: Option<ObjectRef>,
    /// Node, if said.
    pub node: Option<Arc<str>>,
    /// Services it was seen behind.
    pub services: BTreeSet<Arc<str>>,
    /// First seen in a slice.
    pub first_seen: Mono,
    /// Was there when this agent first listed the slices.
    pub baseline: bool,
    /// First seen ready.
    pub ready: Option<Mono>,
    /// When it left; cleared if it becomes ready again.
    pub left: Option<Mono>,
    /// First seen terminating.
    pub terminating: Option<Mono>,
    /// When it was absent from every slice.
    pub gone: Option<Mono>,
    /// First answer to a SYN seen here.
    pub first_answer: Option<Mono>,
}

impl Lifetime {
    /// Whether the pod is the one with this UID.
    pub fn is_pod(&self, uid: &str) -> bool {
        self.pod.as_ref().is_some_and(|pod| &*pod.uid == uid)
    }

    fn observe(&mut self, conditions: EndpointConditions, at: Mono) {
        if conditions.terminating && self.terminating.is_none() {
            self.terminating = Some(at);
        }
        if conditions.ready && !conditions.terminating {
            self.ready.get_or_insert(at);
            self.left = None;
        } else if conditions.terminating || self.ready.is_some() {
            self.left.get_or_insert(at);
        }
    }
}

/// What one change of a slice did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A pod or address appeared.
    Appeared(SocketAddr),
    /// It left.
    Left(SocketAddr),
    /// It was forgotten: nothing can point at it any more.
    Forgotten(SocketAddr),
}

/// Identity of an endpoint within the fold.
type Member = (SocketAddr, Arc<str>);

/// The fold.
#[derive(Clone, Debug, Default)]
pub struct Endpoints {
    slices: BTreeMap<Name, Arc<SliceFacts>>,
    /// Which slices name an address.
    naming: BTreeMap<IpAddr, BTreeSet<Name>>,
    services: BTreeMap<Name, Arc<ServiceFacts>>,
    /// Current members with the merged conditions.
    members: BTreeMap<Member, EndpointConditions>,
    lifetimes: BTreeMap<SocketAddr, Vec<Lifetime>>,
    /// Virtual addresses; of a deleted Service until another takes them.
    virtual_addresses: BTreeMap<SocketAddr, Name>,
    node_ports: BTreeMap<u16, Name>,
    listed: bool,
    count: usize,
}

impl Endpoints {
    /// A slice exists with this content.
    pub fn slice(&mut self, slice: Arc<SliceFacts>, at: Mono) -> Vec<Change> {
        let name = (slice.namespace.clone(), slice.name.clone());
        let mut touched = members_of(&slice);
        if let Some(before) = self.slices.insert(name.clone(), slice) {
            let earlier = members_of(&before);
            self.unname(&name, &earlier);
            touched.extend(earlier);
        }
        let slice = &self.slices[&name];
        for address in slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses) {
            self.naming.entry(normal(*address)).or_default().insert(name.clone());
        }
        self.settle(touched, at)
    }

    /// A slice is gone.
    pub fn slice_gone(&mut self, name: &Name, at: Mono) -> Vec<Change> {
        let touched = self.slices.remove(name).map(|slice| members_of(&slice)).unwrap_or_default();
        self.unname(name, &touched);
        self.settle(touched, at)
    }

    fn unname(&mut self, name: &Name, members: &BTreeSet<Member>) {
        for (endpoint, _) in members {
            if let Some(slices) = self.naming.get_mut(&endpoint.ip()) {
                slices.remove(name);
                if slices.is_empty() {
                    self.naming.remove(&endpoint.ip());
                }
            }
        }
    }

    /// A list was completed: slices that it lacks are gone.
    pub fn slices_listed(&mut self, names: &[Name], at: Mono) -> Vec<Change> {
        let names: BTreeSet<&Name> = names.iter().collect();
        let missing: Vec<Name> =
            self.slices.keys().filter(|name| !names.contains(name)).cloned().collect();
        let changes = missing.iter().flat_map(|name| self.slice_gone(name, at)).collect();
        self.listed = true;
        changes
    }

    /// The version of a slice of this Service as last seen.
    pub fn slice_version(&self, namespace: &str, service: &str) -> Option<Arc<str>> {
        self.slices
            .values()
            .filter(|slice| &*slice.namespace == namespace && &*slice.service == service)
            .map(|slice| slice.resource_version.clone())
            .max_by_key(|version| version.parse::<u64>().unwrap_or(0))
    }

    /// Merges what all slices say of each touched member, and folds that into its lifetime.
    fn settle(&mut self, touched: BTreeSet<Member>, at: Mono) -> Vec<Change> {
        let mut changes = Vec::new();
        for member in touched {
            let said = self.said_of(&member);
            match said {
                Some((conditions, services, first)) => {
                    let was = self.members.insert(member.clone(), conditions);
                    let appeared = was.is_none();
                    if appeared {
                        self.begin(&member, &first, at);
                        changes.push(Change::Appeared(member.0));
                    }
                    let Some(life) = self.last_mut(&member) else { continue };
                    life.services.extend(services);
                    let had_left = life.left.is_some();
                    life.observe(conditions, at);
                    if life.left.is_some() && !had_left {
                        changes.push(Change::Left(member.0));
                    }
                }
                None => {
                    if self.members.remove(&member).is_none() {
                        continue;
                    }
                    let Some(life) = self.last_mut(&member) else { continue };
                    life.gone = Some(at);
                    if life.left.is_none() {
                        life.left = Some(at);
                        changes.push(Change::Left(member.0));
                    }
                }
            }
        }
        changes
    }

    fn begin(&mut self, member: &Member, first: &First, at: Mono) {
        let list = self.lifetimes.entry(member.0).or_default();
        // The same pod back in a slice: the lifetime goes on.
        let same = list.last_mut().filter(|life| {
            life.pod.as_ref().map_or("", |pod| &pod.uid) == &*member.1
                && life.namespace == first.namespace
        });
        if let Some(life) = same {
            life.gone = None;
            return;
        }
        self.count += 1;
        list.push(Lifetime {
            endpoint: member.0,
            namespace: first.namespace.clone(),
            pod: first.pod.clone(),
            node: first.node.clone(),
            services: BTreeSet::new(),
            first_seen: at,
            baseline: !self.listed,
            ready: None,
            left: None,
            terminating: None,
            gone: None,
            first_answer: None,
        });
    }

    fn last_mut(&mut self, member: &Member) -> Option<&mut Lifetime> {
        self.lifetimes.get_mut(&member.0)?.iter_mut().rev().find(|life| {
            life.pod.as_ref().map_or("", |pod| &pod.uid) == &*member.1
        })
    }

    fn said_of(&self, member: &Member) -> Option<(EndpointConditions, BTreeSet<Arc<str>>, First)> {
        let mut merged: Option<(EndpointConditions, BTreeSet<Arc<str>>, First)> = None;
        let naming = self.naming.get(&member.0.ip()).into_iter().flatten();
        for slice in naming.filter_map(|name| self.slices.get(name)) {
            for endpoint in &slice.endpoints {
                let uid = endpoint.pod.as_ref().map_or("", |pod| &pod.uid);
                if uid != &*member.1
                    || !endpoint.addresses.iter().any(|address| normal(*address) == member.0.ip())
                    || !tcp_ports(slice).contains(&member.0.port())
                {
                    continue;
                }
                let (conditions, services, _) = merged.get_or_insert_with(|| {
                    let none = EndpointConditions { ready: false, serving: false, terminating: false };
                    let first = First {
                        namespace: slice.namespace.clone(),
                        pod: endpoint.pod.clone(),
                        node: endpoint.node.clone(),
                    };
                    (none, BTreeSet::new(), first)
                });
                conditions.ready |= endpoint.conditions.ready;
                conditions.serving |= endpoint.conditions.serving;
                conditions.terminating |= endpoint.conditions.terminating;
                if !slice.service.is_empty() {
                    services.insert(slice.service.clone());
                }
            }
        }
        merged
    }

    /// A Service exists with this content. Returns its virtual addresses.
    pub fn service(&mut self, service: Arc<ServiceFacts>) -> Vec<SocketAddr> {
        let name = (service.namespace.clone(), service.name.clone());
        let mut addresses = Vec::new();
        for port in service.ports.iter().filter(|port| &*port.protocol == "TCP") {
            for ip in service.cluster_ips.iter().chain(&service.external_ips) {
                let address = SocketAddr::new(*ip, port.port);
                self.virtual_addresses.insert(address, name.clone());
                addresses.push(address);
            }
            if let Some(node_port) = port.node_port {
                self.node_ports.insert(node_port, name.clone());
            }
        }
        self.services.insert(name, service);
        addresses
    }

    /// A Service is gone. Its addresses keep its name until another Service takes them: stale
    /// entries still point there.
    pub fn service_gone(&mut self, name: &Name) {
        self.services.remove(name);
    }

    /// A list was completed: Services that it lacks are gone.
    pub fn services_listed(&mut self, names: &[Name]) {
        let names: BTreeSet<&Name> = names.iter().collect();
        self.services.retain(|name, _| names.contains(name));
    }

    /// A Service as last seen.
    pub fn service_facts(&self, name: &Name) -> Option<&Arc<ServiceFacts>> {
        self.services.get(name)
    }

    /// The Service that a client means when it dials this address.
    pub fn service_at(&self, original: SocketAddr) -> Option<&Name> {
        self.virtual_addresses.get(&original)
    }

    /// The Service whose node port this is.
    pub fn service_at_node_port(&self, port: u16) -> Option<&Name> {
        self.node_ports.get(&port)
    }

    /// Lifetimes at an address and port, oldest first; those without a port if there are none.
    pub fn at(&self, endpoint: SocketAddr) -> &[Lifetime] {
        let exact = self.lifetimes.get(&endpoint);
        exact.or_else(|| self.lifetimes.get(&SocketAddr::new(endpoint.ip(), 0))).map_or(&[], Vec::as_slice)
    }

    /// Lifetimes on any port of an address.
    pub fn on(&self, address: IpAddr) -> impl Iterator<Item = &Lifetime> {
        let ports = SocketAddr::new(address, 0)..=SocketAddr::new(address, u16::MAX);
        self.lifetimes.range(ports).flat_map(|(_, lives)| lives)
    }

    /// Mutable access to a lifetime by address and pod UID.
    pub fn find_mut(&mut self, endpoint: SocketAddr, uid: &str) -> Option<&mut Lifetime> {
        self.last_mut(&(endpoint, uid.into()))
    }

    /// All lifetimes.
    pub fn all(&self) -> impl Iterator<Item = &Lifetime> {
        self.lifetimes.values().flatten()
    }

    /// Endpoints of a Service that are ready now.
    pub fn ready_of(&self, name: &Name) -> usize {
        self.members
            .iter()
            .filter(|(member, conditions)| {
                conditions.ready
                    && self.at(member.0).iter().any(|life| {
                        life.gone.is_none() && life.namespace == name.0 && life.services.contains(&name.1)
                    })
            })
            .count()
    }

    /// Counts by state: serving, leaving, gone.
    pub fn counts(&self) -> (usize, usize, usize) {
        let mut counts = (0, 0, 0);
        for life in self.all() {
            match (life.left, life.gone) {
                (_, Some(_)) => counts.2 += 1,
                (Some(_), None) => counts.1 += 1,
                (None, None) => counts.0 += 1,
            }
        }
        counts
    }

    /// Forgets what has been gone long enough, and the oldest gone ones past the bound.
    pub fn forget(&mut self, now: Mono) -> Vec<Change> {
        let mut horizon = now.0.saturating_sub(REMEMBER_NANOS);
        if self.count > MAX_LIFETIMES {
            let mut gone: Vec<u64> = self.all().filter_map(|life| life.gone).map(|at| at.0).collect();
            gone.sort_unstable();
            let excess = self.count - MAX_LIFETIMES;
            if let Some(at) = gone.get(excess.min(gone.len()).saturating_sub(1)) {
                horizon = horizon.max(at + 1);
            }
        }
        let mut changes = Vec::new();
        let count = &mut self.count;
        self.lifetimes.retain(|endpoint, list| {
            let before = list.len();
            list.retain(|life| life.gone.is_none_or(|gone| gone.0 >= horizon));
            *count -= before - list.len();
            if list.is_empty() {
                changes.push(Change::Forgotten(*endpoint));
            }
            !list.is_empty()
        });
        changes
    }
}

/// What a lifetime takes from the first slice that names it.
struct First {
    namespace: Arc<str>,
    pod: Option<ObjectRef>,
    node: Option<Arc<str>>,
}

/// TCP ports of a slice; 0 stands for "any", where it names none.
fn tcp_ports(slice: &SliceFacts) -> BTreeSet<u16> {
    if slice.ports.is_empty() {
        return BTreeSet::from([0]);
    }
    let tcp = slice.ports.iter().filter(|port| &*port.protocol == "TCP");
    tcp.map(|port| port.port.unwrap_or(0)).collect()
}

fn members_of(slice: &SliceFacts) -> BTreeSet<Member> {
    let ports = tcp_ports(slice);
    let mut members = BTreeSet::new();
    for endpoint in &slice.endpoints {
        let uid: Arc<str> = endpoint.pod.as_ref().map_or_else(|| "".into(), |pod| pod.uid.clone());
        for address in &endpoint.addresses {
            for port in &ports {
                members.insert((SocketAddr::new(normal(*address), *port), uid.clone()));
            }
        }
    }
    members
}

/// An IPv4 address in its own form, never v4-mapped.
fn normal(address: IpAddr) -> IpAddr {
    address.to_canonical()
}
