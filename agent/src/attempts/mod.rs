//! An attempt's life: pending, then answered, or failed in one of the classes; decided once.
//!
//! # Layout
//! - `pending`: what is known of one before it is decided, and the taxonomy
//! - `decided`: what is heard of one afterwards

mod decided;
mod pending;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::SocketAddr};

use decided::Decided;
pub use pending::Pending;
use serde::Serialize;

use crate::model::{Answer, Attempt, AttemptKey, Class, End, Mono, Sighting};

/// How late the drop of a SYN that waited for a neighbour can come: three solicitations of 1 s
/// (`mcast_solicit`, `retrans_time_ms`), and some slack.
const LATE_DROP_NANOS: u64 = 4_000_000_000;

/// The kernel is about to forget an attempt this long after its last SYN: there is nothing left to
/// wait for. A little less than `nf_conntrack_tcp_timeout_syn_sent`.
const FORGOTTEN_NANOS: u64 = 115_000_000_000;

/// An attempt of which nothing was heard for this long is not heard of any more.
const SILENT_NANOS: u64 = 180_000_000_000;

/// The most pending attempts.
pub const MAX_PENDING: usize = 65_536;

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
    /// The connection was answered, and ended by its endpoint: the wire does not tell whether anything
    /// was lost by that. Counted, and no failure.
    pub doubtful: bool,
}

impl Failed {
    /// Whether the connection had been answered.
    pub fn was_answered(&self) -> bool {
        matches!(self.class, Class::Reset | Class::Cut)
    }

    /// The moment by which it is judged who is to blame: the last SYN; of a connection that had been
    /// answered, its end.
    pub fn moment(&self) -> Mono {
        if self.was_answered() { self.ended } else { self.last_syn() }
    }

    /// When it began to fail: the attempt's begin; of a connection that had been answered, its end.
    pub fn failing_since(&self) -> Mono {
        if self.was_answered() { self.ended } else { self.began }
    }

    /// What tells whether a rollout was complete before it: the first SYN; of a connection that had
    /// been answered, its end.
    pub fn judged_from(&self) -> Mono {
        if self.was_answered() { self.ended } else { self.first_syn() }
    }

    /// What came at that moment, in words.
    pub fn what(&self) -> &'static str {
        match self.class {
            Class::Reset => "the reset",
            Class::Cut => "the close",
            _ => "the SYN",
        }
    }

    /// The first SYN, or the begin where no SYN was seen.
    pub fn first_syn(&self) -> Mono {
        if self.attempt.syns == 0 { self.began } else { self.attempt.first_syn }
    }

    /// The last SYN, or the begin where no SYN was seen.
    pub fn last_syn(&self) -> Mono {
        if self.attempt.syns == 0 { self.began } else { self.attempt.last_syn }
    }
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
    /// It was decided before.
    Known,
    /// It is over, and nothing was seen of its begin: no SYN, no `connect()`.
    Unseen,
}

