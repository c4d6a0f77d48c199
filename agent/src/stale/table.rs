//! The unanswered, redirected entries of the node's conntrack table, folded from scans.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use crate::{
    engine::ConntrackScan,
    model::{ConntrackEntry, EntryKey, Mono},
};

/// The most entries kept: as many as unanswered attempts in the kernel's map by default.
pub const MAX_ENTRIES: usize = 65_536;

/// The kernel tells timers in whole seconds: less than this between two scans is no change.
const RESOLUTION_NANOS: u64 = 1_500_000_000;

/// Refreshes no further apart are one: an attempt's retransmits come 1 s apart at first.
const SAME_REFRESH_NANOS: u64 = 5_000_000_000;

/// How long after a refresh no end is predicted: the attempt that it belongs to may still retransmit.
const UNSETTLED_NANOS: u64 = 10_000_000_000;

/// From so many refreshes on a client is taken to go on, for as long as an entry can live
/// (`nf_conntrack_tcp_timeout_syn_sent`).
const KEPT_REFRESHES: u32 = 3;
const KEPT_NANOS: u64 = 120_000_000_000;

/// An entry, and what was seen of it over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// As last seen.
    pub entry: ConntrackEntry,
    /// First seen by a scan: it is at least that old.
    pub first_seen: Mono,
    /// When its expiry was last seen to have moved later.
    pub refreshed: Option<Mono>,
    /// How often that was, an attempt with its retransmits once.
    pub refreshes: u32,
    /// When its eviction was last asked for.
    pub eviction: Option<Mono>,
}

impl Tracked {
    /// Whether it is kept alive, so that its timer says nothing about its end: a packet hit it of late,
    /// or so often that more are to be expected.
    pub fn is_refreshed(&self, now: Mono) -> bool {
        let settled = if self.refreshes >= KEPT_REFRESHES { KEPT_NANOS } else { UNSETTLED_NANOS };
        self.refreshed.is_some_and(|at| now.since(at) < settled)
    }
}

/// The entries.
#[derive(Clone, Debug, Default)]
pub struct Table {
    entries: BTreeMap<EntryKey, Tracked>,
    by_backend: BTreeMap<SocketAddr, BTreeSet<EntryKey>>,
    /// When the last scan began.
    scanned: Option<Mono>,
    /// Entries not kept for want of room, in all.
    pub left_out: u64,
}

impl Table {
    /// Takes a scan in.
    pub fn scan(&mut self, scan: &ConntrackScan) {
        let at = scan.began;
        self.scanned = Some(at);
        self.left_out += scan.left_out;
        if scan.whole {
            let found: BTreeSet<&EntryKey> = scan.entries.iter().map(|entry| &entry.key).collect();
            let lacking = self.entries.keys().filter(|key| !found.contains(key));
            for key in lacking.copied().collect::<Vec<_>>() {
                self.remove(&key);
            }
        }
        for key in &scan.ended {
            self.remove(key);
        }
        for entry in &scan.entries {
            self.put(*entry, at);
        }
    }

    fn put(&mut self, entry: ConntrackEntry, at: Mono) {
        let same =
            |known: &Tracked| known.entry.id == entry.id && known.entry.backend == entry.backend;
        if !self.entries.get(&entry.key).is_some_and(same) {
            self.remove(&entry.key);
            if self.entries.len() >= MAX_ENTRIES {
                self.left_out += 1;
                return;
            }
            let tracked =
                Tracked { entry, first_seen: at, refreshed: None, refreshes: 0, eviction: None };
            self.by_backend.entry(entry.backend).or_default().insert(entry.key);
            self.entries.insert(entry.key, tracked);
        } else if let Some(known) = self.entries.get_mut(&entry.key) {
            if entry.expires.since(known.entry.expires) >= RESOLUTION_NANOS {
                if known.refreshed.is_none_or(|last| at.since(last) >= SAME_REFRESH_NANOS) {
                    known.refreshes += 1;
                }
                known.refreshed = Some(at);
            }
            known.entry = entry;
        }
    }

    /// Forgets an entry that is not there any more.
    pub fn remove(&mut self, key: &EntryKey) {
        let Some(tracked) = self.entries.remove(key) else { return };
        let backend = tracked.entry.backend;
        if let Some(keys) = self.by_backend.get_mut(&backend) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_backend.remove(&backend);
            }
        }
    }

    /// Forgets what has expired since the last scan.
    pub fn expire(&mut self, now: Mono) {
        // The timer is told in whole seconds, rounded down.
        let over = |tracked: &&Tracked| now.since(tracked.entry.expires) >= RESOLUTION_NANOS;
        let over = self.entries.values().filter(over).map(|tracked| tracked.entry.key);
        for key in over.collect::<Vec<_>>() {
            self.remove(&key);
        }
    }

    /// The entry of this tuple.
    pub fn get(&self, key: &EntryKey) -> Option<&Tracked> {
        self.entries.get(key)
    }

    /// Notes that the eviction of an entry was asked for.
    pub fn asked(&mut self, key: &EntryKey, at: Mono) {
        if let Some(tracked) = self.entries.get_mut(key) {
            tracked.eviction = Some(at);
        }
    }

    /// Entries by backend.
    pub fn by_backend(&self) -> impl Iterator<Item = (SocketAddr, impl Iterator<Item = &Tracked>)> {
        self.by_backend
            .iter()
            .map(|(backend, keys)| (*backend, keys.iter().filter_map(|key| self.entries.get(key))))
    }

    /// All entries.
    pub fn all(&self) -> impl Iterator<Item = &Tracked> {
        self.entries.values()
    }

    /// When the last scan began.
    pub fn scanned(&self) -> Option<Mono> {
        self.scanned
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
