//! What each sighting does to an answered connection. It is entered with its client's first message,
//! so those that are older than the agent are there as well; and it is known by the address of its
//! conntrack entry, which needs no reading of the entry.

use aya_ebpf::Global;
use rollrace_ebpf::{
    abi::{
        Answered, Attempt, Flow, Kind, OwnFlow, STRANGER_BITS, Socket, Stat, Stranger, Tuple,
        answered, flag,
    },
    flow::{self, End, SHORT, Said, state},
    packet::{self, Tcp, tcp},
};

use crate::{
    attempts::{self, Head, is_watched, now},
    kernel::{Entry, Nfct, Skb, Sock, is_own},
    maps::{
        ANSWERED, ATTEMPTS, FLOWS, GENERATION, Hook, LOCAL_PODS, OWN_FLOWS, STRANGERS, Scratch,
        count, scratch, submit,
    },
    payload::Segment,
    programs::{IP_CT_IS_REPLY, answer_to},
};

/// Where a connection is kept: its key in `FLOWS`, and what tells it from an earlier owner of the
/// key.
#[derive(Clone, Copy)]
struct Place {
    key: u64,
    check: u32,
}

impl Place {
    #[inline(always)]
    fn of_entry(nfct: Nfct) -> Option<Self> {
        Some(Self { key: nfct.entry(), check: nfct.check()? })
    }

    /// Without conntrack, of an original tuple.
    #[inline(always)]
    fn of_tuple(tuple: &Tuple) -> Self {
        let (src, dst) = (&tuple.src.0, &tuple.dst.0);
        let ports = u64::from(tuple.sport) << 16 | u64::from(tuple.dport);
        let mut hash = ports;
        let mut word = 0;
        while word < 4 {
            hash = (hash ^ u64::from(src[word]) << 32 ^ u64::from(dst[word])).wrapping_mul(ODD);
            hash ^= hash >> 29;
            word += 1;
        }
        Self { key: hash | 1, check: src[3] ^ dst[3].rotate_left(13) ^ ports as u32 }
    }

    #[inline(always)]
    fn find(self) -> Option<&'static mut Flow> {
        // SAFETY: a value of a live map entry; concurrent sightings of one connection at worst lose a
        // count of messages.
        let flow = unsafe { &mut *FLOWS.get_ptr_mut(self.key)? };
        (flow.check == self.check).then_some(flow)
    }

    #[inline(always)]
    fn slot(self) -> Option<*mut Stranger> {
        // Entries are aligned to a cache line.
        let hash = (self.key >> 6).wrapping_mul(ODD) >> (64 - STRANGER_BITS);
        STRANGERS.get_ptr_mut(hash as u32)
    }

    /// Whether it was found before that it is none of the agent's business.
    #[inline(always)]
    fn is_stranger(self) -> bool {
        let Some(slot) = self.slot() else { return false };
        // SAFETY: a value of an array; a torn read is at worst a mismatch.
        let known = unsafe { *slot };
        known.key == self.key && known.check == self.check && known.generation == generation()
    }

    #[inline(always)]
    fn is_now_stranger(self) {
        if let Some(slot) = self.slot() {
            // SAFETY: as above.
            unsafe {
                *slot = Stranger { key: self.key, check: self.check, generation: generation() }
            };
        }
    }

    #[inline(always)]
    fn remove(self) {
        if FLOWS.remove(self.key).is_ok() {
            count(Stat::FlowsRemoved);
        }
    }
}

/// For multiplicative hashing: 2^64 by the golden ratio.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn generation() -> u32 {
    GENERATION.get(0).copied().unwrap_or(0)
}

/// A segment that ends what was written at once. Each way in a frame of its own: before 6.13 the frames of
/// all callers together have 512 bytes.
#[inline(always)]
pub fn speaks(skb: &Skb, v6: bool) -> Option<()> {
    let nfct = skb.nfct();
    if nfct.entry() == 0 {
        return untracked(skb, v6);
    }
    if nfct.ctinfo() >= IP_CT_IS_REPLY {
        return None;
    }
    tracked(skb, nfct, v6)
}

#[inline(never)]
fn tracked(skb: &Skb, nfct: Nfct, v6: bool) -> Option<()> {
    said(skb, nfct, &Segment::of(skb, v6)?)
}

/// The same, its headers read already.
#[inline(always)]
pub fn spoke(skb: &Skb, scratch: &Scratch, tcp: &Tcp, offset: u32, v6: bool) -> Option<()> {
    let nfct = skb.nfct();
    if nfct.entry() == 0 || nfct.ctinfo() >= IP_CT_IS_REPLY {
        return None;
    }
    let data = offset + tcp.length;
    let length = packet::total_length(&scratch.headers, v6).saturating_sub(data);
    said(skb, nfct, &Segment { seq: tcp.seq, ack: tcp.ack, length, data })
}