/// Attempts in flight about which something was seen.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    pending: BTreeMap<AttemptKey, Pending>,
    decided: Decided,
    /// Attempts not held for want of room, or forgotten before nothing more could be heard of them.
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
        let is_known = self.decided.contains(&attempt.key);
        match sighting {
            // The attempt may have been decided, as answered.
            Sighting::Ended { end, .. } => self.ended(attempt, *end, at),
            _ if is_known => Outcome::Known,
            Sighting::Answered { answer: Answer::SynAck, .. } => {
                self.pending.remove(&attempt.key);
                self.overflowed += self.decided.insert(attempt.key, false, at);
                Outcome::Answered
            }
            Sighting::Answered { answer: Answer::Rst, .. } => {
                let pending = self.take(attempt, at);
                let wire = "the SYN was answered by a RST".to_owned();
                self.fail(Failed {
                    began: pending.began(),
                    attempt: pending.attempt,
                    ended: at,
                    class: Class::Refused,
                    wire,
                    early: false,
                    doubtful: false,
                })
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
            Sighting::Abandoned { started: None, .. }
                if attempt.syns == 0 && !self.pending.contains_key(&attempt.key) =>
            {
                self.overflowed += self.decided.insert(attempt.key, true, at);
                Outcome::Unseen
            }
            Sighting::Abandoned { started, errno, .. } => {
                let mut pending = self.take(attempt, at);
                pending.started = pending.started.or(*started);
                pending.closed = Some((at, *errno));
                self.advance(pending, dialled_service)
            }
            Sighting::Superseded { .. } => {
                let pending = self.take(attempt, at);
                self.fail(pending.decide(at, 0, dialled_service))
            }
            Sighting::Unanswered { .. } => {
                // The client's own socket says when it gives up; the sweep asks again before the
                // kernel forgets the attempt.
                if is_local && at.since(attempt.last_syn) < FORGOTTEN_NANOS {
                    return Outcome::Pending;
                }
                let pending = self.take(attempt, at);
                self.fail(pending.decide(at, 0, dialled_service))
            }
        }
    }

    /// Decides what waited only for the fate of its SYN, once that wait is over.
    pub fn overdue(
        &mut self,
        now: Mono,
        dialled_service: impl Fn(SocketAddr) -> bool,
    ) -> Vec<Failed> {
        self.decided.forget(now);
        let is_due = |pending: &Pending| {
            pending.closed.is_some_and(|(at, _)| now.since(at) >= LATE_DROP_NANOS)
                || now.since(pending.touched) >= SILENT_NANOS
        };
        let due = self.pending.iter().filter(|(_, pending)| is_due(pending));
        let due: Vec<AttemptKey> = due.map(|(key, _)| *key).collect();
        let mut out = Vec::new();
        for key in due {
            let Some(pending) = self.pending.remove(&key) else { continue };
            let (at, errno) = pending.closed.unwrap_or((pending.touched, 0));
            if let Outcome::Failed(failed) = self.fail(pending.decide(at, errno, &dialled_service))
            {
                out.push(*failed);
            }
        }
        out
    }

    /// The begin of the earliest that is pending.
    pub fn earliest(&self) -> Option<Mono> {
        self.pending.values().map(Pending::began).min()
    }

    /// How many are pending.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether none is pending.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// How many decided ones are remembered.
    pub fn decided(&self) -> usize {
        self.decided.len()
    }

    fn take(&mut self, attempt: Attempt, at: Mono) -> Pending {
        let known = self.pending.remove(&attempt.key);
        let mut pending = known.unwrap_or_else(|| Pending::new(attempt, at));
        pending.merge(attempt, at);
        pending
    }

    /// Decides if the client has given up and the SYN's fate is known; else keeps it.
    fn advance(
        &mut self,
        pending: Pending,
        dialled_service: impl Fn(SocketAddr) -> bool,
    ) -> Outcome {
        if let Some((at, errno)) = pending.closed
            && pending.is_ripe()
        {
            return self.fail(pending.decide(at, errno, dialled_service));
        }
        if self.pending.len() >= MAX_PENDING {
            self.overflowed += 1;
            return Outcome::Pending;
        }
        self.pending.insert(pending.attempt.key, pending);
        Outcome::Pending
    }

    /// A connection that had been answered is over.
    fn ended(&mut self, attempt: Attempt, end: End, at: Mono) -> Outcome {
        if self.decided.has_failed(&attempt.key) {
            return Outcome::Known;
        }
        self.pending.remove(&attempt.key);
        let (class, wire) = match end {
            End::Cut => (Class::Cut, "the pod closed the connection without a byte of an answer"),
            End::Reset => (Class::Reset, "the pod reset the connection"),
            End::Closed => (Class::Cut, "the pod closed the connection, which may have been idle"),
        };
        self.fail(Failed {
            began: attempt.first_syn,
            attempt,
            ended: at,
            class,
            wire: wire.to_owned(),
            early: false,
            doubtful: end == End::Closed,
        })
    }

    fn fail(&mut self, failed: Failed) -> Outcome {
        self.overflowed += self.decided.insert(failed.attempt.key, true, failed.ended);
        Outcome::Failed(Box::new(failed))
    }
}
