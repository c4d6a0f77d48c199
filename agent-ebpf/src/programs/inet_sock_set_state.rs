//! The client's own end: when it began to connect, and how that ended.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use rollrace_ebpf::abi::Stat;

use crate::{
    attempts::{self, now},
    flows,
    kernel::{Sock, is_own, is_tcp, net_of},
    maps::{Hook, LOCAL_PODS, STARTS, count, scratch, seen},
};

/// `TCP_ESTABLISHED` of `include/net/tcp_states.h`.
const ESTABLISHED: i32 = 1;
/// `TCP_SYN_SENT`.
const SYN_SENT: i32 = 2;
/// `TCP_CLOSE`.
const CLOSE: i32 = 7;
/// `TCP_CLOSE_WAIT`: the peer has sent its FIN.
const CLOSE_WAIT: i32 = 8;

/// `TCP_LAST_ACK`: both have sent theirs, the peer first.
const LAST_ACK: i32 = 9;

/// Errors that a RST leaves in a socket (`tcp_reset`): `EPIPE` after the peer's FIN, while it is open.
const ECONNRESET: u32 = 104;
const EPIPE: u32 = 32;

/// `TRACE_EVENT inet_sock_set_state`: `TP_PROTO(const struct sock *sk, const int oldstate, const int
/// newstate)`, since 4.16.
#[raw_tracepoint(tracepoint = "inet_sock_set_state")]
fn inet_sock_set_state(ctx: RawTracePointContext) -> i32 {
    let (sk, old, new) = (ctx.arg(0), ctx.arg(1), ctx.arg(2));
    if let Some(slot) = seen(sk) {
        *slot = [sk, states(old, new)];
    }
    changed(sk, old, new, Hook::Socket);
    0
}

/// Runs behind the program above, on the same events, and makes up for those that the kernel kept from
/// it: `connect` and `close` change states with softirqs enabled, and while one of them is looked at
/// a softirq may change another socket's. The kernel does not run a program inside itself.
#[raw_tracepoint(tracepoint = "inet_sock_set_state")]
fn inet_sock_set_state_skipped(ctx: RawTracePointContext) -> i32 {
    let (sk, old, new) = (ctx.arg(0), ctx.arg(1), ctx.arg(2));
    let Some(slot) = seen(sk) else { return 0 };
    if *slot == [sk, states(old, new)] {
        // Taken: the same socket may make the same change again.
        *slot = [0; 2];
    } else {
        count(Stat::MadeUp);
        changed(sk, old, new, Hook::Skipped);
    }
    0
}

/// Both states in one word.
#[inline(always)]
fn states(old: i32, new: i32) -> u64 {
    u64::from(old as u32) << 32 | u64::from(new as u32)
}

#[inline(always)]
fn changed(sk: u64, old: i32, new: i32, hook: Hook) -> Option<()> {
    match (old, new) {
        // There is no source port yet: the start is joined when the socket leaves SYN_SENT.
        (CLOSE, SYN_SENT) if is_tcp(sk) => {
            let _ = STARTS.insert(sk, now(), 0);
        }
        (SYN_SENT, ESTABLISHED) if is_tcp(sk) => {
            let tuple = &mut scratch(hook)?.tuple;
            let sock = Sock::read(sk, tuple)?;
            let _ = STARTS.remove(sk);
            attempts::answered(tuple, sock.snd_una.wrapping_sub(1), sock.family);
        }
        (SYN_SENT, CLOSE) if is_tcp(sk) => {
            let tuple = &mut scratch(hook)?.tuple;
            let sock = Sock::read(sk, tuple)?;
            // SAFETY: an integer, copied at once.
            let started = unsafe { STARTS.get(sk) }.copied().unwrap_or(0);
            let _ = STARTS.remove(sk);
            let local = is_own(sock.net) || LOCAL_PODS.get_ptr(tuple.src).is_some();
            attempts::abandoned(tuple, sock.snd_una, sock.error, sock.family, started, local);
        }
        // In LAST_ACK it may be the answer to what was asked behind the peer's FIN.
        (ESTABLISHED, CLOSE_WAIT) | (ESTABLISHED | CLOSE_WAIT | LAST_ACK, CLOSE)
            if is_own(net_of(sk)) && is_tcp(sk) =>
        {
            let tuple = &mut scratch(hook)?.tuple;
            let sock = Sock::read(sk, tuple)?;
            let is_rst = matches!(sock.error, ECONNRESET | EPIPE);
            if new == CLOSE_WAIT || is_rst {
                flows::socket_ended(tuple, &sock, new == CLOSE);
            }
        }
        _ => {}
    }
    None
}
