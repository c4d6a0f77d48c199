//! The maps. Sizes are defaults: the loader sets them from the agent's flags.

use aya_ebpf::{
    Global,
    bindings::BPF_F_NO_PREALLOC,
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerCpuArray, PerCpuHashMap, RingBuf},
};
use rollrace_ebpf::{
    abi::{
        self, Answered, Attempt, Counters, Event, Flow, Fresh, OwnFlow, Socket, Stat, Stranger,
        Tuple, Watched,
    },
    layout::CT_WINDOW,
    packet::{HEADERS, ICMP_HEADERS},
};

use crate::attempts::{Head, Syn};

/// The ABI this object was built with.
#[unsafe(no_mangle)]
static ABI_VERSION: Global<u32> = Global::new(abi::VERSION);

/// Unanswered attempts, by original tuple: from the SYN until its conntrack entry has expired.
#[map]
pub static ATTEMPTS: HashMap<Tuple, Attempt> = HashMap::with_max_entries(65_536, BPF_F_NO_PREALLOC);

/// The last answered attempt of a tuple: a late drop of its SYN is no news.
#[map]
pub static ANSWERED: LruHashMap<Tuple, Answered> = LruHashMap::with_max_entries(16_384, 0);

/// Answered connections whose client has said something, by the address of their conntrack entry,
/// which is even; without one, by a hash of the tuple, made odd.
#[map]
pub static FLOWS: LruHashMap<u64, Flow> = LruHashMap::with_max_entries(abi::FLOW_ENTRIES, 0);

/// Connections that are none of the agent's business, each in the slot of its entry's address: looked
/// up before `FLOWS`, since an array takes no call.
#[map]
pub static STRANGERS: Array<Stranger> = Array::with_max_entries(abi::STRANGER_SLOTS, 0);

/// Changes whenever something is added to the watch set.
#[map]
pub static GENERATION: Array<u32> = Array::with_max_entries(1, 0);

/// Those of the node's own namespace, by tuple: their ends are told by their sockets.
#[map]
pub static OWN_FLOWS: LruHashMap<Tuple, OwnFlow> = LruHashMap::with_max_entries(16_384, 0);

/// Fresh SYNs by backend.
#[map]
pub static FRESH: LruHashMap<Socket, Fresh> = LruHashMap::with_max_entries(abi::FRESH_ENTRIES, 0);

/// Backends and Services worth watching, written by the agent.
#[map]
pub static ENDPOINTS: HashMap<Socket, Watched> =
    HashMap::with_max_entries(262_144, BPF_F_NO_PREALLOC);

/// Addresses of this node's pods: their sockets live in namespaces of their own.
#[map]
pub static LOCAL_PODS: HashMap<abi::Address, u32> =
    HashMap::with_max_entries(4_096, BPF_F_NO_PREALLOC);

/// Attempts by what was dialled: the denominators.
#[map]
pub static COUNTERS: PerCpuHashMap<Socket, Counters> =
    PerCpuHashMap::with_max_entries(16_384, BPF_F_NO_PREALLOC);

/// When a socket entered `SYN_SENT`, by its address.
#[map]
pub static STARTS: LruHashMap<u64, u64> = LruHashMap::with_max_entries(16_384, 0);

/// Events for the agent.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// What was seen and what was lost.
#[map]
static STATS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Stat::COUNT, 0);

/// Where the agent lives: `struct net *`; where all memory is mapped, and its pages. Filled in by
/// `whoami`.
#[map]
pub static WHERE: PerCpuArray<u64> = PerCpuArray::with_max_entries(3, 0);

/// Room for what does not fit on the stack of 512 bytes.
pub struct Scratch {
    /// Headers of the packet.
    pub headers: [u8; HEADERS],
    /// An ICMP message.
    pub icmp: [u8; ICMP_HEADERS],
    /// A conntrack entry.
    pub entry: [u64; CT_WINDOW / 8],
    /// The SYN at hand.
    pub syn: Syn,
    /// The original tuple at hand.
    pub tuple: Tuple,
    /// A backend's first value.
    pub fresh: Fresh,
}

#[map]
static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(4, 0);

/// Changes of sockets' states that `inet_sock_set_state` has seen on this CPU, by the socket's
/// address: the address, and both states. Taken by the program behind it.
#[map]
static SEEN: PerCpuArray<[u64; 2]> = PerCpuArray::with_max_entries(SEEN_SLOTS, 0);

/// A power of two. What is between two programs of one event is few: the events that interrupt it.
const SEEN_SLOTS: u32 = 64;

/// This CPU's slot for a socket.
#[inline(always)]
pub fn seen(sk: u64) -> Option<&'static mut [u64; 2]> {
    // Sockets are objects of 2 KiB and more, aligned to 64 bytes.
    let slot = (sk >> 6 ^ sk >> 11) as u32 % SEEN_SLOTS;
    // SAFETY: a per-CPU value; an interrupting program may write it, which both sides allow for.
    SEEN.get_ptr_mut(slot).map(|entry| unsafe { &mut *entry })
}

/// Whose scratch it is: a softirq's program may interrupt another's, but never itself (the kernel
/// skips such a run and counts it as `recursion_misses`).
#[repr(u32)]
pub enum Hook {
    /// `net_dev_queue`
    Queue = 0,
    /// `kfree_skb`
    Free = 1,
    /// `inet_sock_set_state`
    Socket = 2,
    /// `inet_sock_set_state_skipped`
    Skipped = 3,
}

/// This CPU's scratch of a program.
#[inline(always)]
pub fn scratch(hook: Hook) -> Option<&'static mut Scratch> {
    // SAFETY: an entry of its own for each program and CPU, so nothing else holds it meanwhile.
    SCRATCH.get_ptr_mut(hook as u32).map(|entry| unsafe { &mut *entry })
}

/// Counts one.
#[inline(always)]
pub fn count(stat: Stat) {
    if let Some(value) = STATS.get_ptr_mut(stat as u32) {
        // SAFETY: a per-CPU value, aligned, not null.
        unsafe { *value += 1 };
    }
}

/// Submits an event about an attempt, written in place; a full ring is counted.
#[inline(never)]
pub fn submit(head: &Head, tuple: &Tuple, attempt: &Attempt) {
    let Some(mut entry) = EVENTS.reserve::<Event>(0) else {
        return count(Stat::RingFull);
    };
    let event = entry.as_mut_ptr();
    // SAFETY: the reservation is of an Event's size and alignment; every field is written.
    unsafe {
        (*event).ns = head.ns;
        (*event).started_ns = head.started_ns;
        (*event).attempt = *attempt;
        (*event).tuple = *tuple;
        (*event).kind = head.kind;
        (*event).code = head.code;
        (*event).family = head.family;
    }
    entry.submit(0);
    count(Stat::Submitted);
}

/// Adds to the counters of an original destination.
#[inline(always)]
pub fn counters(original: &Socket, add: impl Fn(&mut Counters)) {
    if let Some(value) = COUNTERS.get_ptr_mut(original) {
        // SAFETY: a per-CPU value, aligned, not null.
        add(unsafe { &mut *value });
        return;
    }
    let mut first = Counters::default();
    add(&mut first);
    if COUNTERS.insert(original, first, 0).is_err() {
        count(Stat::CountersFull);
    }
}
