//! What the cluster side can tell about itself: for status, metrics and the log.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use serde::Serialize;

use super::{
    denied::{Denials, Denied},
    object::Complaint,
};
use crate::closed::names;

/// The most complaints kept in words.
const MAX_COMPLAINTS: usize = 16;

names! {
    /// A watch, or a group of alike watches.
    WatchName {
        /// All `EndpointSlice`s.
        EndpointSlices = "endpointslices",
        /// All Services.
        Services = "services",
        /// The pods of this node.
        Pods = "pods",
        /// Workloads that are followed.
        Workloads = "workloads",
        /// Their `ReplicaSet`s.
        ReplicaSets = "replicasets",
        /// Their pods, on any node.
        FollowedPods = "followed_pods",
        /// Controller revisions of followed `StatefulSet`s and `DaemonSet`s.
        ControllerRevisions = "controllerrevisions",
    }
}

names! {
    /// Why a watch had to be begun again.
    Restart {
        /// The version it would have gone on from is too old: everything was listed anew.
        Gone410 = "gone_410",
        /// The version is from the server's future (it was restored from a backup): listed anew.
        Ahead = "version_ahead",
        /// The server closed it, as it does every few minutes.
        Closed = "closed",
        /// Nothing came for longer than the server's own timeout, or a request was not taken up.
        Silent = "silent",
        /// The server does not stream lists: listed in pages from now on.
        NoStreaming = "no_streaming_list",
        /// The server forbids it (403), or does not know who asks (401).
        Denied = "denied",
        /// Anything else: the server cannot be reached, or fails.
        Error = "error",
    }
}

/// How a watch stands; of a group of alike ones, the one that stands worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchState {
    /// There is none: no workload is followed that needs it.
    #[default]
    Idle,
    /// Has not listed everything yet.
    Starting,
    /// Has listed everything and is told of changes.
    Synced,
    /// Was synced, and has lost the server.
    Lost,
    /// The server forbids it.
    Denied,
}

impl WatchState {
    const WORST_FIRST: [Self; 4] = [Self::Denied, Self::Lost, Self::Starting, Self::Synced];
}

/// One watch as seen at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WatchSnapshot {
    /// How it stands.
    pub state: WatchState,
    /// Restarts by reason; every reason is there, 0 included.
    pub restarts: BTreeMap<Restart, u64>,
    /// The last error, with verb and resource.
    pub last_error: Option<String>,
    /// Objects received, listed and changed.
    pub objects: u64,
    /// Events older than what was known of their object already, and left out.
    pub stale: u64,
}

#[derive(Debug, Default)]
struct WatchCell {
    objects: AtomicU64,
    stale: AtomicU64,
    /// How many of the group stand so, by state.
    standing: Mutex<[usize; 5]>,
    rest: Mutex<WatchSnapshot>,
}

/// Everything at a moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClusterSnapshot {
    /// Each watch.
    pub watches: BTreeMap<WatchName, WatchSnapshot>,
    /// Whether the three watches that never end have all caught up.
    pub synced: bool,
    /// Objects, or parts of them, that made no sense, by kind.
    pub skipped: BTreeMap<&'static str, u64>,
    /// The last such complaints, each once: kind, object, and what is wrong with it.
    pub complaints: Vec<String>,
    /// What the server forbids, and what that costs.
    pub denied: Vec<Denied>,
    /// Requests by (resource, HTTP code); code 0: no answer.
    #[serde(serialize_with = "requests_by_name")]
    pub requests: BTreeMap<(String, u16), u64>,
    /// Workloads followed now.
    pub followed: usize,
    /// Workloads that were not followed for want of room.
    pub follow_refused: u64,
    /// Owner look-ups that were dropped because too many were waiting.
    pub resolve_dropped: u64,
    /// Owner look-ups answered from the cache.
    pub resolve_cached: u64,
}

/// JSON wants text as keys: `pods 200`.
fn requests_by_name<S: serde::Serializer>(
    requests: &BTreeMap<(String, u16), u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(
        requests.iter().map(|((resource, code), count)| (format!("{resource} {code}"), count)),
    )
}

