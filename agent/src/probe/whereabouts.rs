//! Where the agent lives, asked of the kernel by a program that runs in its context: its network
//! namespace, and where the kernel maps all memory, by which payload can be looked at.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    sync::OnceLock,
};

use aya::{
    maps::PerCpuArray,
    programs::{RawTracePointRunOptions, TestRun as _},
};
use tracing::debug;

use super::{
    ProbeError,
    layout::Layout,
    load::{MAPS, load_error, load_program, loader, no_map, program, refused, refused_program},
};

/// Where the agent lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    /// `struct net *`.
    pub net: u64,
    /// Where all memory is mapped, and where its pages are; `None` if that cannot be told, and then
    /// payload outside a packet's head is not looked at.
    pub memory: Option<(u64, u64)>,
}

/// Asks for them.
pub fn ask(layout: &Layout, object: &[u8]) -> Result<Whereabouts, ProbeError> {
    // As long as the machine runs they stay where they are, and the list of symbols is long.
    static VARIABLES: OnceLock<Option<(u64, u64)>> = OnceLock::new();
    let (memory_at, pages_at) = VARIABLES.get_or_init(variables).unwrap_or((0, 0));
    let may_be_fixed = u32::from(cfg!(target_arch = "x86_64") && memory_at == 0);
    let mut loader = loader(layout);
    loader.override_global("PAGE_OFFSET_AT", &memory_at, true);
    loader.override_global("VMEMMAP_AT", &pages_at, true);
    loader.override_global("MAY_BE_FIXED", &may_be_fixed, true);
    // This object is thrown away: it needs no room.
    for map in MAPS {
        loader.map_max_entries(map, 64);
    }
    let mut ebpf = loader.load(object).map_err(|error| refused("create eBPF maps", error))?;
    // The kernel side speaks only here, and only if something is wrong.
    let mut log = aya_log::EbpfLogger::init(&mut ebpf)
        .map_err(|error| load_error("open the kernel side's log", error))?;
    let program = program(&mut ebpf, "whoami")?;
    load_program(program).map_err(|error| refused_program("load an eBPF program", error))?;
    program
        .test_run(RawTracePointRunOptions::new())
        .map_err(|error| refused_program("run an eBPF program", error))?;
    log.flush();
    let map = ebpf.map("WHERE").ok_or_else(|| no_map("WHERE"))?;
    let places: PerCpuArray<_, u64> =
        PerCpuArray::try_from(map).map_err(|error| load_error("open WHERE", error))?;
    let place = |index: u32| -> Result<Option<u64>, ProbeError> {
        let values = places.get(&index, 0).map_err(|error| load_error("read WHERE", error))?;
        Ok(values.iter().copied().find(|value| *value != 0))
    };
    let net = place(0)?.ok_or_else(|| {
        load_error("find the own network namespace", anyhow::anyhow!("the program reported none"))
    })?;
    let memory = place(1)?.zip(place(2)?);
    debug!(net, ?memory, "asked the kernel where the agent lives");
    Ok(Whereabouts { net, memory })
}

/// Addresses of `page_offset_base` and `vmemmap_base`, if the kernel has such variables and shows them
/// (`kernel.kptr_restrict`, `CAP_SYSLOG`). It has with `CONFIG_RANDOMIZE_MEMORY`, on x86-64.
fn variables() -> Option<(u64, u64)> {
    let symbols = BufReader::new(File::open("/proc/kallsyms").ok()?);
    let (mut memory, mut pages) = (None, None);
    for line in symbols.lines().map_while(Result::ok) {
        let found = match &line {
            line if line.ends_with(" page_offset_base") => &mut memory,
            line if line.ends_with(" vmemmap_base") => &mut pages,
            _ => continue,
        };
        let address = line.split(' ').next().unwrap_or_default();
        *found = u64::from_str_radix(address, 16).ok().filter(|address| *address != 0);
    }
    memory.zip(pages)
}
