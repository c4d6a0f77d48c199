//! The probes against the running kernel: real packets between network namespaces.
//!
//! Each test makes a node of its own (a namespace that a thread holds, with probes that call it
//! their own), so all run at once, and nothing is left of one that is killed. They need root, `ip`
//! and `iptables`. One file a subject.
#![cfg(feature = "probe")]

mod answered;
mod conntrack;
mod devices;
mod dropped;
mod ended;
mod losses;
mod namespaces;
mod refused;
mod sockets;
mod stale;
mod support;
mod unreachable;
mod vanishing;
