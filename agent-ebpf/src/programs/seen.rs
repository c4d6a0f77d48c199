//! A SYN as a device or a drop shows it.

use rollrace_ebpf::{
    abi::Stat,
    packet::{self, Tcp, total_length},
};

use crate::{
    attempts::{self, is_watched},
    kernel::{Entry, Skb, is_own},
    maps::{Scratch, count},
};

/// `IP_CT_NEW` of `enum ip_conntrack_info`.
const IP_CT_NEW: u64 = 2;
/// `IP_CT_IS_REPLY`: from here on the packet travels in the reply direction.
pub const IP_CT_IS_REPLY: u64 = 3;

/// A packet's TCP header, 20 bytes of it.
#[inline(always)]
pub fn tcp(skb: &Skb, scratch: &Scratch, offset: u32, v6: bool) -> Option<Tcp> {
    if offset == 20 {
        return Some(Tcp::read(scratch.headers[20..40].first_chunk()?));
    }
    // Of IPv4, so many bytes of options were not read.
    if offset == 40 && v6 {
        return Some(Tcp::read(scratch.headers[40..60].first_chunk()?));
    }
    let mut bytes = [0; 20];
    skb.bytes(offset, &mut bytes)?;
    Some(Tcp::read(&bytes))
}

/// A SYN, in the agent's own namespace or not: found out here.
#[inline(always)]
pub fn syn(
    skb: &Skb,
    scratch: &mut Scratch,
    tcp: &Tcp,
    offset: u32,
    v6: bool,
    dropped: Option<u32>,
) {
    count(Stat::Read);
    let syn = &mut scratch.syn;
    syn.isn = tcp.seq;
    syn.sent_ns = if dropped.is_some() { skb.sent_ns(attempts::now()) } else { 0 };
    syn.payload = total_length(&scratch.headers, v6).saturating_sub(offset + tcp.length) as u16;
    syn.family = if v6 { 6 } else { 4 };
    let nfct = skb.nfct();
    if nfct.entry() == 0 {
        packet::addresses(&scratch.headers, v6, &mut syn.tuple);
        syn.tuple.sport = tcp.sport;
        syn.tuple.dport = tcp.dport;
        syn.backend = syn.tuple.destination();
        syn.dnat = false;
        syn.confirmed = false;
        syn.old_entry = false;
        if is_watched(&syn.backend) && is_own(skb.net()) {
            attempts::syn(scratch, dropped);
        }
        return;
    }
    if nfct.ctinfo() >= IP_CT_IS_REPLY {
        return;
    }
    let Some(entry) = Entry::read(nfct.entry(), &mut scratch.entry) else { return };
    if !is_own(entry.net()) {
        return;
    }
    entry.original(&mut syn.tuple);
    entry.backend(&mut syn.backend);
    syn.dnat = syn.backend != syn.tuple.destination();
    syn.confirmed = entry.confirmed();
    syn.old_entry = nfct.ctinfo() != IP_CT_NEW;
    if syn.dnat || is_watched(&syn.backend) {
        attempts::syn(scratch, dropped);
    }
}

/// Writes the SYN that a packet answers to the scratch; `None` if the packet does not travel towards
/// the client, or not in the agent's namespace.
#[inline(always)]
pub fn answer_to(skb: &Skb, scratch: &mut Scratch, tcp: &Tcp, v6: bool) -> Option<()> {
    count(Stat::Read);
    let syn = &mut scratch.syn;
    syn.isn = tcp.ack.wrapping_sub(1);
    syn.sent_ns = 0;
    syn.payload = 0;
    syn.old_entry = false;
    syn.family = if v6 { 6 } else { 4 };
    let nfct = skb.nfct();
    if nfct.entry() == 0 {
        packet::addresses(&scratch.headers, v6, &mut syn.tuple);
        syn.tuple.sport = tcp.sport;
        syn.tuple.dport = tcp.dport;
        syn.tuple = syn.tuple.reversed();
        syn.backend = syn.tuple.destination();
        syn.dnat = false;
        syn.confirmed = false;
        return is_own(skb.net()).then_some(());
    }
    if nfct.ctinfo() < IP_CT_IS_REPLY {
        return None;
    }
    let entry = Entry::read(nfct.entry(), &mut scratch.entry)?;
    if !is_own(entry.net()) {
        return None;
    }
    entry.original(&mut syn.tuple);
    entry.backend(&mut syn.backend);
    syn.dnat = syn.backend != syn.tuple.destination();
    syn.confirmed = entry.confirmed();
    Some(())
}
