//! The part of rollrace's kernel side that also compiles on the host.
//!
//! # Layout
//! - [`abi`]: what crosses the kernel boundary: map keys and values, events, counters
//! - [`packet`]: pure reading of IP, TCP and ICMP headers
//! - [`flow`]: what an answered connection says, and how it ends
//! - [`layout`]: which kernel struct fields the programs read; their offsets come from BTF
//!
//! The programs themselves (`src/main.rs`, feature `bpf`) build for a BPF target only.
#![cfg_attr(not(test), no_std)]
#![expect(
    clippy::inline_always,
    reason = "a program's frames share 512 bytes of stack, and a call by value is a copy on it"
)]

pub mod abi;
pub mod flow;
pub mod layout;
pub mod packet;
