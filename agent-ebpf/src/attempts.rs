//! What each sighting does to an attempt. The key is the original tuple; the ISN is in the value,
//! so that a new SYN finds the one whose conntrack entry it follows.

use aya_ebpf::{Global, helpers::bpf_ktime_get_ns};
use rollrace_ebpf::{
    abi::{Answered, Attempt, FRESH_SLOTS, Fresh, Kind, Socket, Stat, Tuple, answered, flag},
    packet,
};

use crate::maps::{ANSWERED, ATTEMPTS, ENDPOINTS, FRESH, Scratch, count, counters, submit};

/// `nf_conntrack_tcp_timeout_syn_sent` in nanoseconds: how long an unanswered SYN's entry lives
/// after the last SYN that hit it.
#[unsafe(no_mangle)]
static SYN_SENT_TIMEOUT_NS: Global<u64> = Global::new(120_000_000_000);

/// The same SYN seen on two devices (a bridge and its port) is one SYN. No retransmit comes sooner:
/// `TCP_TIMEOUT_INIT` is 1 s, and the least `RTO_MIN` of a route 200 ms by default.
const SAME_SYN_NS: u64 = 50_000_000;

/// A SYN on its way.
pub struct Syn {
    /// Original tuple.
    pub tuple: Tuple,
    /// Where it goes.
    pub backend: Socket,
    /// Sequence number.
    pub isn: u32,
    /// When its socket sent it; 0 if that is not known.
    pub sent_ns: u64,
    /// Bytes of payload.
    pub payload: u16,
    /// Conntrack shows a DNAT.
    pub dnat: bool,
    /// Its entry is in the table.
    pub confirmed: bool,
    /// It used an entry that was not new.
    pub old_entry: bool,
    /// 4 or 6.
    pub family: u32,
}

/// The time.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_ktime_get_ns() }
}

/// Whether anybody asked to watch this destination.
#[inline(always)]
pub fn is_watched(destination: &Socket) -> bool {
    ENDPOINTS.get_ptr(destination).is_some()
}

/// The scalars of an event.
pub struct Head {
    /// When.
    pub ns: u64,
    /// When the socket entered `SYN_SENT`, or 0.
    pub started_ns: u64,
    /// A [`Kind`].
    pub kind: u32,
    /// See [`Kind`].
    pub code: u32,
    /// 4 or 6.
    pub family: u32,
}

impl Head {
    #[inline(always)]
    pub const fn new(kind: Kind, code: u32, family: u32, ns: u64) -> Self {
        Self { ns, started_ns: 0, kind: kind as u32, code, family }
    }
}

/// A SYN passes a device, or (`dropped`) is dropped before one sees it.
#[inline(always)]
pub fn syn(scratch: &mut Scratch, dropped: Option<u32>) {
    let Scratch { syn, fresh: room, .. } = scratch;
    let syn = &*syn;
    let now = now();
    // A drop can come seconds after its SYN.
    let at = if dropped.is_some() && syn.sent_ns != 0 { syn.sent_ns } else { now };
    let Some(known) = ATTEMPTS.get_ptr_mut(&syn.tuple) else {
        if dropped.is_some() && is_answered(&syn.tuple, syn.isn) {
            return;
        }
        return begin(syn, room, syn.old_entry, dropped, at, now);
    };
    // SAFETY: a value of a live map entry; concurrent sightings of one tuple are of one packet's
    // path and at worst lose a count of SYNs.
    let known = unsafe { &mut *known };
    if known.isn != syn.isn {
        if let Some(reason) = dropped
            && known.flags & flag::SENT != 0
        {
            // A neighbour's failure comes seconds late, perhaps after the tuple's next attempt has
            // begun: told, not stored.
            let late = attempt(syn, syn.old_entry, at);
            return submit(&Head::new(Kind::Dropped, reason, syn.family, now), &syn.tuple, &late);
        }
        if known.flags & flag::DECIDED == 0 {
            submit(&Head::new(Kind::Superseded, 0, syn.family, now), &syn.tuple, known);
        }
        let pinned = known.flags & flag::CONFIRMED != 0
            && now.saturating_sub(known.last_ns) < SYN_SENT_TIMEOUT_NS.load();
        return begin(syn, room, syn.old_entry || pinned, dropped, at, now);
    }
    count(Stat::Matched);
    let datable = dropped.is_none() || syn.sent_ns != 0;
    if datable && at.saturating_sub(known.last_ns) >= SAME_SYN_NS {
        known.syns += 1;
        known.last_ns = at;
        if known.flags & flag::CONFIRMED == 0 && syn.dnat && !syn.old_entry {
            // Its entry was never stored, so this retransmit was a fresh decision.
            fresh(&syn.backend, room, at);
        }
    }
    known.backend = syn.backend;
    if syn.confirmed {
        known.flags |= flag::CONFIRMED;
    }
    if dropped.is_none() {
        known.flags |= flag::SENT;
    }
    if let Some(reason) = dropped {
        known.flags |= flag::REPORTED;
        submit(&Head::new(Kind::Dropped, reason, syn.family, now), &syn.tuple, known);
    }
}

