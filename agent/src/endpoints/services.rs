//! Services, and the addresses and ports under which clients dial them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use super::Name;
use crate::model::{Mono, ServiceFacts};

/// Whose an address is; of a deleted Service until another takes it or it is forgotten, since stale
/// entries still point there.
#[derive(Clone, Debug)]
struct Claim {
    name: Name,
    dropped: Option<Mono>,
}

/// Services.
#[derive(Clone, Debug, Default)]
pub(super) struct Services {
    by_name: BTreeMap<Name, Arc<ServiceFacts>>,
    addresses: BTreeMap<SocketAddr, Claim>,
    node_ports: BTreeMap<u16, Claim>,
}

impl Services {
    /// A Service exists with this content. Returns its virtual addresses.
    pub(super) fn put(&mut self, service: Arc<ServiceFacts>, at: Mono) -> Vec<SocketAddr> {
        let name = (service.namespace.clone(), service.name.clone());
        self.drop_claims(&name, at);
        let mut addresses = Vec::new();
        for port in service.ports.iter().filter(|port| &*port.protocol == "TCP") {
            for ip in service.cluster_ips.iter().chain(&service.external_ips) {
                let address = SocketAddr::new(ip.to_canonical(), port.port);
                self.addresses.insert(address, Claim { name: name.clone(), dropped: None });
                addresses.push(address);
            }
            if let Some(node_port) = port.node_port {
                self.node_ports.insert(node_port, Claim { name: name.clone(), dropped: None });
            }
        }
        self.by_name.insert(name, service);
        addresses
    }

    /// A Service is gone.
    pub(super) fn remove(&mut self, name: &Name, at: Mono) {
        if self.by_name.contains_key(name) {
            self.drop_claims(name, at);
            self.by_name.remove(name);
        }
    }

    /// A list was completed: Services that it lacks are gone.
    pub(super) fn listed(&mut self, names: &[Name], at: Mono) {
        let names: BTreeSet<&Name> = names.iter().collect();
        let missing: Vec<Name> =
            self.by_name.keys().filter(|name| !names.contains(name)).cloned().collect();
        for name in missing {
            self.remove(&name, at);
        }
    }

    fn drop_claims(&mut self, name: &Name, at: Mono) {
        let Some(before) = self.by_name.get(name) else { return };
        for port in &before.ports {
            for ip in before.cluster_ips.iter().chain(&before.external_ips) {
                let address = SocketAddr::new(ip.to_canonical(), port.port);
                drop_claim(self.addresses.get_mut(&address), name, at);
            }
            if let Some(node_port) = port.node_port {
                drop_claim(self.node_ports.get_mut(&node_port), name, at);
            }
        }
    }

    pub(super) fn get(&self, name: &Name) -> Option<&Arc<ServiceFacts>> {
        self.by_name.get(name)
    }

    pub(super) fn at(&self, original: SocketAddr) -> Option<&Name> {
        self.addresses.get(&original).map(|claim| &claim.name)
    }

    pub(super) fn at_node_port(&self, port: u16) -> Option<&Name> {
        self.node_ports.get(&port).map(|claim| &claim.name)
    }

    pub(super) fn current(&self, original: SocketAddr) -> Option<&Name> {
        self.addresses
            .get(&original)
            .filter(|claim| claim.dropped.is_none())
            .map(|claim| &claim.name)
    }

    pub(super) fn current_node_port(&self, port: u16) -> Option<&Name> {
        self.node_ports.get(&port).filter(|claim| claim.dropped.is_none()).map(|claim| &claim.name)
    }

    /// Forgets addresses given up before `horizon`, and returns them.
    pub(super) fn forget(&mut self, horizon: Mono) -> Vec<SocketAddr> {
        self.node_ports.retain(|_, claim| claim.dropped.is_none_or(|at| at >= horizon));
        let given_up =
            self.addresses.iter().filter(|(_, claim)| claim.dropped.is_some_and(|at| at < horizon));
        let forgotten: Vec<SocketAddr> = given_up.map(|(address, _)| *address).collect();
        for address in &forgotten {
            self.addresses.remove(address);
        }
        forgotten
    }
}

fn drop_claim(claim: Option<&mut Claim>, name: &Name, at: Mono) {
    if let Some(claim) = claim.filter(|claim| claim.name == *name) {
        claim.dropped.get_or_insert(at);
    }
}
