//! An attempt's life: pending, then answered, or failed in one of the classes.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use serde::Serialize;

use crate::model::{Answer, Attempt, AttemptKey, Class, Mono, Sighting};

/// The first retransmit comes `TCP_TIMEOUT_INIT` (1 s) after the SYN: an attempt abandoned sooner
/// has not been given the time to fail.
const FIRST_RETRANSMIT_NANOS: u64 = 1_000_000_000;

/// How late the drop of a SYN that waited for a neighbour can come: three solicitations of 1 s
/// (`mcast_solicit`, `retrans_time_ms`), and some slack.
const LATE_DROP_NANOS: u64 = 4_000_000_000;

/// The most pending attempts.
const MAX_PENDING: usize = 65_536;

/// An attempt about which something was seen, and that is not decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// As last seen.
    pub attempt: Attempt,
    /// When `connect()` began, if seen.
    pub started: Option<Mono>,
    /// Reason of the last drop of its SYN.
    pub drop: Option<Arc<str>>,
    /// ICMP code and whether it was `ICMPv6`.
    pub icmp: Option<(u8, bool)>,
    /// When it was last spoken of.
    pub touched: Mono,
    /// Its socket was closed, with this error; only the SYN's fate is still awaited.
    pub closed: Option<(Mono, i32)>,
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// The attempt.
    pub attempt: Attempt,
    /// Begin: `connect()` where it was seen, else the first SYN.
    pub began: Mono,
    /// Outcome known.
    pub ended: Mono,
    /// How.
    pub class: Class,
    /// What the wire showed, in words.
    pub wire: String,
    /// Abandoned before the first retransmit could be due: a failure only if the endpoint was
    /// leaving or gone.
    pub early: bool,
}

/// What a sighting meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing yet.
    Pending,
    /// The attempt was answered.
    Answered,
    /// It failed.
    Failed(Box<Failed>),
}

/// Attempts in flight about which something was seen.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    pending: BTreeMap<AttemptKey, Pending>,
    /// Attempts not held for want of room.
    pub overflowed: u64,
}

impl Attempts {
    /// Takes a sighting. `dialled_service` tells whether an address is a Service's own, `is_local`
    /// whether the client's socket is this node's to see.
    pub fn saw(
        &mut self,
        sighting: &Sighting,
        dialled_service: impl Fn(SocketAddr) -> bool,
        is_local: bool,
    ) -> Outcome {
        let attempt = *sighting.attempt();
        let at = sighting.at();
        match sighting {
            Sighting::Answered { answer: Answer::SynAck, .. } => {
                self.pending.remove(&attempt.key);
                Outcome::Answered
            }
            Sighting::Answered { answer: Answer::Rst, .. } => {
                let began = self.take(attempt, at).began();
                let wire = "the SYN was answered by a RST".to_owned();
                failed(attempt, began, at, Class::Refused, wire)
            }
            Sighting::Answered { answer: Answer::Icmp { code, v6 }, .. } => {
                let mut pending = self.take(attempt, at);
                pending.icmp = Some((*code, *v6));
                self.advance(pending, dialled_service)
            }
            Sighting::Dropped { drop, .. } => {
                let mut pending = self.take(attempt, at);
                pending.drop = Some(drop.reason.clone());
                self.advance(pending, dialled_service)
            }
            Sighting::Abandoned { started, errno, .. } => {
                let mut pending = self.take(attempt, at);
                pending.started = pending.started.or(*started);
                pending.closed = Some((at, *errno));
                self.advance(pending, dialled_service)
            }
            Sighting::Superseded { .. } => {
                let pending = self.take(attempt, at);
                pending.decide(at, 0, dialled_service)
            }
            Sighting::Unanswered { .. } => {
                // The client's own socket says when it gives up; the sweep asks again before the
                // kernel forgets the attempt, and then there is nothing left to wait for.
                let forgotten = at.since(attempt.last_syn) >= 115_000_000_000;
                if is_local && !forgotten {
                    return Outcome::Pending;
                }
                let pending = self.take(attempt, at);
                pending.decide(at, 0, dialled_service)
            }
        }
    }

    /// Decides what waited only for the fate of its SYN, once that wait is over.
    pub fn overdue(&mut self, now: Mono, dialled_service: impl Fn(SocketAddr) -> bool) -> Vec<Failed> {
        let due: Vec<AttemptKey> = self
            .pending
            .iter()
            .filter(|(_, pending)| {
                pending.closed.is_some_and(|(at, _)| now.since(at) >= LATE_DROP_NANOS)
                    || now.since(pending.touched) >= 180_000_000_000
            })
            .map(|(key, _)| *key)
            .collect();
        let mut out = Vec::new();
        for key in due {
            let Some(pending) = self.pending.remove(&key) else { continue };
            let (at, errno) = pending.closed.unwrap_or((pending.touched, 0));
            if let Outcome::Failed(failed) = pending.decide(at, errno, &dialled_service) {
                out.push(*failed);
            }
        }
        out
    }

