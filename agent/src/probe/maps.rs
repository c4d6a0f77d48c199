//! The watch set, the sweep of unanswered attempts, counts and losses.

use std::{
    collections::{BTreeSet, HashMap as StdHashMap, HashSet},
    fs, io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd as _, AsRawFd as _},
};

use aya::{
    Ebpf,
    maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, PerCpuHashMap},
};
use rollrace_ebpf::abi::{
    self, Address, Attempt, Counters, Flow, Fresh, Socket, Stat, Tuple, Watched, flag, watched,
};
use tracing::warn;

use super::{
    ProbeError,
    decode::{socket, to_attempt},
    load::{Options, load_error, no_map},
};
use crate::{
    engine::{AttemptCounts, FreshSyns, Watch},
    model::{Mono, Sighting},
};

/// `BPF_NOEXIST`: only if there is no such key.
const BPF_NOEXIST: u64 = 1;

macro_rules! pod {
    ($($wrapper:ident($inner:ty)),+ $(,)?) => {
        $(
            /// A type of the kernel side, wrapped so that aya may read it from a map.
            #[repr(transparent)]
            #[derive(Clone, Copy)]
            struct $wrapper($inner);
            // SAFETY: `repr(C)` of integers without padding (asserted in `abi`): any bytes are one.
            unsafe impl aya::Pod for $wrapper {}
        )+
    };
}

pod!(
    PodTuple(Tuple),
    PodAttempt(Attempt),
    PodSocket(Socket),
    PodAddress(Address),
    PodFresh(Fresh),
    PodWatched(Watched),
    PodCounters(Counters),
    PodFlow(Flow)
);

/// Handles of the maps.
pub struct Maps {
    attempts: HashMap<MapData, PodTuple, PodAttempt>,
    fresh: HashMap<MapData, PodSocket, PodFresh>,
    endpoints: HashMap<MapData, PodSocket, PodWatched>,
    local_pods: HashMap<MapData, PodAddress, u32>,
    generation: Array<MapData, u32>,
    generation_now: u32,
    counters: PerCpuHashMap<MapData, PodSocket, PodCounters>,
    stats: PerCpuArray<MapData, u64>,
    timeout_ns: u64,
    swept: HashSet<(Tuple, u32)>,
    counted: StdHashMap<Socket, u64>,
    fresh_entries: u64,
    fresh_inserted: u64,
    fresh_evicted: u64,
    flows: HashMap<MapData, u64, PodFlow>,
    flow_entries: u64,
    flows_live: u64,
    flows_evicted: u64,
    /// Memory of `FLOWS` in bytes, allocated whole; 0 if the kernel does not say.
    pub flows_bytes: u64,
    /// Watch-set entries that do not fit now: tried again at each sweep.
    pub unfit: BTreeSet<Watch>,
    /// Watch-set entries that did not fit when they came.
    pub watch_full: u64,
}

/// What a sweep found.
#[derive(Debug, Default)]
pub struct Sweep {
    /// Attempts unanswered for the deadline, each told once; and again when forgotten.
    pub unanswered: Vec<Sighting>,
    /// Counts that changed.
    pub counts: Vec<AttemptCounts>,
    /// Attempts in the map.
    pub tracked: usize,
}

/// What the kernel side counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets whose headers were read.
    pub read: u64,
    /// Sightings of tracked attempts.
    pub matched: u64,
    /// Events submitted.
    pub submitted: u64,
    /// Events lost to a full ring buffer.
    pub ring_full: u64,
    /// Attempts not tracked: the map was full.
    pub attempts_full: u64,
    /// Attempts not counted: the map was full.
    pub counters_full: u64,
    /// Guarded reads that failed.
    pub read_failed: u64,
    /// Backends whose counts of fresh SYNs were evicted: the map was full.
    pub fresh_evicted: u64,
    /// Answered connections that were evicted: the map was full.
    pub flows_evicted: u64,
}

