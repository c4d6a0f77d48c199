//! The conntrack table: scans when the engine wants one, and deletes single entries when it says so.
//!
//! On a thread of its own, since netlink blocks. Only what changed since the scan before goes to the
//! engine, so that a recording of a long tail stays small.

use std::{
    collections::HashMap,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use nix::time::{ClockId, clock_gettime};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::now;
use crate::{
    conntrack::{Conntrack, ConntrackError, TableCounts},
    engine::{ConntrackScan, Evicted, Eviction, What},
    model::{ConntrackEntry, DST_NAT, EntryKey, EvictionResult, Mono, SEEN_REPLY, SYN_SENT},
    stale::MAX_ENTRIES,
};

/// The least time between two scans.
const GAP: Duration = Duration::from_secs(1);
/// A scan that takes long is followed by a pause this many times as long: at most a twentieth of one
/// core, however large the table is.
const PAUSE: u32 = 19;
/// Less than this is the kernel's rounding of timers to whole seconds, and no news.
const SAME_NANOS: u64 = 1_500_000_000;

/// What the conntrack task is told.
enum Order {
    Scan,
    Evict(Vec<Eviction>),
    Stop,
}

/// What the conntrack task counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScanReport {
    /// Scans.
    pub scans: u64,
    /// Scans that failed.
    pub failed: u64,
    /// Why the last one did, if it did.
    pub error: Option<String>,
    /// Processor time of the last one.
    pub cost: Duration,
    /// Processor time of all.
    pub cost_sum: Duration,
    /// The table's own counts, since the task's first look.
    pub table: TableCounts,
}

/// The engine's side.
pub struct ConntrackOrders {
    orders: Sender<Order>,
    /// What was counted.
    pub report: watch::Receiver<ScanReport>,
}

impl ConntrackOrders {
    /// A scan is wanted, as soon as one may be made.
    pub fn scan(&self) {
        self.send(Order::Scan);
    }

    /// These are to be deleted.
    pub fn evict(&self, evictions: Vec<Eviction>) {
        self.send(Order::Evict(evictions));
    }

    /// The thread lives as long as the agent does, unless it could not begin: then that was said.
    fn send(&self, order: Order) {
        drop(self.orders.send(order));
    }
}

impl Drop for ConntrackOrders {
    fn drop(&mut self) {
        self.send(Order::Stop);
    }
}

/// Starts the thread in the caller's network namespace; the first scan is made at once.
///
/// # Errors
/// If no thread can be started.
pub fn start(out: mpsc::Sender<(Mono, What)>) -> anyhow::Result<ConntrackOrders> {
    let (orders, inbox) = channel();
    let (reports, report) = watch::channel(ScanReport::default());
    thread::Builder::new()
        .name("conntrack".to_owned())
        .spawn(move || Task::new(out, reports).run(&inbox))
        .context("cannot start the conntrack thread")?;
    Ok(ConntrackOrders { orders, report })
}

struct Task {
    table: Option<Conntrack>,
    /// Entries as last told to the engine; empty: it is told all of them.
    told: Option<HashMap<EntryKey, ConntrackEntry>>,
    out: mpsc::Sender<(Mono, What)>,
    reports: watch::Sender<ScanReport>,
    report: ScanReport,
    /// The table's own counts when it began.
    counts_at_begin: TableCounts,
}

impl Task {
    fn new(out: mpsc::Sender<(Mono, What)>, reports: watch::Sender<ScanReport>) -> Self {
        let (report, counts_at_begin) = (ScanReport::default(), TableCounts::read());
        Self { table: None, told: None, out, reports, report, counts_at_begin }
    }