/// A segment of the client's.
#[inline(always)]
fn said(skb: &Skb, nfct: Nfct, segment: &Segment) -> Option<()> {
    if segment.length == 0 {
        return None;
    }
    let place = Place::of_entry(nfct)?;
    if place.is_stranger() {
        return None;
    }
    let Some(flow) = place.find() else { return begin(skb, nfct, place.check, segment) };
    if flow.flags & (state::CLIENT_DONE | state::TOLD) == 0 {
        let said = if segment.length <= SHORT { look_into(skb, segment) } else { Said::Message(0) };
        flow::message(flow, segment.seq, segment.length, segment.ack, said);
    }
    Some(())
}

#[inline(always)]
fn look_into(skb: &Skb, segment: &Segment) -> Said {
    flow::said(segment.length, segment.peek(skb).as_ref())
}

/// The first message that is seen of a connection with an entry.
#[inline(never)]
fn begin(skb: &Skb, nfct: Nfct, check: u32, segment: &Segment) -> Option<()> {
    // One that is closing has had its say.
    if !nfct.is_established() {
        return None;
    }
    let place = Place { key: nfct.entry(), check };
    let Scratch { syn, entry: window, .. } = scratch(Hook::Queue)?;
    let entry = Entry::read(nfct.entry(), window)?;
    if !is_own(entry.net()) {
        place.is_now_stranger();
        return None;
    }
    entry.original(&mut syn.tuple);
    entry.backend(&mut syn.backend);
    syn.dnat = syn.backend != syn.tuple.destination();
    if !syn.dnat && !(is_watched(&syn.backend) && is_accounted_here(skb, &syn.tuple)) {
        place.is_now_stranger();
        return None;
    }
    enter(skb, place, &syn.tuple, &syn.backend, syn.dnat, segment)
}

/// 1 if clients outside the cluster can be told: then the endpoint's node accounts for what they dial
/// directly, and user space leaves out what is another node's after all.
#[unsafe(no_mangle)]
static TELLS_OUTSIDE: Global<u32> = Global::new(0);

/// Without DNAT the client's node accounts for a connection, or the endpoint's.
#[inline(always)]
fn is_accounted_here(skb: &Skb, tuple: &Tuple) -> bool {
    LOCAL_PODS.get_ptr(tuple.src).is_some()
        || skb.is_local()
        || TELLS_OUTSIDE.load() != 0 && LOCAL_PODS.get_ptr(tuple.dst).is_some()
}

/// A segment without a conntrack entry.
#[inline(never)]
fn untracked(skb: &Skb, v6: bool) -> Option<()> {
    let Scratch { syn, headers, .. } = scratch(Hook::Queue)?;
    skb.headers(v6, headers)?;
    packet::addresses(headers, v6, &mut syn.tuple);
    let header = if v6 { headers[40..60].first_chunk() } else { headers[20..40].first_chunk() };
    let tcp = Tcp::read(header?);
    syn.tuple.sport = tcp.sport;
    syn.tuple.dport = tcp.dport;
    syn.backend = syn.tuple.destination();
    if !is_watched(&syn.backend) {
        return None;
    }
    let segment = Segment::of(skb, v6)?;
    if segment.length == 0 {
        return None;
    }
    let place = Place::of_tuple(&syn.tuple);
    if let Some(flow) = place.find() {
        if flow.flags & (state::CLIENT_DONE | state::TOLD) == 0 {
            let said = look_into(skb, &segment);
            flow::message(flow, segment.seq, segment.length, segment.ack, said);
        }
        return Some(());
    }
    if !is_own(skb.net()) || !is_accounted_here(skb, &syn.tuple) {
        return None;
    }
    enter(skb, place, &syn.tuple, &syn.backend, false, &segment)
}

