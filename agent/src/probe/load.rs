//! Loading and attaching.

use std::{borrow::Cow, fs, io};

use aya::{
    Ebpf, EbpfLoader,
    maps::RingBuf,
    programs::{ProgramError, RawTracePoint},
};
use rollrace_ebpf::{
    abi::{self, Stat},
    layout::RDONLY_CAST,
};
use tokio::io::unix::AsyncFd;
use tracing::{debug, warn};

use super::{
    ProbeError, decode,
    layout::{Casts, Layout},
    maps::Maps,
    whereabouts::{self, Whereabouts},
};
use crate::{
    feature::{self, Lacking},
    model::Sighting,
};

/// The eBPF object, built by `build.rs`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("ROLLRACE_BPF_OBJECT"));

/// Tracepoints attached to; program and tracepoint have one name.
pub const HOOKS: [&str; 3] = ["net_dev_queue", "kfree_skb", "inet_sock_set_state"];

/// Runs behind the last of them on the same tracepoint, and makes up for its skipped runs.
const MAKES_UP: &str = "inet_sock_set_state_skipped";

/// The maps that grow.
pub(super) const MAPS: [&str; 9] = [
    "ATTEMPTS",
    "FLOWS",
    "OWN_FLOWS",
    "ANSWERED",
    "FRESH",
    "ENDPOINTS",
    "LOCAL_PODS",
    "COUNTERS",
    "STARTS",
];

/// Capabilities that loading and reading need, by number (`include/uapi/linux/capability.h`).
const CAPABILITIES: [(u32, &str); 2] = [(39, "CAP_BPF"), (38, "CAP_PERFMON")];
/// `CAP_SYS_ADMIN` stands in for both.
const CAP_SYS_ADMIN: u32 = 21;

/// Room for the kernel side's rare diagnostics: one page.
const LOG_BYTES: u32 = 4_096;

/// Sizes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Unanswered attempts tracked: unanswered SYNs a second × 120 s.
    pub attempts: u32,
    /// Answered connections tracked.
    pub flows: u32,
    /// Bytes of the ring buffer, a power of two.
    pub ring_bytes: u32,
    /// Clients outside the cluster can be told: what they dial directly is the endpoint's node's.
    pub tells_outside: bool,
    /// Entries of every other map; their defaults if not given. For tests of what happens at the bound.
    pub other_entries: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            attempts: 65_536,
            flows: abi::FLOW_ENTRIES,
            ring_bytes: 1 << 20,
            tells_outside: false,
            other_entries: None,
        }
    }
}

/// The programs, attached.
pub struct Probe {
    pub(super) ebpf: Ebpf,
    events: AsyncFd<RingBuf<aya::maps::MapData>>,
    layout: Layout,
    /// Whether packets are read by plain loads (`bpf_rdonly_cast`, 6.2) or, at a higher cost, by a
    /// helper.
    pub plain_loads: bool,
    /// Whether payload outside a packet's head can be looked at.
    pub sees_payload: bool,
    /// Records that were no event of this ABI.
    pub undecodable: u64,
    /// The maps.
    pub maps: Maps,
}

impl Probe {
    /// Resolves offsets, loads, attaches.
    ///
    /// # Errors
    /// What is missing, by name, with the remedy.
    pub fn start(options: Options) -> Result<Self, ProbeError> {
        Self::with_layout(Layout::resolve()?, options)
    }

    /// Loads and attaches with offsets resolved before. The calling thread's network namespace
    /// becomes the probe's own.
    ///
    /// # Errors
    /// What is missing, by name, with the remedy.
    pub fn with_layout(layout: Layout, options: Options) -> Result<Self, ProbeError> {
        Self::with_object(layout, options, OBJECT)
    }