/// Shared by the tasks that write it and by metrics and status, which read it.
#[derive(Debug, Default)]
pub struct ClusterStats {
    watches: [WatchCell; WatchName::ALL.len()],
    synced: AtomicUsize,
    skipped: Mutex<(BTreeMap<&'static str, u64>, VecDeque<String>)>,
    denied: Mutex<Denials>,
    requests: Mutex<BTreeMap<(String, u16), u64>>,
    pub(super) followed: AtomicUsize,
    pub(super) follow_refused: AtomicU64,
    pub(super) resolve_dropped: AtomicU64,
    pub(super) resolve_cached: AtomicU64,
}

impl ClusterStats {
    /// A consistent enough copy: each part is, the whole need not be.
    pub fn snapshot(&self) -> ClusterSnapshot {
        let (skipped, complaints) = lock(&self.skipped).clone();
        ClusterSnapshot {
            watches: WatchName::ALL.iter().map(|name| (*name, self.watch(*name))).collect(),
            synced: self.synced.load(Relaxed) != 0,
            skipped,
            complaints: complaints.into(),
            denied: lock(&self.denied).all(),
            requests: lock(&self.requests).clone(),
            followed: self.followed.load(Relaxed),
            follow_refused: self.follow_refused.load(Relaxed),
            resolve_dropped: self.resolve_dropped.load(Relaxed),
            resolve_cached: self.resolve_cached.load(Relaxed),
        }
    }

    /// One watch.
    pub fn watch(&self, name: WatchName) -> WatchSnapshot {
        let cell = &self.watches[name as usize];
        let mut snapshot = lock(&cell.rest).clone();
        snapshot.objects = cell.objects.load(Relaxed);
        let standing = *lock(&cell.standing);
        snapshot.state = WatchState::WORST_FIRST
            .into_iter()
            .find(|state| standing[*state as usize] > 0)
            .unwrap_or_default();
        snapshot.stale = cell.stale.load(Relaxed);
        for reason in Restart::ALL {
            snapshot.restarts.entry(*reason).or_insert(0);
        }
        snapshot
    }

    pub(super) fn received(&self, name: WatchName) {
        self.watches[name as usize].objects.fetch_add(1, Relaxed);
    }

    pub(super) fn stale(&self, name: WatchName) {
        self.watches[name as usize].stale.fetch_add(1, Relaxed);
    }

    pub(super) fn restarted(&self, name: WatchName, reason: Restart, error: Option<&str>) {
        let mut watch = lock(&self.watches[name as usize].rest);
        *watch.restarts.entry(reason).or_insert(0) += 1;
        if let Some(error) = error {
            watch.last_error = Some(error.to_owned());
        }
    }

    /// One of these watches stands differently now; `Idle`: it begins, or it ended.
    pub(super) fn moved(&self, name: WatchName, from: WatchState, to: WatchState) {
        let mut standing = lock(&self.watches[name as usize].standing);
        standing[from as usize] = standing[from as usize].saturating_sub(1);
        standing[to as usize] += 1;
        standing[WatchState::Idle as usize] = 0;
    }

    pub(super) fn set_synced(&self, synced: bool) {
        self.synced.store(usize::from(synced), Relaxed);
    }

    /// A request was answered with this code; 0: not at all.
    pub(super) fn requested(&self, verb: &'static str, resource: &str, code: u16) {
        if matches!(code, 200 | 404 | 409) {
            lock(&self.denied).lift(verb, resource);
        }
        let mut requests = lock(&self.requests);
        *requests.entry((resource.to_owned(), code)).or_insert(0) += 1;
    }

    /// The server forbids it; whether that is news.
    pub(super) fn denied(&self, verb: &'static str, resource: &str, error: &str) -> bool {
        lock(&self.denied).put(verb, resource, error)
    }

    /// Counts what made no sense and says it: the first of each kind loudly, the rest for those who
    /// look.
    pub(super) fn complain(&self, complaints: &[Complaint]) {
        for complaint in complaints {
            let first = {
                let mut skipped = lock(&self.skipped);
                let text = complaint.to_string();
                skipped.1.retain(|known| *known != text);
                skipped.1.push_back(text);
                if skipped.1.len() > MAX_COMPLAINTS {
                    skipped.1.pop_front();
                }
                let count = skipped.0.entry(complaint.kind).or_insert(0);
                *count += 1;
                *count == 1
            };
            if first {
                tracing::warn!(kind = complaint.kind, object = %complaint.object,
                    "left out of an object that makes no sense: {} (further ones of this kind are \
                     counted only)", complaint.what);
            } else {
                tracing::debug!(kind = complaint.kind, object = %complaint.object, "{}", complaint.what);
            }
        }
    }
}

/// A poisoned lock still guards counters that are good enough to read.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One watch's own handle on the stats.
#[derive(Clone, Debug)]
pub(super) struct WatchStats {
    pub(super) name: WatchName,
    pub(super) all: Arc<ClusterStats>,
}