#[inline(always)]
fn enter(
    skb: &Skb,
    place: Place,
    tuple: &Tuple,
    backend: &Socket,
    dnat: bool,
    segment: &Segment,
) -> Option<()> {
    let what = match look_into(skb, segment) {
        Said::Nothing | Said::Goodbye => return None,
        Said::Doubtful(what) => what | state::DOUBTFUL,
        Said::Message(what) => what,
    };
    let mut flow = Flow {
        opened_ns: 0,
        isn: segment.seq.wrapping_sub(1),
        check: place.check,
        ack: segment.ack,
        next: segment.seq.wrapping_add(segment.length),
        unanswered: 1,
        flags: what | if dnat { state::DNAT } else { 0 },
        pad: 0,
    };
    match ANSWERED.get_ptr_mut(tuple) {
        Some(known) => {
            // SAFETY: a value of a live map entry, of aligned words.
            let known = unsafe { &mut *known };
            if known.flags == 0 {
                flow.flags |= state::FROM_BEGIN;
            }
            known.flags |= answered::SPOKE;
            (flow.opened_ns, flow.isn) = (known.ns, known.isn);
        }
        None => flow.opened_ns = now(),
    }
    if FLOWS.insert(place.key, flow, 0).is_ok() {
        count(Stat::FlowsInserted);
    }
    if skb.is_local() {
        let own = OwnFlow { key: place.key, backend: *backend, check: place.check };
        let _ = OWN_FLOWS.insert(tuple, own, 0);
    }
    Some(())
}

/// A FIN or RST, the scratch's headers read. `refused`: a RST that answered a SYN.
#[inline(always)]
pub fn ends(skb: &Skb, scratch: &mut Scratch, tcp: &Tcp, offset: u32, v6: bool) -> Option<()> {
    let nfct = skb.nfct();
    let is_rst = tcp.flags & tcp::RST != 0;
    let seq = if is_rst {
        tcp.seq
    } else {
        let length = packet::total_length(&scratch.headers, v6);
        tcp.seq.wrapping_add(length.saturating_sub(offset + tcp.length))
    };
    if nfct.entry() == 0 {
        return untracked_ends(skb, scratch, tcp, seq, v6);
    }
    let place = Place::of_entry(nfct)?;
    let flow = place.find();
    if nfct.ctinfo() < IP_CT_IS_REPLY {
        match flow {
            Some(flow) => client_done(place, flow, is_rst),
            None => {
                let Scratch { entry: window, tuple, .. } = scratch;
                let entry = Entry::read(nfct.entry(), window)?;
                if is_own(entry.net()) {
                    entry.original(tuple);
                    done_unsaid(tuple);
                }
            }
        }
        return Some(());
    }
    if !is_rst {
        // Of a RST that was read before.
        answer_to(skb, scratch, tcp, v6)?;
    }
    match flow {
        Some(flow) => {
            let syn = &scratch.syn;
            backend_ended(place, flow, seq, is_rst, &syn.tuple, &syn.backend, syn.family);
        }
        None if is_rst => {
            let syn = &scratch.syn;
            reset_unsaid(&syn.tuple, &syn.backend, syn.dnat, syn.family, None);
        }
        None => closed_unsaid(&scratch.syn.tuple),
    }
    Some(())
}

/// The same without a conntrack entry: the two directions are told by which of them is known.
#[inline(never)]
fn untracked_ends(skb: &Skb, scratch: &mut Scratch, tcp: &Tcp, seq: u32, v6: bool) -> Option<()> {
    let is_rst = tcp.flags & tcp::RST != 0;
    let Scratch { headers, syn, tuple, .. } = scratch;
    packet::addresses(headers, v6, tuple);
    tuple.sport = tcp.sport;
    tuple.dport = tcp.dport;
    let place = Place::of_tuple(tuple);
    if let Some(flow) = place.find() {
        client_done(place, flow, is_rst);
        return Some(());
    }
    done_unsaid(tuple);
    syn.tuple = tuple.reversed();
    syn.backend = syn.tuple.destination();
    let place = Place::of_tuple(&syn.tuple);
    let family = if v6 { 6 } else { 4 };
    match place.find() {
        Some(flow) => {
            backend_ended(place, flow, seq, is_rst, &syn.tuple, &syn.backend, family);
        }
        None if is_rst && is_own(skb.net()) => {
            reset_unsaid(&syn.tuple, &syn.backend, false, family, None);
        }
        None => closed_unsaid(&syn.tuple),
    }
    Some(())
}

/// A RST that answered no SYN. If it is the client's it answers something itself: the SYN+ACK of a half-open
/// probe by the node, which no device and no socket showed.
#[inline(always)]
pub fn client_reset(skb: &Skb, scratch: &mut Scratch, tcp: &Tcp, v6: bool) -> Option<()> {
    let Scratch { headers, entry: window, tuple, .. } = scratch;
    let nfct = skb.nfct();
    if nfct.entry() == 0 {
        packet::addresses(headers, v6, tuple);
        tuple.sport = tcp.sport;
        tuple.dport = tcp.dport;
    } else {
        if nfct.ctinfo() >= IP_CT_IS_REPLY {
            return None;
        }
        let entry = Entry::read(nfct.entry(), window)?;
        is_own(entry.net()).then_some(())?;
        entry.original(tuple);
    }
    attempts::answered(tuple, tcp.seq.wrapping_sub(1), if v6 { 6 } else { 4 });
    Some(())
}

