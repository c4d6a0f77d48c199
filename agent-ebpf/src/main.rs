//! The eBPF programs: three raw tracepoints and one program that tells where the agent lives.
//!
//! # Layout
//! - `kernel`: guarded reads of kernel memory at offsets resolved from BTF
//! - `payload`: what a TCP segment carries
//! - `maps`: the maps, and the counters of what was lost
//! - `attempts`: what each sighting does to an attempt; shared by the hooks
//! - `flows`: what each does to an answered connection
//! - `programs/`: one file a hook
#![no_std]
#![no_main]

mod attempts;
mod cast;
mod flows;
mod kernel;
mod maps;
mod payload;
mod programs;

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// `bpf_probe_read_kernel` is a GPL-only helper; the kernel takes this for GPL-compatible
/// (`license_is_gpl_compatible`, `include/linux/license.h`).
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
