//! Whether an entry may be deleted: one rule a line, and everything else is protected.

use std::{collections::BTreeSet, net::IpAddr};

use super::Tracked;
use crate::{
    endpoints::Endpoints,
    model::{DST_NAT, Mono, SEEN_REPLY, SYN_SENT, Transport},
};

/// Why an entry must not be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protected {
    /// The watches are out of step: what they say may be old.
    OutOfStep,
    /// It is no TCP entry; kube-proxy itself deletes stale ones of UDP.
    NotTcp,
    /// Its state is not `SYN_SENT`: there is, or was, a connection.
    NotSynSent,
    /// Something came back.
    Answered,
    /// Netfilter did not change its destination: nobody did, or IPVS, whose own table pins as well.
    NotDnat,
    /// No endpoint was ever seen at its backend's address and port.
    UnknownBackend,
    /// Its backend's address and port are a current endpoint's, be it one that is leaving.
    CurrentBackend,
    /// Its backend has not been gone for long enough.
    GoneTooShort,
    /// What was dialled is no Service's: a cluster address, node port, external or load-balancer address.
    NoService,
    /// The Service has no endpoint that would answer a new attempt.
    NoServingEndpoint,
}

/// Everything that an eviction rests on.
pub struct World<'a> {
    /// Lifetimes and Services.
    pub endpoints: &'a Endpoints,
    /// The node's own addresses: where its node ports are.
    pub node_addresses: &'a BTreeSet<IpAddr>,
    /// The watches are in step.
    pub synced: bool,
    /// How long a backend must have been gone, in nanoseconds.
    pub after: u64,
    /// Now.
    pub now: Mono,
}

/// Whether an entry may be deleted.
///
/// # Errors
/// The first rule that protects it.
pub fn may_evict(tracked: &Tracked, world: &World<'_>) -> Result<(), Protected> {
    let entry = &tracked.entry;
    let unless = |protected: bool, why: Protected| if protected { Err(why) } else { Ok(()) };
    unless(!world.synced, Protected::OutOfStep)?;
    unless(entry.key.protocol != Transport::Tcp, Protected::NotTcp)?;
    unless(entry.state != Some(SYN_SENT), Protected::NotSynSent)?;
    unless(entry.status & SEEN_REPLY != 0, Protected::Answered)?;
    unless(entry.status & DST_NAT == 0, Protected::NotDnat)?;
    let lives = world.endpoints.at(entry.backend);
    unless(lives.is_empty(), Protected::UnknownBackend)?;
    let any_port = std::net::SocketAddr::new(entry.backend.ip(), 0);
    let is_current = |address| world.endpoints.at(address).iter().any(|life| life.gone.is_none());
    unless(is_current(entry.backend) || is_current(any_port), Protected::CurrentBackend)?;
    let gone = lives.iter().filter_map(|life| life.gone).max();
    let long_gone = gone.is_some_and(|gone| world.now.since(gone) >= world.after);
    unless(!long_gone, Protected::GoneTooShort)?;
    let original = entry.key.original;
    let at_node_port = || {
        let is_own = world.node_addresses.contains(&original.ip());
        world.endpoints.serves_at_node_port(original.port()).filter(|_| is_own)
    };
    let service = world.endpoints.serves_at(original).or_else(at_node_port);
    let service = service.ok_or(Protected::NoService)?;
    unless(world.endpoints.ready_of(service) == 0, Protected::NoServingEndpoint)
}
