//! Each packet that leaves a device: SYNs after DNAT, answers after their way back through it.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use rollrace_ebpf::{
    abi::Stat,
    packet::{self, ETH_P_IP, ETH_P_IPV6, Glance, Next, Tcp, tcp, unreachable},
};

use super::seen;
use crate::{
    attempts::{self, is_watched},
    flows,
    kernel::{Entry, Skb, is_own},
    maps::{Hook, Scratch, count, scratch},
};

/// `TRACE_EVENT net_dev_queue`: `TP_PROTO(struct sk_buff *skb)`, all versions.
#[raw_tracepoint(tracepoint = "net_dev_queue")]
fn net_dev_queue(ctx: RawTracePointContext) -> i32 {
    let skb: u64 = ctx.arg(0);
    queued(skb);
    0
}

/// Nearly every packet ends here.
#[inline(always)]
fn queued(skb: u64) -> Option<()> {
    let skb = Skb::read(skb)?;
    let v6 = match skb.protocol {
        ETH_P_IP => false,
        ETH_P_IPV6 => true,
        _ => return None,
    };
    match skb.glance(v6)? {
        Glance::Away => None,
        Glance::Speaks => flows::speaks(&skb, v6),
        Glance::Headers => looked_at(&skb, v6),
    }
}

#[inline(never)]
fn looked_at(skb: &Skb, v6: bool) -> Option<()> {
    let scratch = scratch(Hook::Queue)?;
    skb.headers(v6, &mut scratch.headers)?;
    match packet::next(&scratch.headers, v6) {
        Next::Other => None,
        Next::Icmp(offset) => icmp(skb, scratch, offset, v6),
        Next::Tcp(offset) => {
            let segment = seen::tcp(skb, scratch, offset, v6)?;
            let flags = segment.flags;
            match flags & (tcp::SYN | tcp::FIN | tcp::RST) {
                0 if flags & tcp::PSH != 0 => flows::spoke(skb, scratch, &segment, offset, v6),
                0 => None,
                tcp::SYN if flags & tcp::ACK == 0 => {
                    seen::syn(skb, scratch, &segment, offset, v6, None);
                    None
                }
                tcp::FIN => flows::ends(skb, scratch, &segment, offset, v6),
                _ => {
                    let answers = answer(skb, scratch, &segment, v6);
                    if flags & tcp::RST != 0 && !answers {
                        flows::client_reset(skb, scratch, &segment, v6);
                        flows::ends(skb, scratch, &segment, offset, v6);
                    }
                    None
                }
            }
        }
    }
}

/// A SYN+ACK or RST: whether it answered a SYN.
#[inline(always)]
fn answer(skb: &Skb, scratch: &mut Scratch, segment: &Tcp, v6: bool) -> bool {
    if seen::answer_to(skb, scratch, segment, v6).is_none() {
        return false;
    }
    let refusal = segment.flags & tcp::RST != 0;
    // RFC 9293: only a RST that answers a SYN has sequence number 0.
    if !refusal || segment.seq == 0 {
        let syn = &scratch.syn;
        if (syn.dnat || is_watched(&syn.backend)) && skb.is_local() {
            attempts::unseen(scratch);
        }
    }
    let syn = &scratch.syn;
    if refusal {
        return attempts::reset(&syn.tuple, segment.ack, syn.family);
    }
    attempts::answered(&syn.tuple, syn.isn, syn.family);
    true
}

/// ICMP unreachable: conntrack relates it to the connection it is about.
#[inline(always)]
fn icmp(skb: &Skb, scratch: &mut Scratch, offset: u32, v6: bool) -> Option<()> {
    skb.bytes(offset, &mut scratch.icmp)?;
    let (code, seq) = unreachable(&scratch.icmp, v6, &mut scratch.tuple)?;
    count(Stat::Read);
    let address = skb.nfct().entry();
    if address == 0 {
        is_own(skb.net()).then_some(())?;
    } else {
        let entry = Entry::read(address, &mut scratch.entry)?;
        is_own(entry.net()).then_some(())?;
        entry.original(&mut scratch.tuple);
    }
    attempts::unreachable(&scratch.tuple, seq, code, if v6 { 6 } else { 4 });
    None
}
