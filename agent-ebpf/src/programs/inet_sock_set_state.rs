//! The client's own end: when it began to connect, and how that ended.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};

use crate::{
    attempts::{self, now},
    kernel::{Sock, is_own, is_tcp},
    maps::{Hook, LOCAL_PODS, STARTS, scratch},
};

/// `TCP_ESTABLISHED` of `include/net/tcp_states.h`.
const ESTABLISHED: i32 = 1;
/// `TCP_SYN_SENT`.
const SYN_SENT: i32 = 2;
/// `TCP_CLOSE`.
const CLOSE: i32 = 7;

/// `TRACE_EVENT inet_sock_set_state`: `TP_PROTO(const struct sock *sk, const int oldstate, const int
/// newstate)`, since 4.16.
#[raw_tracepoint(tracepoint = "inet_sock_set_state")]
fn inet_sock_set_state(ctx: RawTracePointContext) -> i32 {
    let sk: u64 = ctx.arg(0);
    changed(sk, ctx.arg(1), ctx.arg(2));
    0
}

#[inline(always)]
fn changed(sk: u64, old: i32, new: i32) -> Option<()> {
    match (old, new) {
        // There is no source port yet: the start is joined when the socket leaves SYN_SENT.
        (CLOSE, SYN_SENT) if is_tcp(sk) => {
            let _ = STARTS.insert(sk, now(), 0);
        }
        (SYN_SENT, ESTABLISHED) if is_tcp(sk) => {
            let tuple = &mut scratch(Hook::Socket)?.tuple;
            let sock = Sock::read(sk, tuple)?;
            let _ = STARTS.remove(sk);
            attempts::answered(tuple, sock.snd_una.wrapping_sub(1), sock.family);
        }
        (SYN_SENT, CLOSE) if is_tcp(sk) => {
            let tuple = &mut scratch(Hook::Socket)?.tuple;
            let sock = Sock::read(sk, tuple)?;
            // SAFETY: an integer, copied at once.
            let started = unsafe { STARTS.get(sk) }.copied().unwrap_or(0);
            let _ = STARTS.remove(sk);
            let local = is_own(sock.net) || LOCAL_PODS.get_ptr(tuple.src).is_some();
            attempts::abandoned(tuple, sock.snd_una, sock.error, sock.family, started, local);
        }
        _ => {}
    }
    None
}
