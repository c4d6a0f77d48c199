//! What was measured at rest, against the bars.

use std::path::Path;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// Most resident memory of an agent, in KiB.
const RESIDENT_BAR_KIB: u64 = 40 * 1024;
/// An agent uses less than this share of a core.
const PROCESSOR_BAR: f64 = 0.01;

/// One agent in one phase.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Its node.
    pub node: String,
    /// The phase.
    pub phase: &'static str,
    /// Resident memory at the phase's end, in KiB.
    pub resident_kib: u64,
    /// The most there was until the agent was ready, in KiB: no bar, but told.
    pub peak_at_start_kib: u64,
    /// Processor time by time.
    pub processor_share: f64,
}

impl Measured {
    fn is_light(&self) -> bool {
        self.resident_kib <= RESIDENT_BAR_KIB && self.processor_share < PROCESSOR_BAR
    }
}

/// The result of `rest`.
#[derive(Debug, Serialize)]
pub struct RestResult {
    /// Requests of all clients.
    pub requests: u64,
    /// Failed ones: there should be none.
    pub failed: u64,
    /// Failures that the agents reported: there should be none.
    pub reported: usize,
    /// Each agent in each phase.
    pub measured: Vec<Measured>,
}

impl RestResult {
    /// Every bar is met, and nothing failed.
    pub fn is_light(&self) -> bool {
        self.failed == 0 && self.reported == 0 && self.measured.iter().all(Measured::is_light)
    }

    /// The result for people.
    pub fn text(&self, out: &Path) -> String {
        let mut table = Table::new();
        table
            .load_style(presets::UTF8_FULL)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_header([
                "agent of",
                "phase",
                "resident (bar 40 MiB)",
                "peak at start",
                "share of a core (bar 1 %)",
                "",
            ]);
        for measured in &self.measured {
            table.add_row([
                measured.node.clone(),
                measured.phase.to_owned(),
                mebibytes(measured.resident_kib),
                mebibytes(measured.peak_at_start_kib),
                format!("{:.2} %", measured.processor_share * 100.0),
                if measured.is_light() { "ok" } else { "ABOVE THE BAR" }.to_owned(),
            ]);
        }
        let verdict = if self.is_light() { "light" } else { "NOT as it should be" };
        format!(
            "{table}\n{} requests, {} failed, {} failures reported: {verdict}\n  everything: {}\n",
            self.requests,
            self.failed,
            self.reported,
            out.display()
        )
    }
}

fn mebibytes(kib: u64) -> String {
    // Tenths are exact enough, and exact in integers.
    let tenths = kib * 10 / 1024;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(resident_kib: u64, processor_share: f64) -> RestResult {
        let node = "n1".to_owned();
        let phase = "no traffic";
        let measured =
            vec![Measured { node, phase, resident_kib, peak_at_start_kib: 0, processor_share }];
        RestResult { requests: 0, failed: 0, reported: 0, measured }
    }

    #[test]
    fn memory_time_and_failures_each_break_the_bar() {
        assert!(measured(RESIDENT_BAR_KIB, 0.009).is_light());
        assert!(!measured(RESIDENT_BAR_KIB + 1, 0.0).is_light());
        assert!(!measured(0, 0.01).is_light());
        assert!(!RestResult { reported: 1, ..measured(0, 0.0) }.is_light());
        assert_eq!(mebibytes(19_800), "19.3 MiB");
    }
}
