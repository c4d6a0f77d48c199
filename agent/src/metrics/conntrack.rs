//! The conntrack table, its stale entries, and what became of their evictions.

use std::collections::BTreeMap;

use prometheus::{
    Counter, Gauge, GaugeVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, core::AtomicF64,
};

use super::{passing::Passing, raise, registry::Registry};
use crate::{
    agent::ScanReport,
    engine::State,
    model::{EvictionResult, Transport},
};

/// The families.
pub(super) struct ConntrackMetrics {
    stale: IntGaugeVec,
    expiry: Passing<AtomicF64>,
    evictions: IntCounterVec,
    entries: Gauge,
    limit: Gauge,
    drops: IntCounterVec,
    insert_failed: IntCounter,
    scans: IntCounterVec,
    scan_seconds: Counter,
    last_scan: Gauge,
}

impl ConntrackMetrics {
    /// Registered.
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            stale: registry.add(IntGaugeVec::new(
                Opts::new(
                    "stale_conntrack_entries",
                    "Unanswered conntrack entries that lead to endpoints which are no more."
                ),
                &["protocol"],
            )),
            expiry: Passing::new(registry.add(GaugeVec::new(
                Opts::new(
                    "stale_conntrack_expiry_timestamp_seconds",
                    "When the last stale entry expires; absent without any, +Inf where clients keep some alive."
                ),
                &["protocol"],
            ))),
            evictions: registry.add(IntCounterVec::new(
                Opts::new(
                    "stale_conntrack_evictions_total",
                    "Stale entries that were to be deleted (--evict-stale), by what became of it."
                ),
                &["result"],
            )),
            entries: registry.add(Gauge::new(
                "conntrack_table_entries",
                "Conntrack entries (net.netfilter.nf_conntrack_count)."
            )),
            limit: registry.add(Gauge::new(
                "conntrack_table_limit",
                "Conntrack limit (net.netfilter.nf_conntrack_max)."
            )),
            drops: registry.add(IntCounterVec::new(
                Opts::new(
                    "conntrack_drops_total",
                    "Packets dropped for want of room in the table (table_full), and entries dropped early to make some (early_drop)."
                ),
                &["reason"],
            )),
            insert_failed: registry.add(IntCounter::new(
                "conntrack_insert_failed_total",
                "Entries that could not be inserted: their tuple was taken (SNAT ports exhausted)."
            )),
            scans: registry.add(IntCounterVec::new(
                Opts::new("conntrack_scans_total", "Scans of the conntrack table."),
                &["result"],
            )),
            scan_seconds: registry.add(Counter::new(
                "conntrack_scan_cpu_seconds_total",
                "Processor time of all scans of the conntrack table."
            )),
            last_scan: registry.add(Gauge::new(
                "conntrack_last_scan_cpu_seconds",
                "Processor time of the last scan of the conntrack table."
            )),
        }
    }

    /// Takes over what is counted elsewhere.
    pub(super) fn observe(
        &mut self,
        counted: &mut BTreeMap<(&'static str, Vec<String>), u64>,
        state: &State,
        report: &ScanReport,
    ) {
        for protocol in Transport::ALL {
            let labels = [protocol.name()];
            let sum = state.stale_by_protocol().get(protocol).copied().unwrap_or_default();
            let entries = i64::try_from(sum.entries).unwrap_or(i64::MAX);
            self.stale.with_label_values(&labels).set(entries);
            if let Some(expires) = sum.expires {
                let at = state.clock().wall(expires).as_duration().as_secs_f64();
                let at = if sum.refreshed { f64::INFINITY } else { at };
                self.expiry.set(&labels, at);
            }
        }
        self.expiry.sweep();
        for result in EvictionResult::ALL {
            let count = state.evictions().get(result).copied().unwrap_or(0);
            raise(counted, "evictions", &[result.name()], count, &self.evictions);
        }
        let table = &report.table;
        for (value, gauge) in [(table.entries, &self.entries), (table.limit, &self.limit)] {
            if let Some(value) = value {
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "a table has less than 2^52 entries"
                )]
                gauge.set(value as f64);
            }
        }
        let drops = [("table_full", table.dropped), ("early_drop", table.dropped_early)];
        for (reason, count) in drops {
            raise(counted, "drops", &[reason], count.unwrap_or(0), &self.drops);
        }
        let failed = table.insert_failed.unwrap_or(0);
        self.insert_failed.inc_by(failed.saturating_sub(self.insert_failed.get()));
        let scans = [("ok", report.scans - report.failed), ("failed", report.failed)];
        for (result, count) in scans {
            raise(counted, "scans", &[result], count, &self.scans);
        }
        let more = report.cost_sum.as_secs_f64() - self.scan_seconds.get();
        self.scan_seconds.inc_by(more.max(0.0));
        self.last_scan.set(report.cost.as_secs_f64());
    }
}
