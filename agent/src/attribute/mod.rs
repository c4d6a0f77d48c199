//! From a failure and what is known of its backend to a cause, with the chain of evidence; or to
//! "not yet". Unknown is an answer, a guess is not.
//!
//! # Layout
//! - `whose`: whose the backend's address was
//! - `undirected`: the same where the rules chose no backend
//! - `departure`: why an endpoint left
//! - `serving`: why one that did not leave failed
//! - `never_open`: a port that refused everybody long before
//! - `local`: dropped for a traffic policy of Local
//! - `misdelivered`: whether a pod of another workload answered
//! - `node`: whether its node is lost; `bad`: one bad replica among good ones
//! - `blame`, `words`: the cause with its evidence

mod bad;
mod blame;
mod departure;
mod local;
mod misdelivered;
mod never_open;
mod node;
mod serving;
mod undirected;
mod whose;
mod words;

use std::{collections::BTreeMap, net::SocketAddr};

pub use blame::Blame;
use whose::{Whose, whose};

use crate::{
    attempts::Failed,
    endpoints::{Endpoints, Lifetime, Name},
    engine::AttemptCounts,
    failing::Failing,
    model::{Class, Mono},
    nodes::Nodes,
    owners::{Owners, remembered::Remembered},
    rollouts::Rollouts,
};

/// Longest wait for evidence after the outcome was known.
pub const EVIDENCE_NANOS: u64 = 30_000_000_000;

/// Everything a verdict rests on.
pub struct Known<'a> {
    /// Lifetimes.
    pub endpoints: &'a Endpoints,
    /// Pods and their owners.
    pub owners: &'a Owners,
    /// Rollouts.
    pub rollouts: &'a Rollouts,
    /// Counts by what was dialled.
    pub counts: &'a BTreeMap<SocketAddr, AttemptCounts>,
    /// What was dialled and has refused without ever answering, and since when.
    pub never_answered: &'a BTreeMap<SocketAddr, Mono>,
    /// Nodes that were asked about.
    pub nodes: &'a Nodes,
    /// Workloads that there was no room to follow.
    pub not_followed: &'a Remembered<()>,
    /// Pods that keep failing.
    pub failing: &'a Failing,
    /// How long one must have failed to be a bad backend, in nanoseconds.
    pub bad_backend_after: u64,
    /// This node.
    pub node: &'a str,
    /// Now.
    pub now: Mono,
    /// This node's name if the client has its address: kubelet's probes come from there, and go to
    /// pods of the same node.
    pub probing_node: Option<&'a str>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Decided.
    Blame(Box<Blame>),
    /// Given up by the client before it could fail, on an endpoint that was serving: no failure.
    Cancelled,
    /// An answered connection was ended by an endpoint that did not leave: no failure of a departure's.
    Stayed,
    /// A direct connection that no Service sent there: a kubelet's probe, or a client that dials an
    /// endpoint which was never ready.
    Undirected,
    /// Neither its backend nor what was dialled is of any Service.
    Foreign,
    /// It followed an old entry, and reached the Service's own pod all the same: no failure.
    Delivered,
    /// Evidence is missing and may still come.
    NotYet,
}

