//! Attempts that are decided: what is heard of them later is no second failure.
//!
//! It does come: the drop of a SYN that waited for a neighbour, the sweep's last look before the
//! kernel forgets an attempt, the SYN that takes over its tuple.

use std::collections::{BTreeMap, VecDeque};

use crate::model::{AttemptKey, Mono};

/// Longer than the kernel keeps an unanswered attempt: `nf_conntrack_tcp_timeout_syn_sent` (120 s)
/// after its last SYN, which comes up to 127 s after the first (`tcp_syn_retries` 6).
const REMEMBER_NANOS: u64 = 300_000_000_000;

/// The most remembered.
pub(super) const MAX_DECIDED: usize = 131_072;

#[derive(Clone, Debug, Default)]
pub(super) struct Decided {
    /// Whether it failed; else it was answered.
    keys: BTreeMap<AttemptKey, bool>,
    order: VecDeque<(Mono, AttemptKey)>,
}

impl Decided {
    pub(super) fn contains(&self, key: &AttemptKey) -> bool {
        self.keys.contains_key(key)
    }

    /// Whether it failed, which a connection does once.
    pub(super) fn has_failed(&self, key: &AttemptKey) -> bool {
        self.keys.get(key).is_some_and(|failed| *failed)
    }

    /// Remembers it; how many had to be forgotten for it.
    pub(super) fn insert(&mut self, key: AttemptKey, failed: bool, at: Mono) -> u64 {
        let mut forgotten = 0;
        let known = self.keys.get(&key).copied();
        self.keys.insert(key, failed || known == Some(true));
        if known.is_none() {
            self.order.push_back((at, key));
        }
        while self.order.len() > MAX_DECIDED {
            self.pop();
            forgotten += 1;
        }
        forgotten
    }

    pub(super) fn forget(&mut self, now: Mono) {
        while self.order.front().is_some_and(|(at, _)| now.since(*at) >= REMEMBER_NANOS) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some((_, key)) = self.order.pop_front() {
            self.keys.remove(&key);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}