#[inline(always)]
fn attempt(syn: &Syn, stale: bool, at: u64) -> Attempt {
    let mut flags = 0;
    if syn.dnat {
        flags |= flag::DNAT;
    }
    if syn.confirmed {
        flags |= flag::CONFIRMED;
    }
    if stale {
        flags |= flag::STALE;
    }
    Attempt {
        first_ns: at,
        last_ns: at,
        backend: syn.backend,
        isn: syn.isn,
        syns: 1,
        flags,
        payload: syn.payload,
    }
}

/// The first sighting of an attempt, whose SYN was sent `at`.
#[inline(always)]
fn begin(syn: &Syn, room: &mut Fresh, stale: bool, dropped: Option<u32>, at: u64, now: u64) {
    count(Stat::Matched);
    let mut first = attempt(syn, stale, at);
    if dropped.is_some() {
        first.flags |= flag::REPORTED;
    } else {
        first.flags |= flag::SENT;
    }
    if ATTEMPTS.insert(&syn.tuple, first, 0).is_err() {
        count(Stat::AttemptsFull);
    }
    counters(&syn.tuple.destination(), |value| value.attempts += 1);
    // A drop that cannot be dated would put the last fresh SYN seconds too late.
    let datable = dropped.is_none() || syn.sent_ns != 0;
    if syn.dnat && !stale && datable {
        fresh(&syn.backend, room, at);
    }
    if let Some(reason) = dropped {
        submit(&Head::new(Kind::Dropped, reason, syn.family, now), &syn.tuple, &first);
    }
}

/// Counts a fresh SYN to a backend.
#[inline(always)]
fn fresh(backend: &Socket, room: &mut Fresh, at: u64) {
    let second = (at / 1_000_000_000) as u32;
    let slot = second as usize & (FRESH_SLOTS - 1);
    if let Some(value) = FRESH.get_ptr_mut(backend) {
        // SAFETY: a value of a live map entry; a race between CPUs can lose a count of one, never
        // the time of the last.
        let value = unsafe { &mut *value };
        if at > value.last_ns {
            value.last_ns = at;
        }
        if value.second[slot] == second {
            value.count[slot] += 1;
        } else if value.second[slot] < second {
            value.second[slot] = second;
            value.count[slot] = 1;
        }
        return;
    }
    *room = Fresh::default();
    room.last_ns = at;
    room.second[slot] = second;
    room.count[slot] = 1;
    if FRESH.insert(backend, &*room, 0).is_ok() {
        count(Stat::FreshInserted);
    }
}

/// Whether the attempt is known to have been answered.
#[inline(always)]
fn is_answered(tuple: &Tuple, isn: u32) -> bool {
    // SAFETY: read at once, a torn read of two words is at worst a mismatch.
    ANSWERED.get_ptr(tuple).is_some_and(|answered| unsafe { (*answered).isn } == isn)
}

/// An answer leaves that this node made itself. If no device showed its SYN (the backend shares the
/// node's namespace), the answer is the first sighting of the attempt.
#[inline(always)]
pub fn unseen(scratch: &mut Scratch) {
    let Scratch { syn, fresh: room, .. } = scratch;
    if ATTEMPTS.get_ptr(&syn.tuple).is_none() && !is_answered(&syn.tuple, syn.isn) {
        let now = now();
        begin(syn, room, false, None, now, now);
    }
}

/// SYN+ACK, or the client's socket became established. In a frame of its own: before 6.13 those of callers
/// together may take 512 bytes, each rounded up to 32.
#[inline(never)]
pub fn answered(tuple: &Tuple, isn: u32, family: u32) {
    let Some(known) = ATTEMPTS.get_ptr(tuple) else { return };
    // SAFETY: a value of a live map entry, copied.
    let known = unsafe { *known };
    if known.isn != isn {
        return;
    }
    let now = now();
    end(tuple, &known, now, 0);
    counters(&tuple.destination(), |value| value.answered += 1);
    let is_direct = known.flags & flag::DNAT == 0;
    if let Some(value) =
        FRESH.get_ptr_mut(&known.backend).or_else(|| unsent(&known.backend, is_direct))
    {
        // SAFETY: a value of a live map entry, one aligned word that only user space writes.
        let since = ENDPOINTS.get_ptr(&known.backend).map_or(0, |it| unsafe { (*it).since_ns });
        // SAFETY: a value of a live map entry, one aligned word.
        let first = unsafe { &mut (*value).first_answer_ns };
        if *first == 0 || *first < since {
            *first = now;
        }
    }
    // What was answered on an old entry may have been answered by the wrong pod; so may a retransmit,
    // whose entry is as old as the first SYN.
    if known.flags & (flag::REPORTED | flag::STALE) != 0 || known.syns > 1 {
        submit(&Head::new(Kind::Answered, 0, family, now), tuple, &known);
    }
}

