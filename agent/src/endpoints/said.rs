//! What the slices say now, by endpoint: the same endpoint may be in several of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::{Name, lifetime::Origin};
use crate::model::{EndpointConditions, SliceFacts};

/// Identity of an endpoint: a bare address is told apart by its namespace, as two may claim it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Member {
    pub(super) endpoint: SocketAddr,
    /// Empty without a `targetRef`.
    pub(super) uid: Arc<str>,
    pub(super) namespace: Arc<str>,
}

/// What one slice says of an endpoint.
type Line = (EndpointConditions, Origin);

#[derive(Clone, Debug)]
struct Slice {
    service: Arc<str>,
    version: Arc<str>,
    lines: BTreeMap<Member, Line>,
}

/// What all slices together say of an endpoint.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) conditions: EndpointConditions,
    pub(super) services: BTreeSet<Arc<str>>,
    pub(super) origin: Origin,
}

/// The slices.
#[derive(Clone, Debug, Default)]
pub(super) struct Slices {
    by_name: BTreeMap<Name, Slice>,
    /// Which slices name a member.
    naming: BTreeMap<Member, BTreeSet<Name>>,
    /// Which slices are a Service's.
    of_service: BTreeMap<Name, BTreeSet<Name>>,
}

impl Slices {
    /// Takes a slice's content; returns the members of which it now says something else.
    pub(super) fn put(&mut self, facts: &SliceFacts) -> BTreeSet<Member> {
        let name = (facts.namespace.clone(), facts.name.clone());
        let lines = lines(facts);
        let mut before = self.take(&name);
        for member in lines.keys() {
            self.naming.entry(member.clone()).or_default().insert(name.clone());
        }
        let mut touched = BTreeSet::new();
        for (member, line) in &lines {
            if before.remove(member).as_ref() != Some(line) {
                touched.insert(member.clone());
            }
        }
        touched.extend(before.into_keys());
        let service = (facts.namespace.clone(), facts.service.clone());
        self.of_service.entry(service).or_default().insert(name.clone());
        let slice = Slice {
            service: facts.service.clone(),
            version: facts.resource_version.clone(),
            lines,
        };
        self.by_name.insert(name, slice);
        touched
    }

    /// Forgets a slice; returns its members.
    pub(super) fn remove(&mut self, name: &Name) -> BTreeSet<Member> {
        self.take(name).into_keys().collect()
    }

    fn take(&mut self, name: &Name) -> BTreeMap<Member, Line> {
        let Some(slice) = self.by_name.remove(name) else { return BTreeMap::new() };
        for member in slice.lines.keys() {
            unlist(&mut self.naming, member, name);
        }
        unlist(&mut self.of_service, &(name.0.clone(), slice.service), name);
        slice.lines
    }

    /// Names of the slices that a complete list lacks.
    pub(super) fn missing(&self, listed: &[Name]) -> Vec<Name> {
        let listed: BTreeSet<&Name> = listed.iter().collect();
        self.by_name.keys().filter(|name| !listed.contains(name)).cloned().collect()
    }

    /// The newest version among the slices of a Service.
    pub(super) fn version(&self, service: &Name) -> Option<Arc<str>> {
        let slices = self.of_service.get(service)?;
        let versions = slices.iter().filter_map(|name| self.by_name.get(name));
        versions
            .map(|slice| &slice.version)
            .max_by_key(|version| version.parse::<u64>().unwrap_or(0))
            .cloned()
    }

    /// What all slices together say: it is in the state that the best of them claims.
    pub(super) fn say(&self, member: &Member) -> Option<Said> {
        let mut said: Option<Said> = None;
        for slice in self.naming.get(member)?.iter().filter_map(|name| self.by_name.get(name)) {
            let Some((conditions, origin)) = slice.lines.get(member) else { continue };
            let said = said.get_or_insert_with(|| Said {
                conditions: *conditions,
                services: BTreeSet::new(),
                origin: origin.clone(),
            });
            said.conditions = either(said.conditions, *conditions);
            if !slice.service.is_empty() {
                said.services.insert(slice.service.clone());
            }
        }
        said
    }
}

fn unlist<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Name>>, key: &K, name: &Name) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

fn either(one: EndpointConditions, other: EndpointConditions) -> EndpointConditions {
    EndpointConditions {
        ready: one.ready | other.ready,
        serving: one.serving | other.serving,
        terminating: one.terminating | other.terminating,
    }
}

fn lines(slice: &SliceFacts) -> BTreeMap<Member, Line> {
    let ports = tcp_ports(slice);
    let mut lines: BTreeMap<Member, Line> = BTreeMap::new();
    for endpoint in &slice.endpoints {
        let uid: Arc<str> = endpoint.pod.as_ref().map_or_else(|| "".into(), |pod| pod.uid.clone());
        for address in &endpoint.addresses {
            for port in &ports {
                let member = Member {
                    endpoint: SocketAddr::new(normal(*address), *port),
                    uid: uid.clone(),
                    namespace: slice.namespace.clone(),
                };
                let origin = Origin { pod: endpoint.pod.clone(), node: endpoint.node.clone() };
                lines
                    .entry(member)
                    .and_modify(|line| line.0 = either(line.0, endpoint.conditions))
                    .or_insert((endpoint.conditions, origin));
            }
        }
    }
    lines
}

/// TCP ports of a slice; 0 stands for "any", where it names none.
fn tcp_ports(slice: &SliceFacts) -> BTreeSet<u16> {
    if slice.ports.is_empty() {
        return BTreeSet::from([0]);
    }
    let tcp = slice.ports.iter().filter(|port| &*port.protocol == "TCP");
    tcp.map(|port| port.port.unwrap_or(0)).collect()
}

/// An IPv4 address in its own form, never v4-mapped.
fn normal(address: IpAddr) -> IpAddr {
    address.to_canonical()
}
