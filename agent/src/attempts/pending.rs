//! An attempt that is not decided, and the taxonomy by which it is.

use std::{net::SocketAddr, sync::Arc};

use serde::Serialize;

use super::Failed;
use crate::model::{Attempt, Class, Mono};

/// The first retransmit comes `TCP_TIMEOUT_INIT` (1 s) after the SYN: an attempt abandoned sooner
/// has not been given the time to fail.
const FIRST_RETRANSMIT_NANOS: u64 = 1_000_000_000;

const ENETUNREACH: i32 = 101;
const ECONNREFUSED: i32 = 111;
const EHOSTUNREACH: i32 = 113;

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

impl Pending {
    pub(super) fn new(attempt: Attempt, at: Mono) -> Self {
        Self { attempt, started: None, drop: None, icmp: None, touched: at, closed: None }
    }

    /// Takes a later look at the attempt; one that saw no SYN adds nothing.
    pub(super) fn merge(&mut self, attempt: Attempt, at: Mono) {
        let earlier = self.attempt;
        if attempt.syns > 0 {
            self.attempt = attempt;
            if earlier.syns > 0 {
                self.attempt.first_syn = attempt.first_syn.min(earlier.first_syn);
                self.attempt.syns = attempt.syns.max(earlier.syns);
            }
        }
        self.touched = at;
    }

    /// Whether the client has given up and the SYN's fate is known. An ICMP about a SYN that no
    /// device saw does not tell its backend, which only a rejected one lacks: the kernel sends the
    /// ICMP first, and drops the SYN then.
    pub(super) fn is_ripe(&self) -> bool {
        let fate_known = self.attempt.syns > 0 || self.drop.is_some() || self.port_unreachable();
        self.closed.is_some() && fate_known
    }

    fn port_unreachable(&self) -> bool {
        self.icmp.is_some_and(|(code, v6)| code == if v6 { 4 } else { 3 })
    }

    /// Begin: `connect()` where it was seen, else the first SYN.
    pub(super) fn began(&self) -> Mono {
        let first = self.attempt.first_syn;
        let unseen = first == Mono(0);
        self.started.map_or(first, |start| if unseen { start } else { start.min(first) })
    }

    /// The class of an attempt that was not answered by TCP.
    pub(super) fn decide(
        self,
        ended: Mono,
        errno: i32,
        dialled_service: impl Fn(SocketAddr) -> bool,
    ) -> Failed {
        let Self { attempt, drop, icmp, .. } = &self;
        let undirected = !attempt.dnat && dialled_service(attempt.key.original);
        let (class, wire) = if undirected && (self.port_unreachable() || errno == ECONNREFUSED) {
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
        let began = self.began();
        let early = class == Class::Timeout
            && attempt.syns <= 1
            && ended.since(began) < FIRST_RETRANSMIT_NANOS;
        Failed { attempt: self.attempt, began, ended, class, wire, early, doubtful: false }
    }
}

/// Drop reasons that mean "no route" or "no neighbour".
fn is_want_of_way(reason: &str) -> bool {
    reason.starts_with("NEIGH_")
        || matches!(reason, "IP_OUTNOROUTES" | "IP_INNOROUTES" | "IP_INADDRERRORS")
}
