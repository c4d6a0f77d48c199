//! What a process uses: memory and time.

use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;

/// A process's memory and processor time so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Usage {
    /// Resident memory now, in KiB.
    pub resident_kib: u64,
    /// The most there ever was, in KiB.
    pub peak_resident_kib: u64,
    /// Processor time of all its threads, in seconds.
    pub processor_seconds: f64,
}

impl Usage {
    /// Reads `/proc` for a process.
    pub fn of(id: u32) -> Result<Self> {
        let path = format!("/proc/{id}/status");
        let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let kib = |name: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.split_whitespace().next());
            number.with_context(|| format!("{path} lacks {name}"))?.parse().context("a number")
        };
        let path = format!("/proc/{id}/stat");
        let stat = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        // Fields 14 and 15, counted after the name, which may hold spaces.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().collect())
            .unwrap_or_default();
        let ticks = |index: usize| -> Result<u32> {
            fields.get(index).with_context(|| format!("{path} is short"))?.parse().context("ticks")
        };
        // The kernel shows these in units of 1/100 s on every architecture (USER_HZ).
        let processor_seconds = f64::from(ticks(11)? + ticks(12)?) / 100.0;
        Ok(Self {
            resident_kib: kib("VmRSS:")?,
            peak_resident_kib: kib("VmHWM:")?,
            processor_seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory() {
        let usage = Usage::of(std::process::id()).expect("the own usage");
        assert!(usage.resident_kib > 0 && usage.peak_resident_kib >= usage.resident_kib);
    }
}