    /// How many are pending.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether none is pending.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn take(&mut self, attempt: Attempt, at: Mono) -> Pending {
        let known = self.pending.remove(&attempt.key);
        let mut pending = known.unwrap_or(Pending {
            attempt,
            started: None,
            drop: None,
            icmp: None,
            touched: at,
            closed: None,
        });
        let earlier = pending.attempt;
        if attempt.syns > 0 {
            pending.attempt = attempt;
            if earlier.syns > 0 {
                pending.attempt.first_syn = attempt.first_syn.min(earlier.first_syn);
                pending.attempt.syns = attempt.syns.max(earlier.syns);
            }
        }
        pending.touched = at;
        pending
    }

    /// Decides if the client has given up and the SYN's fate is known; else keeps it.
    fn advance(&mut self, pending: Pending, dialled_service: impl Fn(SocketAddr) -> bool) -> Outcome {
        if let Some((at, errno)) = pending.closed {
            let fate_known =
                pending.attempt.syns > 0 || pending.icmp.is_some() || pending.drop.is_some();
            if fate_known {
                return pending.decide(at, errno, dialled_service);
            }
        }
        if self.pending.len() >= MAX_PENDING {
            self.overflowed += 1;
            return Outcome::Pending;
        }
        self.pending.insert(pending.attempt.key, pending);
        Outcome::Pending
    }
}

impl Pending {
    fn began(&self) -> Mono {
        let first = self.attempt.first_syn;
        self.started.map_or(first, |started| if first.0 == 0 { started } else { started.min(first) })
    }

    /// The class of an attempt that was not answered by TCP.
    fn decide(self, ended: Mono, errno: i32, dialled_service: impl Fn(SocketAddr) -> bool) -> Outcome {
        const ENETUNREACH: i32 = 101;
        const ECONNREFUSED: i32 = 111;
        const EHOSTUNREACH: i32 = 113;
        let Self { attempt, drop, icmp, .. } = &self;
        let undirected = !attempt.dnat && dialled_service(attempt.key.original);
        let port_unreachable = icmp.is_some_and(|(code, v6)| code == if v6 { 4 } else { 3 });
        let (class, wire) = if undirected && (port_unreachable || errno == ECONNREFUSED) {
            (Class::Rejected, "the proxy rejected the SYN: no usable endpoint".to_owned())
        } else if let Some((code, v6)) = icmp {
            let version = if *v6 { "ICMPv6" } else { "ICMP" };
            (Class::Unreachable, format!("{version} unreachable (code {code}) answered the SYN"))
        } else if errno == ECONNREFUSED {
            (Class::Refused, "the client's socket got ECONNREFUSED".to_owned())
        } else if let Some(reason) = drop.as_ref().filter(|reason| is_want_of_way(reason)) {
            (Class::Unreachable, format!("the SYN was dropped on this node: {reason}"))
        } else if errno == EHOSTUNREACH || errno == ENETUNREACH {
            (Class::Unreachable, format!("the client's socket got error {errno}"))
        } else {
            let syns = attempt.syns.max(1);
            let dropped = drop.as_ref().map(|reason| format!(", dropped here: {reason}"));
            let noun = if syns == 1 { "SYN" } else { "SYNs" };
            (Class::Timeout, format!("{syns} {noun}, no answer{}", dropped.unwrap_or_default()))
        };
        let early = class == Class::Timeout
            && attempt.syns <= 1
            && ended.since(self.began()) < FIRST_RETRANSMIT_NANOS;
        let began = self.began();
        match failed(self.attempt, began, ended, class, wire) {
            Outcome::Failed(mut failed) => {
                failed.early = early;
                Outcome::Failed(failed)
            }
            other => other,
        }
    }
}

/// Drop reasons that mean "no route" or "no neighbour".
fn is_want_of_way(reason: &str) -> bool {
    reason.starts_with("NEIGH_") || matches!(reason, "IP_OUTNOROUTES" | "IP_INNOROUTES" | "IP_INADDRERRORS")
}

fn failed(attempt: Attempt, began: Mono, ended: Mono, class: Class, wire: String) -> Outcome {
    Outcome::Failed(Box::new(Failed { attempt, began, ended, class, wire, early: false }))
}