    /// The same with another build of the eBPF object: the benchmark compares them.
    ///
    /// # Errors
    /// What is missing, by name, with the remedy.
    pub fn with_object(
        layout: Layout,
        options: Options,
        object: &[u8],
    ) -> Result<Self, ProbeError> {
        if !layout.conntrack {
            warn!("conntrack is not there yet: Service addresses are told apart once it is loaded");
        }
        let Whereabouts { net: own_net, memory } = whereabouts::ask(&layout, object)?;
        let timeout = syn_sent_timeout();
        let tells_outside = u32::from(options.tells_outside);
        debug!(own_net, timeout, "loading");
        let load = |casts: Option<&Casts>| {
            let mut loader = loader(&layout);
            loader.override_global("OWN_NET", &own_net, true);
            loader.override_global("SYN_SENT_TIMEOUT_NS", &timeout, true);
            loader.override_global("TELLS_OUTSIDE", &tells_outside, true);
            if let Some((memory, pages)) = &memory {
                loader.override_global("PAGE_OFFSET", memory, true);
                loader.override_global("VMEMMAP", pages, true);
            }
            loader.map_max_entries("ATTEMPTS", options.attempts);
            loader.map_max_entries("FLOWS", options.flows);
            loader.map_max_entries("EVENTS", options.ring_bytes);
            if let Some(entries) = options.other_entries {
                for map in MAPS.into_iter().filter(|map| !matches!(*map, "ATTEMPTS" | "FLOWS")) {
                    loader.map_max_entries(map, entries);
                }
            }
            let mut object = Cow::Borrowed(object);
            if let Some(casts) = casts {
                for (name, id) in &casts.types {
                    loader.override_global(name, id, true);
                }
                call_kfunc(object.to_mut(), casts.kfunc);
            }
            let mut ebpf =
                loader.load(&object).map_err(|error| refused("load the eBPF object", error))?;
            for name in HOOKS.into_iter().chain([MAKES_UP]) {
                let program = program(&mut ebpf, name)?;
                load_program(program)
                    .map_err(|error| refused_program(&format!("load {name}"), error))?;
            }
            Ok(ebpf)
        };
        let (mut ebpf, plain_loads) = match layout.casts.as_ref().map(|casts| load(Some(casts))) {
            Some(Ok(ebpf)) => (ebpf, true),
            // A verifier that objects to the loads still takes the helper.
            Some(Err(error)) => {
                warn!(%error, "packets are read by a helper instead of plain loads, at a higher cost");
                (load(None)?, false)
            }
            None => (load(None)?, false),
        };
        let hooks = HOOKS.map(|hook| (hook, hook)).into_iter();
        for (name, hook) in hooks.chain([(MAKES_UP, "inet_sock_set_state")]) {
            let program = program(&mut ebpf, name)?;
            program.attach(hook).map_err(|error| {
                if not_found(&error) {
                    return ProbeError::NoTracepoint { name: hook };
                }
                refused_program(&format!("attach {name} to the tracepoint {hook}"), error)
            })?;
        }
        let maps = Maps::take(&mut ebpf, timeout, &options)?;
        let ring = ebpf.take_map("EVENTS").ok_or_else(|| no_map("EVENTS"))?;
        let ring = RingBuf::try_from(ring).map_err(|error| load_error("open EVENTS", error))?;
        // SAFETY: the ring buffer owns its descriptor, and keeps it open for as long as it lives.
        let events =
            unsafe { AsyncFd::register(ring) }.map_err(|error| load_error("poll EVENTS", error))?;
        let sees_payload = memory.is_some();
        Ok(Self { ebpf, events, layout, plain_loads, sees_payload, undecodable: 0, maps })
    }

    /// Waits for events and takes all that are there.
    ///
    /// # Errors
    /// If the ring buffer cannot be polled.
    pub async fn sightings(&mut self, into: &mut Vec<Sighting>) -> io::Result<()> {
        let mut ready = self.events.readable_mut().await?;
        let ring = ready.get_inner_mut();
        while let Some(record) = ring.next() {
            match decode(&record, &self.layout) {
                Ok(sighting) => into.push(sighting),
                Err(error) => {
                    self.undecodable += 1;
                    warn!(%error, "a kernel event is not understood");
                }
            }
        }
        ready.clear_ready();
        Ok(())
    }

    /// Runs of the programs that the kernel skipped because one was already running on that CPU, and
    /// that no program made up for.
    pub fn recursion_misses(&self) -> u64 {
        let mut misses = 0;
        for name in HOOKS {
            let Some(program) = self.ebpf.program(name) else { continue };
            let Ok(fd) = program.fd() else { continue };
            let fd = std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(fd));
            let Ok(text) = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")) else { continue };
            let value = text.lines().find_map(|line| line.strip_prefix("recursion_misses:"));
            misses += value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0);
        }
        // In this order: what is made up for was skipped before.
        misses.saturating_sub(self.maps.stat(Stat::MadeUp))
    }

    /// What it does without.
    pub fn lacks(&self) -> Vec<Lacking> {
        let all = [
            (self.plain_loads, feature::PLAIN_LOADS),
            (self.sees_payload, feature::PAYLOAD),
            (self.layout.conntrack, feature::CONNTRACK),
        ];
        all.into_iter().filter(|(there, _)| !there).map(|(_, lacking)| lacking).collect()
    }

    /// Whether conntrack was there at the start.
    pub fn has_conntrack(&self) -> bool {
        self.layout.conntrack
    }
}