impl Maps {
    /// Takes the maps from the loaded object.
    pub(super) fn take(
        ebpf: &mut Ebpf,
        timeout_ns: u64,
        options: &Options,
    ) -> Result<Self, ProbeError> {
        macro_rules! open {
            ($kind:ident, $name:literal) => {{
                let map = ebpf.take_map($name).ok_or_else(|| no_map($name))?;
                $kind::try_from(map).map_err(|error| load_error(concat!("open ", $name), error))?
            }};
        }
        let flows = ebpf.take_map("FLOWS").ok_or_else(|| no_map("FLOWS"))?;
        let flows_bytes = memory_of(&flows);
        let flows = HashMap::try_from(flows).map_err(|error| load_error("open FLOWS", error))?;
        Ok(Self {
            attempts: open!(HashMap, "ATTEMPTS"),
            fresh: open!(HashMap, "FRESH"),
            endpoints: open!(HashMap, "ENDPOINTS"),
            local_pods: open!(HashMap, "LOCAL_PODS"),
            generation: open!(Array, "GENERATION"),
            generation_now: 0,
            counters: open!(PerCpuHashMap, "COUNTERS"),
            stats: open!(PerCpuArray, "STATS"),
            timeout_ns,
            swept: HashSet::new(),
            counted: StdHashMap::new(),
            fresh_entries: options.other_entries.unwrap_or(abi::FRESH_ENTRIES).into(),
            flow_entries: options.flows.into(),
            flows_live: 0,
            flows_evicted: 0,
            flows_bytes,
            flows,
            fresh_inserted: 0,
            fresh_evicted: 0,
            unfit: BTreeSet::new(),
            watch_full: 0,
        })
    }

    /// Applies changes of the watch set; one that does not fit is counted, and tried again later.
    pub fn watch(&mut self, changes: &[Watch]) {
        let grows = |change: &Watch| matches!(change, Watch::Endpoint(_) | Watch::Local(_));
        for change in changes {
            match change {
                Watch::Forget(address) => {
                    self.unfit.remove(&Watch::Endpoint(*address));
                    self.unfit.remove(&Watch::Service(*address));
                }
                Watch::NotLocal(address) => {
                    self.unfit.remove(&Watch::Local(*address));
                }
                _ => {}
            }
            if self.apply(change).is_err() {
                self.watch_full += 1;
                // An old entry that finds no room is not one that is to be watched.
                if !matches!(change, Watch::Pinned { .. }) {
                    self.unfit.insert(*change);
                }
            }
        }
        if changes.iter().any(grows) {
            self.grown();
        }
    }

    /// Who was none of our business may be now.
    fn grown(&mut self) {
        self.generation_now = self.generation_now.wrapping_add(1);
        if let Err(error) = self.generation.set(0, self.generation_now, 0) {
            // Connections that have spoken already would not be followed.
            warn!(%error, "the kernel side is not told that the watch set has grown");
        }
    }

    fn apply(&mut self, change: &Watch) -> Result<(), MapError> {
        match change {
            Watch::Endpoint(address) => {
                let key = PodSocket(to_socket(*address));
                // A Service's address stays one, whatever an endpoint claims.
                match self.endpoints.get(&key, 0) {
                    Ok(_) => Ok(()),
                    Err(_) => self.endpoints.insert(key, to_watched(watched::ENDPOINT, Mono(0)), 0),
                }
            }
            Watch::Service(address) => {
                let value = to_watched(watched::SERVICE, Mono(0));
                self.endpoints.insert(PodSocket(to_socket(*address)), value, 0)
            }
            Watch::Anew(address, since) => {
                let key = PodSocket(to_socket(*address));
                match self.endpoints.get(&key, 0) {
                    Ok(PodWatched(known)) => {
                        self.endpoints.insert(key, to_watched(known.what, *since), 0)
                    }
                    Err(_) => Ok(()),
                }
            }
            Watch::Pinned { client, original, backend, expires } => {
                self.pin((*client, *original), *backend, *expires)
            }
            Watch::Forget(address) => gone(self.endpoints.remove(&PodSocket(to_socket(*address)))),
            Watch::Local(address) => self.local_pods.insert(PodAddress(to_address(*address)), 1, 0),
            Watch::NotLocal(address) => {
                gone(self.local_pods.remove(&PodAddress(to_address(*address))))
            }
        }
    }

