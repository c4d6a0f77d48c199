//! Programs that do nothing: what attaching to a tracepoint costs by itself. Only the benchmark
//! loads them, beside the real ones, so that both are measured on the same packets.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};

/// Beside [`net_dev_queue`](super::net_dev_queue).
#[raw_tracepoint(tracepoint = "net_dev_queue")]
fn empty_net_dev_queue(_ctx: RawTracePointContext) -> i32 {
    0
}

/// Beside [`kfree_skb`](super::kfree_skb).
#[raw_tracepoint(tracepoint = "kfree_skb")]
fn empty_kfree_skb(_ctx: RawTracePointContext) -> i32 {
    0
}

/// Beside [`inet_sock_set_state`](super::inet_sock_set_state).
#[raw_tracepoint(tracepoint = "inet_sock_set_state")]
fn empty_inet_sock_set_state(_ctx: RawTracePointContext) -> i32 {
    0
}