    fn run(mut self, inbox: &Receiver<Order>) {
        let mut wanted = true;
        let mut earliest = Instant::now();
        loop {
            if wanted && Instant::now() >= earliest {
                wanted = false;
                let began = Instant::now();
                self.scan();
                earliest = began + GAP.max(self.report.cost * (PAUSE + 1));
            }
            let wait = if wanted {
                earliest.saturating_duration_since(Instant::now())
            } else {
                // The table's own counts are read meanwhile.
                GAP * 5
            };
            match inbox.recv_timeout(wait) {
                Ok(Order::Scan) => wanted = true,
                Ok(Order::Evict(evictions)) => self.evict(&evictions),
                Err(RecvTimeoutError::Timeout) => self.tell(),
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn scan(&mut self) {
        let began = now();
        let before = processor_time();
        let found = self.dump(began);
        let cost = processor_time().saturating_sub(before);
        self.report.scans += 1;
        self.report.cost = cost;
        self.report.cost_sum += cost;
        match found {
            Ok((entries, left_out)) => {
                if self.report.error.take().is_some() {
                    info!("the conntrack table can be scanned again");
                }
                self.pass_on(began, entries, left_out);
            }
            Err(error) => {
                self.table = None;
                self.report.failed += 1;
                let error = error.to_string();
                if self.report.error.as_ref() != Some(&error) {
                    warn!(
                        "the conntrack table is not scanned, stale entries are not counted: {error}"
                    );
                }
                self.report.error = Some(error);
            }
        }
        self.tell();
    }

    fn tell(&mut self) {
        self.report.table = TableCounts::read().since(&self.counts_at_begin);
        self.reports.send_replace(self.report.clone());
    }

    fn dump(
        &mut self,
        now: Mono,
    ) -> Result<(HashMap<EntryKey, ConntrackEntry>, u64), ConntrackError> {
        let mut entries = HashMap::new();
        let mut left_out = 0;
        self.table()?.unanswered(now, |entry| {
            if entries.len() < MAX_ENTRIES {
                entries.insert(entry.key, entry);
            } else {
                left_out += 1;
            }
        })?;
        Ok((entries, left_out))
    }

    fn table(&mut self) -> Result<&mut Conntrack, ConntrackError> {
        if self.table.is_none() {
            self.table = Some(Conntrack::open()?);
        }
        self.table.as_mut().ok_or_else(|| ConntrackError::Malformed("no socket".to_owned()))
    }

    /// Tells the engine what changed; all of it the first time, and again after it had no room.
    fn pass_on(
        &mut self,
        began: Mono,
        mut entries: HashMap<EntryKey, ConntrackEntry>,
        left_out: u64,
    ) {
        let mut scan = ConntrackScan {
            began,
            whole: self.told.is_none(),
            entries: Vec::new(),
            ended: Vec::new(),
            left_out,
        };
        if let Some(told) = &self.told {
            for (key, entry) in &mut entries {
                match told.get(key) {
                    Some(before) if is_same(before, entry) => *entry = *before,
                    _ => scan.entries.push(*entry),
                }
            }
            scan.ended.extend(told.keys().filter(|key| !entries.contains_key(key)));
        } else {
            scan.entries.extend(entries.values());
        }
        scan.entries.sort_unstable_by_key(|entry| entry.key);
        scan.ended.sort_unstable();
        let sent = self.out.try_send((now(), What::Conntrack(scan)));
        self.told = sent.is_ok().then_some(entries);
    }

    fn evict(&mut self, evictions: &[Eviction]) {
        for eviction in evictions {
            let result = if eviction.dry_run {
                EvictionResult::DryRun
            } else {
                self.evict_one(eviction).unwrap_or_else(|error| {
                    warn!(client = %eviction.key.client, original = %eviction.key.original,
                        "a stale conntrack entry cannot be deleted: {error}");
                    EvictionResult::Failed
                })
            };
            info!(client = %eviction.key.client, original = %eviction.key.original,
                backend = %eviction.backend, zone = eviction.key.zone, id = eviction.id,
                result = result.name(), "stale conntrack entry");
            let evicted = Evicted { key: eviction.key, id: eviction.id, result };
            if self.out.try_send((now(), What::Evicted(evicted))).is_err() {
                // The engine hears of the entry's end by the next scan.
                self.told = None;
            }
        }
    }

    /// Looks at the entry again, and deletes it if it is still what it was.
    fn evict_one(&mut self, eviction: &Eviction) -> Result<EvictionResult, ConntrackError> {
        let table = self.table()?;
        let Some(entry) = table.get(&eviction.key, now())? else {
            return Ok(EvictionResult::Gone);
        };
        let is_same = entry.id == eviction.id
            && entry.backend == eviction.backend
            && entry.state == Some(SYN_SENT)
            && entry.status & SEEN_REPLY == 0
            && entry.status & DST_NAT != 0;
        if !is_same {
            return Ok(EvictionResult::Changed);
        }
        let deleted = table.delete(&eviction.key, eviction.id)?;
        Ok(if deleted { EvictionResult::Evicted } else { EvictionResult::Gone })
    }
}

/// The same entry, its timer running on.
fn is_same(before: &ConntrackEntry, entry: &ConntrackEntry) -> bool {
    let expires = before.expires;
    *before == ConntrackEntry { expires, ..*entry }
        && entry.expires.since(expires).max(expires.since(entry.expires)) < SAME_NANOS
}

/// What this thread has used of the processor.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
