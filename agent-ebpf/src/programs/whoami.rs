//! Where the agent lives: run once by the loader in its own context, attached to nothing.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};

use crate::{kernel::current_net, maps::WHERE};

/// Writes the caller's `struct net *` to `WHERE`. Run through `BPF_PROG_TEST_RUN`.
#[raw_tracepoint(tracepoint = "sys_enter")]
fn whoami(_ctx: RawTracePointContext) -> i32 {
    if let Some(place) = WHERE.get_ptr_mut(0) {
        // SAFETY: a per-CPU value, aligned, not null.
        unsafe { *place = current_net() };
    }
    0
}
