//! SYNs that are dropped before any device shows them: no neighbour, no route, rejected.

use aya_ebpf::{Global, macros::raw_tracepoint, programs::RawTracePointContext};
use rollrace_ebpf::packet::{self, ETH_P_IP, ETH_P_IPV6, Glance, Next, tcp};

use super::seen;
use crate::{
    kernel::Skb,
    maps::{Hook, scratch},
};

/// Number of `SKB_CONSUMED` in this kernel's `enum skb_drop_reason`; reasons up to it are no drops.
#[unsafe(no_mangle)]
static REASON_CONSUMED: Global<u32> = Global::new(1);
/// Number of `SKB_DROP_REASON_NO_SOCKET`: a RST has answered that SYN already.
#[unsafe(no_mangle)]
static REASON_NO_SOCKET: Global<u32> = Global::new(3);

/// `TRACE_EVENT kfree_skb`: `TP_PROTO(struct sk_buff *skb, void *location, enum skb_drop_reason
/// reason)` from 5.17 on; `struct sock *rx_sk` was added behind them in 6.11.
#[raw_tracepoint(tracepoint = "kfree_skb")]
fn kfree_skb(ctx: RawTracePointContext) -> i32 {
    let skb: u64 = ctx.arg(0);
    let reason: u64 = ctx.arg(2);
    dropped(skb, reason as u32);
    0
}

#[inline(always)]
fn dropped(skb: u64, reason: u32) -> Option<()> {
    if reason <= REASON_CONSUMED.load() || reason == REASON_NO_SOCKET.load() {
        return None;
    }
    let skb = Skb::read(skb)?;
    let v6 = match skb.protocol {
        ETH_P_IP => false,
        ETH_P_IPV6 => true,
        _ => return None,
    };
    if skb.glance(v6)? == Glance::Headers {
        looked_at(&skb, v6, reason);
    }
    None
}

#[inline(never)]
fn looked_at(skb: &Skb, v6: bool, reason: u32) -> Option<()> {
    let scratch = scratch(Hook::Free)?;
    skb.headers(v6, &mut scratch.headers)?;
    let Next::Tcp(offset) = packet::next(&scratch.headers, v6) else { return None };
    let segment = seen::tcp(skb, scratch, offset, v6)?;
    if segment.flags & (tcp::SYN | tcp::ACK | tcp::RST) == tcp::SYN {
        seen::syn(skb, scratch, &segment, offset, v6, Some(reason));
    }
    None
}