    /// Enters an entry that is older than the probes, as the attempt that made it: of an unknown ISN,
    /// so that any SYN of the tuple follows it, and of no interest itself. One that was seen since
    /// stays.
    fn pin(
        &mut self,
        (client, original): (SocketAddr, SocketAddr),
        backend: SocketAddr,
        expires: Mono,
    ) -> Result<(), MapError> {
        let last = expires.0.saturating_sub(self.timeout_ns);
        let tuple = Tuple {
            src: to_address(client.ip()),
            dst: to_address(original.ip()),
            sport: client.port(),
            dport: original.port(),
        };
        let attempt = Attempt {
            first_ns: last,
            last_ns: last,
            backend: to_socket(backend),
            syns: 1,
            flags: flag::DNAT | flag::CONFIRMED | flag::DECIDED,
            ..Attempt::default()
        };
        let entered = self.attempts.insert(PodTuple(tuple), PodAttempt(attempt), BPF_NOEXIST);
        match entered {
            Err(MapError::SyscallError(error))
                if error.io_error.kind() == io::ErrorKind::AlreadyExists =>
            {
                Ok(())
            }
            entered => entered,
        }
    }

    /// Tries again what did not fit into the watch set.
    fn fit(&mut self) {
        let (mut pods_full, mut endpoints_full) = (false, false);
        for change in std::mem::take(&mut self.unfit) {
            let is_full = match change {
                Watch::Local(_) => &mut pods_full,
                _ => &mut endpoints_full,
            };
            // Where one finds no room, the others will not.
            *is_full = *is_full || self.apply(&change).is_err();
            if *is_full {
                self.unfit.insert(change);
            } else {
                self.grown();
            }
        }
    }

    /// An LRU map evicts in silence: what was entered and is not there.
    fn count_evicted(&mut self) {
        let inserted = self.stat(Stat::FreshInserted);
        // Eviction begins before the last entry is taken, since each CPU keeps some in hand.
        if inserted == self.fresh_inserted || inserted * 2 < self.fresh_entries {
            return;
        }
        self.fresh_inserted = inserted;
        let there = u64::try_from(self.fresh.keys().count()).unwrap_or(u64::MAX);
        self.fresh_evicted = self.fresh_evicted.max(inserted.saturating_sub(there));
    }

    /// The same of `FLOWS`: entered, not taken out, and not there. Once some were evicted, what no longer
    /// fits is counted without a look at the map: no more than were evicted.
    fn count_evicted_flows(&mut self) {
        // Read in this order: what is taken out had been entered.
        let removed = self.stat(Stat::FlowsRemoved);
        let live = self.stat(Stat::FlowsInserted).saturating_sub(removed + self.flows_evicted);
        // Counting them takes a call of the kernel's each, so it is not done at every sweep.
        let grown = live.saturating_sub(self.flows_live) * 16 >= self.flow_entries;
        if live * 2 < self.flow_entries || !(grown || live > self.flow_entries) {
            return;
        }
        let there = if self.flows_evicted > 0 && live > self.flow_entries {
            self.flow_entries
        } else {
            u64::try_from(self.flows.keys().count()).unwrap_or(u64::MAX)
        };
        let evicted = live.saturating_sub(there);
        self.flows_evicted += evicted;
        self.flows_live = live - evicted;
    }

    /// One of the kernel side's counts, over all CPUs.
    pub(super) fn stat(&self, stat: Stat) -> u64 {
        self.stats.get(&(stat as u32), 0).map_or(0, |values| values.iter().sum::<u64>())
    }

