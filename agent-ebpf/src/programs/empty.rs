//! Programs to measure by: what attaching to a tracepoint costs by itself, and what the kernel's reads
//! cost by themselves. Only the benchmark loads them, beside the real ones, so that all are measured
//! on the same packets.

use aya_ebpf::{
    helpers::generated::bpf_probe_read_kernel, macros::raw_tracepoint,
    programs::RawTracePointContext,
};

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

/// Does nothing but read 8 bytes of the packet's descriptor.
#[raw_tracepoint(tracepoint = "net_dev_queue")]
fn one_read_net_dev_queue(ctx: RawTracePointContext) -> i32 {
    bare_read(ctx.arg(0))
}

/// Does that twice.
#[raw_tracepoint(tracepoint = "net_dev_queue")]
fn two_reads_net_dev_queue(ctx: RawTracePointContext) -> i32 {
    bare_read(ctx.arg(0)) | bare_read(ctx.arg(0))
}

#[inline(always)]
fn bare_read(skb: u64) -> i32 {
    let mut value = 0u64;
    // SAFETY: the helper checks the source address itself; the destination holds 8 bytes.
    unsafe { bpf_probe_read_kernel((&raw mut value).cast(), 8, skb as *const _) as i32 }
}
