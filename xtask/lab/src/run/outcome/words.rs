//! A run's result in words.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::RunResult;
use crate::compare::Difference;
use crate::compare::convergence::Quantiles;

impl RunResult {
    /// The result for people.
    pub fn text(&self, out: &Path) -> String {
        let comparison = &self.comparison;
        let mut text = format!(
            "setup {}, mode {}, proxy {}, {}: {} requests, {} failed ({} began over 5 s after the rollout)\n",
            self.setup,
            self.mode,
            self.proxy,
            self.ip_family,
            self.requests,
            self.failed,
            self.after_rollout
        );
        for (what, counts) in [
            ("clients saw", &comparison.truth),
            ("agents reported", &comparison.agent),
            ("missed", &comparison.missed),
            ("extra", &comparison.extra),
        ] {
            line(&mut text, format_args!("  {what:<16} {}", counts_text(counts)));
        }
        let not_compared = not_compared_text(&comparison.not_compared);
        line(&mut text, format_args!("  {:<16} {not_compared}", "not compared"));
        line(
            &mut text,
            format_args!(
                "  misattributed {}, reported twice {}",
                comparison.misattributed, comparison.doubles
            ),
        );
        self.tail_text(&mut text);
        for (what, found) in [
            ("convergence, measured", &self.convergence_ms),
            ("convergence, true", &self.true_convergence_ms),
            ("on /metrics after", &self.on_time_ms),
            ("wait for evidence", &self.evidence_wait_ms),
        ] {
            line(&mut text, format_args!("  {what:<22} {}", quantiles_text(found)));
        }
        for spent in &self.control_plane {
            line(
                &mut text,
                format_args!(
                    "  an agent asked the API server, {}: {:.1} requests, {:.1} kB in {:.1} s",
                    spent.phase,
                    spent.requests,
                    spent.bytes / 1e3,
                    spent.seconds
                ),
            );
        }
        for missed in &self.bars_missed {
            line(&mut text, format_args!("  bar missed: {missed}"));
        }
        for doubt in &self.doubts {
            line(&mut text, format_args!("  {doubt}"));
        }
        if !comparison.differences.is_empty() {
            line(
                &mut text,
                format_args!("  the differences: {}", out.join("differences.jsonl").display()),
            );
            for difference in comparison.differences.iter().take(3) {
                line(&mut text, format_args!("  - {}", in_words(difference)));
            }
        }
        line(&mut text, format_args!("  everything: {}", out.display()));
        text
    }
}

impl RunResult {
    fn tail_text(&self, text: &mut String) {
        let tail = &self.tail;
        let entries = &tail.stale_entries;
        let last = tail.tail_seconds.map_or_else(
            || "no failure began after completion".to_owned(),
            |seconds| format!("the last failure began {seconds:.1} s after completion"),
        );
        line(
            text,
            format_args!(
                "  {:<16} at most {} stale entries ({} by the agents), {} now; {last}",
                "tail", entries.peak, entries.agents_peak, entries.at_end
            ),
        );
        if let Some(apart) = tail.tail_end.apart_seconds {
            line(text, format_args!("  {:<16} predicted within {apart:.1} s", "tail's end"));
        }
        let windows: Vec<String> = tail
            .histogram
            .iter()
            .map(|window| {
                let (from, until) = (window.from, window.until);
                if window.clients == window.agents {
                    format!("{from}-{until} s: {}", window.clients)
                } else {
                    format!("{from}-{until} s: {} (agents {})", window.clients, window.agents)
                }
            })
            .collect();
        line(text, format_args!("  {:<16} {}", "began at", windows.join(", ")));
    }
}

fn in_words(difference: &Difference) -> String {
    match difference {
        Difference::Missed { truth, .. } => format!(
            "missed: {} of {} from {}",
            truth.failure.class.name(),
            truth.client,
            truth.failure.local
        ),
        Difference::Extra { reported, .. } => format!(
            "extra: {} from {} reported by {}",
            reported.failure.class,
            reported.failure.client.socket(),
            reported.node
        ),
        Difference::Misattributed { truth, why, .. } => {
            format!(
                "misattributed: {} from {}: {}",
                truth.failure.class.name(),
                truth.failure.local,
                why.join("; ")
            )
        }
        Difference::Double { first, again } => format!(
            "twice: {} from {}, by {} and {}",
            first.failure.class,
            first.failure.client.socket(),
            first.node,
            again.node
        ),
    }
}

fn quantiles_text(found: &Quantiles) -> String {
    let figure =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0} ms"));
    format!(
        "p50 {}, p99 {}, max {} ({} samples)",
        figure(found.p50),
        figure(found.p99),
        figure(found.max),
        found.samples
    )
}

/// What is not compared, in words: `client:CLASS` and `agent:CLASS` with their counts.
pub fn not_compared_text(counts: &BTreeMap<String, u64>) -> String {
    let mut parts: Vec<String> = counts
        .iter()
        .map(|(key, n)| match key.split_once(':') {
            Some(("client", class)) => format!("{n} {class} that the clients saw"),
            Some((_, class)) => format!("{n} {class} that the agents reported"),
            None => format!("{n} {key}"),
        })
        .collect();
    if parts.is_empty() {
        parts.push("nothing of it happened".to_owned());
    }
    format!("{} (connections that were answered: stalled, misdelivered)", parts.join(", "))
}

/// Counts by class in words.
pub fn counts_text(counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        return "nothing".to_owned();
    }
    counts.iter().map(|(class, n)| format!("{n} {class}")).collect::<Vec<_>>().join(", ")
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(text, "{arguments}");
}