/// No fresh SYN, no answer.
static NONE: Fresh =
    Fresh { last_ns: 0, first_answer_ns: 0, second: [0; FRESH_SLOTS], count: [0; FRESH_SLOTS] };

/// An endpoint dialled directly has no fresh SYNs of a Service's; its first answer is kept all the same.
#[inline(always)]
fn unsent(backend: &Socket, is_direct: bool) -> Option<*mut Fresh> {
    if !is_direct || !is_watched(backend) {
        return None;
    }
    if FRESH.insert(backend, &NONE, 0).is_ok() {
        count(Stat::FreshInserted);
    }
    FRESH.get_ptr_mut(backend)
}

/// A RST on its way to the client: whether it answered a SYN.
#[inline(never)]
pub fn reset(tuple: &Tuple, ack: u32, family: u32) -> bool {
    let Some(known) = ATTEMPTS.get_ptr(tuple) else { return false };
    // SAFETY: a value of a live map entry, copied.
    let known = unsafe { *known };
    let answers = packet::answers(ack, known.isn, known.payload);
    if answers && known.flags & flag::DECIDED == 0 {
        refused(tuple, &known, family, 0, now());
    }
    answers
}

#[inline(always)]
fn refused(tuple: &Tuple, known: &Attempt, family: u32, started_ns: u64, now: u64) {
    end(tuple, known, now, answered::CLIENT_DONE);
    counters(&tuple.destination(), |value| value.refused += 1);
    submit(&Head { started_ns, ..Head::new(Kind::Refused, 0, family, now) }, tuple, known);
}

/// Moves an attempt from the unanswered to the answered.
#[inline(always)]
fn end(tuple: &Tuple, known: &Attempt, now: u64, flags: u32) {
    count(Stat::Matched);
    let _ = ATTEMPTS.remove(tuple);
    let _ = ANSWERED.insert(tuple, Answered { ns: now, isn: known.isn, flags }, 0);
}

/// An ICMP unreachable about a SYN.
#[inline(always)]
pub fn unreachable(tuple: &Tuple, isn: u32, code: u8, family: u32) {
    let now = now();
    let known = ATTEMPTS.get_ptr_mut(tuple);
    if let Some(known) = known {
        // SAFETY: a value of a live map entry.
        let known = unsafe { &mut *known };
        if known.isn == isn {
            count(Stat::Matched);
            known.flags |= flag::REPORTED;
            return submit(&Head::new(Kind::Icmp, u32::from(code), family, now), tuple, known);
        }
    }
    // A rejected SYN passes no device: its ICMP can come before its drop.
    if is_watched(&tuple.destination()) && !is_answered(tuple, isn) {
        count(Stat::Matched);
        let unseen = Attempt {
            first_ns: now,
            last_ns: now,
            backend: tuple.destination(),
            isn,
            ..Attempt::default()
        };
        submit(&Head::new(Kind::Icmp, u32::from(code), family, now), tuple, &unseen);
    }
}

/// `ECONNREFUSED`.
const ECONNREFUSED: u32 = 111;

/// The client's socket left `SYN_SENT` for CLOSE.
#[inline(always)]
pub fn abandoned(tuple: &Tuple, isn: u32, error: u32, family: u32, started_ns: u64, local: bool) {
    let now = now();
    let known = ATTEMPTS.get_ptr_mut(tuple);
    if let Some(known) = known {
        // SAFETY: a value of a live map entry.
        let known = unsafe { &mut *known };
        if known.isn == isn {
            if error == ECONNREFUSED && known.flags & (flag::REPORTED | flag::SENT) == flag::SENT {
                // A RST that no device showed: the client shares the node's namespace.
                let copy = *known;
                return refused(tuple, &copy, family, started_ns, now);
            }
            count(Stat::Matched);
            known.flags |= flag::REPORTED | flag::DECIDED;
            return submit(
                &Head { started_ns, ..Head::new(Kind::Abandoned, error, family, now) },
                tuple,
                known,
            );
        }
    }
    if local && is_watched(&tuple.destination()) && !is_answered(tuple, isn) {
        count(Stat::Matched);
        let unseen = Attempt { isn, ..Attempt::default() };
        submit(
            &Head { started_ns, ..Head::new(Kind::Abandoned, error, family, now) },
            tuple,
            &unseen,
        );
    }
}