/// Decides, or waits.
pub fn decide(failed: &Failed, service: Option<&Name>, known: &Known<'_>) -> Decision {
    let last_chance = known.now.since(failed.ended) >= EVIDENCE_NANOS;
    if failed.class == Class::Misdelivered
        && let Some(decision) = misdelivered::unless_wrong(failed, service, known)
    {
        return decision;
    }
    let is_local = service.is_some_and(|service| local::drops(failed, service, known));
    let owner = match service {
        Some(service) if is_local => local::whose(failed, service, known),
        Some(service) if undirected::is(failed) => {
            undirected::whose(failed, service, known.endpoints)
        }
        _ => whose(failed, service, known.endpoints),
    };
    let life = match owner {
        Whose::One(life) => life,
        Whose::Nobody if last_chance && service.is_none() => return Decision::Foreign,
        Whose::Nobody if failed.was_answered() => {
            return if last_chance { Decision::Stayed } else { Decision::NotYet };
        }
        Whose::Nobody => {
            return unless(last_chance, failed, || {
                let mut blame = Blame::unknown(failed);
                blame.gone(failed);
                if is_local {
                    local::explain(&mut blame);
                }
                blame.because(match failed.class {
                    Class::Rejected => "no endpoint of the Service was seen leaving".to_owned(),
                    _ => "no endpoint was seen at that address".to_owned(),
                });
                blame
            });
        }
        Whose::Either(earlier, later) => {
            return unless(last_chance, failed, || either(failed, earlier, later));
        }
    };
    if !failed.attempt.dnat && failed.class != Class::Rejected && service.is_none() {
        if known.probing_node.is_some_and(|node| life.node.as_deref() == Some(node)) {
            return Decision::Undirected;
        }
        if life.ready.is_none() {
            return if last_chance { Decision::Undirected } else { Decision::NotYet };
        }
    }
    let pod = life.pod.as_ref().and_then(|pod| known.owners.pod_by_uid(&pod.uid));
    let left = departure::explains(failed, life, pod);
    if failed.early && left.is_none() {
        return if last_chance { Decision::Cancelled } else { Decision::NotYet };
    }
    let mut blame = Blame::of(life, failed);
    if is_local {
        local::explain(&mut blame);
    }
    if failed.class == Class::Misdelivered {
        misdelivered::explain(&mut blame, failed, known);
    }
    if left.is_some() && !is_local {
        blame.gone(failed);
    }
    let Some(pod) = &life.pod else {
        blame.because("the endpoint names no pod".to_owned());
        return Decision::Blame(Box::new(blame));
    };
    let place = known.owners.place(&pod.uid);
    blame.workload = known.owners.workload_of(&pod.uid);
    let is_known = match left {
        _ if !life.was_removed() && node::blame(&mut blame, failed, life, known) => true,
        Some(left) if never_open::explains(&mut blame, failed, left, known) => false,
        Some(left) => departure::blame(&mut blame, failed, life, left, place.as_ref(), known),
        None => {
            serving::blame(&mut blame, failed, life, place.as_ref(), known, last_chance)
                // It may still turn out to have been leaving.
                || last_chance && !failed.was_answered() && bad::blame(&mut blame, failed, life, known)
        }
    };
    if !is_known && left.is_none() && failed.was_answered() {
        return if last_chance { Decision::Stayed } else { Decision::NotYet };
    }
    if is_known {
        return Decision::Blame(Box::new(blame));
    }
    unless(last_chance, failed, || {
        blame.because(if blame.workload.is_none() {
            let why = known.owners.answer(&pod.uid).map_or("nobody could be asked", |(_, how)| how);
            format!("owner of pod {} unknown: {why}", pod.name)
        } else if place.is_none() {
            format!("revision of pod {} unknown", pod.name)
        } else if left.is_none() {
            format!("pod {} was serving, and did not leave", pod.name)
        } else {
            "no rollout of its workload fits".to_owned()
        });
        if blame.workload.as_ref().is_some_and(|key| known.not_followed.get(&key.uid).is_some()) {
            blame.because("too many workloads roll out at once: this one is not followed".into());
        }
        blame
    })
}

fn unless(last_chance: bool, failed: &Failed, blame: impl FnOnce() -> Blame) -> Decision {
    match (last_chance, failed.early) {
        (false, _) => Decision::NotYet,
        (true, true) => Decision::Cancelled,
        (true, false) => Decision::Blame(Box::new(blame())),
    }
}

fn either(failed: &Failed, earlier: &Lifetime, later: &Lifetime) -> Blame {
    let mut blame = Blame::unknown(failed);
    let (was, is) = (words::name(earlier), words::name(later));
    let gone = words::apart(earlier.gone.unwrap_or(earlier.first_seen), failed);
    let seen = words::apart(later.first_seen, failed);
    blame.because(format!(
        "the address passed from {was} (gone {gone}) to {is} (first seen {seen}): either fits"
    ));
    blame
}

/// The Service that a client means when it dials this address and port.
pub fn service_dialled(original: SocketAddr, dnat: bool, endpoints: &Endpoints) -> Option<Name> {
    let virtual_address = endpoints.service_at(original);
    let node_port = || endpoints.service_at_node_port(original.port()).filter(|_| dnat);
    virtual_address.or_else(node_port).cloned()
}
