//! What was left out, refused or forbidden on the API server's side.

use std::collections::BTreeMap;

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, core::AtomicI64};

use super::{passing::Passing, raise, registry::Registry};
use crate::{cluster::ClusterSnapshot, engine::State};

/// The families.
pub(super) struct ClusterMetrics {
    skipped: IntCounterVec,
    stale: IntCounterVec,
    denied: Passing<AtomicI64>,
    followed: IntGauge,
    follow_refused: IntCounter,
    look_ups_dropped: IntCounter,
    events: IntCounterVec,
}

impl ClusterMetrics {
    /// Registered.
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            skipped: registry.add(IntCounterVec::new(
                Opts::new(
                    "objects_skipped_total",
                    "Objects, or parts of them, that made no sense.",
                ),
                &["kind"],
            )),
            stale: registry.add(IntCounterVec::new(
                Opts::new(
                    "watch_stale_events_total",
                    "Watch events older than what was known already, left out.",
                ),
                &["resource"],
            )),
            denied: Passing::new(registry.add(IntGaugeVec::new(
                Opts::new("api_denied", "1 for what the API server forbids; status has the rest."),
                &["verb", "resource"],
            ))),
            followed: registry.add(IntGauge::new("workloads_followed", "Workloads followed now.")),
            follow_refused: registry.add(IntCounter::new(
                "workloads_not_followed_total",
                "Workloads with something in flight that there was no room to follow.",
            )),
            look_ups_dropped: registry.add(IntCounter::new(
                "owner_lookups_dropped_total",
                "Owner look-ups dropped because too many waited.",
            )),
            events: registry.add(IntCounterVec::new(
                Opts::new(
                    "kubernetes_events_total",
                    "Events of rollouts that broke connections: created, exists (another node wrote it), \
                     denied, failed, lost (never written).",
                ),
                &["result"],
            )),
        }
    }

    /// Takes over what is counted elsewhere.
    pub(super) fn observe(
        &mut self,
        counted: &mut BTreeMap<(&'static str, Vec<String>), u64>,
        cluster: &ClusterSnapshot,
        state: &State,
    ) {
        for (kind, count) in &cluster.skipped {
            raise(counted, "skipped", &[kind], *count, &self.skipped);
        }
        for (name, watch) in &cluster.watches {
            raise(counted, "stale", &[name.name()], watch.stale, &self.stale);
        }
        let events = state.events();
        let results = events.by_result().map(|(result, count)| (result.name(), count));
        for (result, count) in results.chain([("lost", events.lost)]) {
            raise(counted, "kubernetes_events", &[result], count, &self.events);
        }
        for denied in &cluster.denied {
            self.denied.set(&[denied.verb, &denied.resource], 1);
        }
        self.denied.sweep();
        self.followed.set(i64::try_from(cluster.followed).unwrap_or(i64::MAX));
        let refused = state.follow_refused() + cluster.follow_refused;
        for (counter, value) in
            [(&self.follow_refused, refused), (&self.look_ups_dropped, cluster.resolve_dropped)]
        {
            counter.inc_by(value.saturating_sub(counter.get()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cluster::{Denied, WatchName, WatchSnapshot},
        engine::{Config, State},
        metrics::Metrics,
    };

    #[test]
    fn what_is_skipped_stale_denied_and_not_followed_is_on_metrics() {
        let mut cluster = ClusterSnapshot { follow_refused: 3, ..ClusterSnapshot::default() };
        cluster.skipped.insert("Pod", 2);
        let slices = WatchSnapshot { stale: 4, ..WatchSnapshot::default() };
        cluster.watches.insert(WatchName::EndpointSlices, slices);
        cluster.denied.push(Denied {
            verb: "get",
            resource: "nodes".into(),
            error: "cannot get nodes: 403".into(),
            costs: "failures of a lost node stay unknown",
        });
        let mut metrics = Metrics::new();
        let mut state = State::new(Config::new("n1"));
        let mut lines = || {
            metrics.observe(&mut state, &[], &cluster);
            let text = String::from_utf8(metrics.scrape().encode().expect("text")).expect("UTF-8");
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        lines();
        let text = lines();
        for line in [
            "rollrace_objects_skipped_total{kind=\"Pod\"} 2",
            "rollrace_watch_stale_events_total{resource=\"endpointslices\"} 4",
            "rollrace_api_denied{resource=\"nodes\",verb=\"get\"} 1",
            "rollrace_workloads_not_followed_total 3",
            "rollrace_kubernetes_events_total{result=\"created\"} 0",
            "rollrace_kubernetes_events_total{result=\"lost\"} 0",
        ] {
            assert!(text.iter().any(|found| found == line), "no {line}");
        }
        cluster.denied.clear();
        metrics.observe(&mut state, &[], &cluster);
        let text = String::from_utf8(metrics.scrape().encode().expect("text")).expect("UTF-8");
        assert!(!text.contains("rollrace_api_denied{"), "granted again");
    }
}