/// Writes the kernel's number of `bpf_rdonly_cast` into every call that stands for it
/// (`BPF_PSEUDO_KFUNC_CALL`, uapi/linux/bpf.h).
fn call_kfunc(object: &mut [u8], kfunc: u32) {
    const CALL: u8 = 0x85;
    const PSEUDO_KFUNC_CALL: u8 = 2;
    let stands_for_it = {
        let [a, b, c, d] = RDONLY_CAST.to_le_bytes();
        [CALL, 0, 0, 0, a, b, c, d]
    };
    // Sections of code are aligned to their instructions of 8 bytes.
    let (instructions, _) = object.as_chunks_mut::<8>();
    for instruction in instructions.iter_mut().filter(|found| **found == stands_for_it) {
        let [a, b, c, d] = kfunc.to_le_bytes();
        *instruction = [CALL, PSEUDO_KFUNC_CALL << 4, 0, 0, a, b, c, d];
    }
}

/// A loader with this kernel's layout.
pub(super) fn loader(layout: &Layout) -> EbpfLoader<'_> {
    let mut loader = EbpfLoader::new();
    loader.map_max_entries("AYA_LOGS", LOG_BYTES);
    for (name, value) in &layout.globals {
        loader.override_global(name, value, true);
    }
    loader
}

/// `nf_conntrack_tcp_timeout_syn_sent` of this namespace in nanoseconds, 120 s if it cannot be read.
fn syn_sent_timeout() -> u64 {
    const PATH: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_syn_sent";
    let seconds = fs::read_to_string(PATH).ok().and_then(|text| text.trim().parse::<u64>().ok());
    seconds.unwrap_or(120) * 1_000_000_000
}

/// Loads a program. The verifier gives up with EAGAIN when any signal is pending (`signal_pending` in
/// `do_check`); libbpf as well tries five times.
pub(super) fn load_program(program: &mut RawTracePoint) -> Result<(), ProgramError> {
    const TIMES: u8 = 5;
    let mut times = 1;
    loop {
        match program.load() {
            Err(ProgramError::LoadError { io_error, .. })
                if io_error.kind() == io::ErrorKind::WouldBlock && times < TIMES =>
            {
                times += 1;
            }
            end => return end,
        }
    }
}

pub(super) fn program<'a>(
    ebpf: &'a mut Ebpf,
    name: &str,
) -> Result<&'a mut RawTracePoint, ProbeError> {
    let program = ebpf.program_mut(name).ok_or_else(|| {
        load_error("find a program", anyhow::anyhow!("the object has no program {name}"))
    })?;
    program.try_into().map_err(|error: ProgramError| load_error("use a program", error))
}

pub(super) fn no_map(name: &str) -> ProbeError {
    load_error("find a map", anyhow::anyhow!("the object has no map {name}"))
}

pub(super) fn load_error(what: &str, source: impl Into<anyhow::Error>) -> ProbeError {
    ProbeError::Load { what: what.to_owned(), source: source.into() }
}

pub(super) fn refused(what: &str, error: aya::EbpfError) -> ProbeError {
    permission(what, &error).unwrap_or_else(|| load_error(what, error))
}

pub(super) fn refused_program(what: &str, error: ProgramError) -> ProbeError {
    // EACCES is the verifier's word as well: then there is a log.
    if let ProgramError::LoadError { verifier_log, .. } = &error {
        let log = verifier_log.to_string();
        if !log.trim().is_empty() {
            let lines: Vec<&str> = log.trim().lines().collect();
            let last = lines[lines.len().saturating_sub(VERIFIER_LINES)..].join("\n");
            return load_error(what, anyhow::anyhow!("the kernel's verifier rejects it:\n{last}"));
        }
    }
    permission(what, &error).unwrap_or_else(|| load_error(what, error))
}

/// Lines shown of what the verifier says: the last ones name the instruction and the reason.
const VERIFIER_LINES: usize = 40;

/// Whether the chain of causes ends in ENOENT.
fn not_found(error: &(dyn std::error::Error + 'static)) -> bool {
    os_error(error).is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The error to show if it is one of permission.
fn permission(what: &str, error: &(dyn std::error::Error + 'static)) -> Option<ProbeError> {
    os_error(error).filter(|error| error.kind() == io::ErrorKind::PermissionDenied)?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    let has = |number: u32| effective & (1 << number) != 0;
    let missing: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(number, _)| !has(*number) && !has(CAP_SYS_ADMIN))
        .map(|(_, name)| *name)
        .collect();
    let what = what.to_owned();
    Some(if missing.is_empty() {
        ProbeError::Forbidden { what }
    } else {
        ProbeError::NotPermitted { what, missing: missing.join(" and ") }
    })
}

fn os_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<io::Error>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

const _: () = assert!(abi::VERSION == 2);