/// The client will say nothing more.
#[inline(always)]
fn client_done(place: Place, flow: &mut Flow, is_rst: bool) {
    flow.flags |= state::CLIENT_DONE;
    let is_over = flow.flags & (state::BACKEND_FIN | state::ASKED_LATE) == state::BACKEND_FIN;
    if is_rst || is_over {
        place.remove();
    }
}

/// The same of a connection that has said nothing.
#[inline(always)]
fn done_unsaid(tuple: &Tuple) {
    if let Some(known) = ANSWERED.get_ptr_mut(tuple) {
        // SAFETY: an aligned word of a live map entry.
        unsafe { (*known).flags |= answered::CLIENT_DONE };
    }
}

/// The backend closes a connection whose client has said nothing.
#[inline(always)]
fn closed_unsaid(tuple: &Tuple) {
    if let Some(known) = ANSWERED.get_ptr_mut(tuple) {
        // SAFETY: an aligned word of a live map entry.
        unsafe { (*known).flags |= answered::BACKEND_FIN };
    }
}

/// The backend's FIN or RST, with the sequence number behind its last byte.
#[inline(always)]
fn backend_ended(
    place: Place,
    flow: &mut Flow,
    seq: u32,
    is_rst: bool,
    tuple: &Tuple,
    backend: &Socket,
    family: u32,
) {
    let end = flow::end(flow, seq, is_rst);
    if !is_rst {
        flow.flags |= state::BACKEND_FIN;
    }
    if let Some(end) = end {
        flow.flags |= state::TOLD;
        let dnat = flow.flags & state::DNAT != 0;
        tell(end, flow.isn, flow.opened_ns, tuple, backend, dnat, family);
    }
    if is_rst || flow.flags & state::CLIENT_DONE != 0 {
        place.remove();
    }
}

/// A RST inside a connection whose client has said nothing: as the kernel resets what nobody has
/// accepted when its listener closes. Behind the backend's own FIN it answers a request that crossed that.
#[inline(always)]
fn reset_unsaid(tuple: &Tuple, backend: &Socket, dnat: bool, family: u32, isn: Option<u32>) {
    // It is of a later attempt.
    if ATTEMPTS.get_ptr(tuple).is_some() {
        return;
    }
    let Some(known) = ANSWERED.get_ptr_mut(tuple) else { return };
    // SAFETY: a value of a live map entry, of aligned words.
    let known: &mut Answered = unsafe { &mut *known };
    let end = match known.flags {
        0 => End::Reset,
        answered::BACKEND_FIN => End::Cut,
        _ => return,
    };
    if isn.is_none_or(|isn| isn == known.isn) && (dnat || is_watched(backend)) {
        known.flags |= answered::SPOKE;
        tell(end, known.isn, known.ns, tuple, backend, dnat, family);
    }
}

#[inline(always)]
fn tell(
    end: End,
    isn: u32,
    opened_ns: u64,
    tuple: &Tuple,
    backend: &Socket,
    dnat: bool,
    family: u32,
) {
    count(Stat::Matched);
    let attempt = Attempt {
        first_ns: opened_ns,
        last_ns: opened_ns,
        backend: *backend,
        isn,
        syns: 1,
        flags: flag::CONFIRMED | if dnat { flag::DNAT } else { 0 },
        payload: 0,
    };
    submit(&Head::new(Kind::Ended, end as u32, family, now()), tuple, &attempt);
}

/// The peer of a socket in the node's own namespace has sent its FIN, or (`is_rst`) a RST: of such a
/// client's connection no device shows what comes back.
#[inline(always)]
pub fn socket_ended(tuple: &Tuple, sock: &Sock, is_rst: bool) {
    let Some(own) = OWN_FLOWS.get_ptr(tuple) else {
        if is_rst {
            let isn = Some(sock.snd_una.wrapping_sub(1));
            reset_unsaid(tuple, &tuple.destination(), false, sock.family, isn);
        }
        return;
    };
    // SAFETY: a value of a live map entry, copied.
    let OwnFlow { key, backend, check } = unsafe { *own };
    let place = Place { key, check };
    let Some(flow) = place.find() else { return };
    // A FIN has a sequence number of its own, which is counted as received.
    let seq = if is_rst { sock.rcv_nxt } else { sock.rcv_nxt.wrapping_sub(1) };
    backend_ended(place, flow, seq, is_rst, tuple, &backend, sock.family);
}
