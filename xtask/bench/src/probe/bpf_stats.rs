//! `kernel.bpf_stats_enabled`, one switch for the whole machine: put back as it was.

use std::fs;

use anyhow::{Context as _, Result};

const PATH: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Timing of programs, on as long as this lives.
#[derive(Debug)]
pub struct BpfStats {
    before: String,
}

impl BpfStats {
    /// Turns it on.
    ///
    /// # Errors
    /// Without the right to.
    pub fn on() -> Result<Self> {
        let before = fs::read_to_string(PATH).with_context(|| format!("read {PATH}"))?;
        fs::write(PATH, "1").with_context(|| format!("turn on {PATH} (run it as root)"))?;
        Ok(Self { before })
    }
}

impl Drop for BpfStats {
    fn drop(&mut self) {
        if let Err(error) = fs::write(PATH, self.before.trim()) {
            eprintln!("rollrace-bench: {PATH} stays 1: {error}");
        }
    }
}