    /// Looks over the unanswered attempts and the counters.
    pub fn sweep(&mut self, now: Mono, deadline_ns: u64) -> Sweep {
        self.fit();
        self.count_evicted();
        self.count_evicted_flows();
        let mut sweep = Sweep::default();
        let mut expired = Vec::new();
        let mut alive = HashSet::new();
        for entry in &self.attempts {
            // An entry that vanishes under the iteration was answered.
            let Ok((PodTuple(tuple), PodAttempt(attempt))) = entry else { continue };
            sweep.tracked += 1;
            let since_last = now.0.saturating_sub(attempt.last_ns);
            let forget = since_last > self.timeout_ns;
            if attempt.flags & flag::DECIDED == 0 {
                let due = now.0.saturating_sub(attempt.first_ns) >= deadline_ns;
                let key = (tuple, attempt.isn);
                if forget || (due && !self.swept.contains(&key)) {
                    let attempt = to_attempt(&tuple, &attempt);
                    sweep.unanswered.push(Sighting::Unanswered { attempt, at: now });
                }
                if due {
                    alive.insert(key);
                }
            }
            if forget {
                expired.push((tuple, attempt.isn));
            }
        }
        self.swept = alive;
        for (tuple, isn) in expired {
            // Another attempt may have taken the tuple meanwhile.
            let key = PodTuple(tuple);
            if self.attempts.get(&key, 0).is_ok_and(|PodAttempt(attempt)| attempt.isn == isn) {
                let _ = self.attempts.remove(&key);
            }
        }
        for entry in &self.counters {
            let Ok((PodSocket(original), values)) = entry else { continue };
            let sum =
                |of: fn(&Counters) -> u64| values.iter().map(|value| of(&value.0)).sum::<u64>();
            let counts = AttemptCounts {
                original: socket(original.address, original.port),
                attempts: sum(|value| value.attempts),
                answered: sum(|value| value.answered),
                refused: sum(|value| value.refused),
            };
            let total = counts.attempts + counts.answered + counts.refused;
            if self.counted.insert(original, total) != Some(total) {
                sweep.counts.push(counts);
            }
        }
        sweep
    }

    /// The kernel's counts of fresh SYNs to these backends.
    pub fn fresh(&self, wanted: &BTreeSet<SocketAddr>) -> Vec<FreshSyns> {
        wanted
            .iter()
            .filter_map(|endpoint| {
                let key = PodSocket(to_socket(*endpoint));
                let PodFresh(fresh) = self.fresh.get(&key, 0).ok()?;
                let since = self.endpoints.get(&key, 0).map_or(0, |PodWatched(it)| it.since_ns);
                let first =
                    Some(fresh.first_answer_ns).filter(|first| *first != 0 && *first >= since);
                let mut by_second: Vec<(u64, u32)> = fresh
                    .second
                    .iter()
                    .zip(fresh.count)
                    .filter(|(_, count)| *count > 0)
                    .map(|(second, count)| (u64::from(*second), count))
                    .collect();
                by_second.sort_unstable();
                Some(FreshSyns {
                    endpoint: *endpoint,
                    last: Mono(fresh.last_ns),
                    first_answer: first.map(Mono),
                    answers_forgotten: self.fresh_evicted > 0,
                    by_second,
                })
            })
            .collect()
    }

    /// What the kernel side counted.
    pub fn losses(&self) -> Losses {
        let stat = |stat| self.stat(stat);
        Losses {
            read: stat(Stat::Read),
            matched: stat(Stat::Matched),
            submitted: stat(Stat::Submitted),
            ring_full: stat(Stat::RingFull),
            attempts_full: stat(Stat::AttemptsFull),
            counters_full: stat(Stat::CountersFull),
            read_failed: stat(Stat::ReadFailed),
            fresh_evicted: self.fresh_evicted,
            flows_evicted: self.flows_evicted,
        }
    }
}

/// What the kernel accounts to a map, from `/proc/self/fdinfo`; 0 if it does not say.
fn memory_of(map: &Map) -> u64 {
    let Map::LruHashMap(map) = map else { return 0 };
    let fd = map.fd().as_fd().as_raw_fd();
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix("memlock:"));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// A key that is not there need not be removed.
fn gone(result: Result<(), MapError>) -> Result<(), MapError> {
    match result {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => {
            Ok(())
        }
        other => other,
    }
}

fn to_watched(what: u32, since: Mono) -> PodWatched {
    PodWatched(Watched { since_ns: since.0, what, pad: 0 })
}

fn to_address(address: IpAddr) -> Address {
    match address {
        IpAddr::V4(v4) => Address::from_octets(v4.to_ipv6_mapped().octets()),
        IpAddr::V6(v6) => Address::from_octets(v6.octets()),
    }
}

fn to_socket(socket: SocketAddr) -> Socket {
    Socket { address: to_address(socket.ip()), port: socket.port(), pad: 0 }
}
