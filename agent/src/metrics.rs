//! The registry. Labels are closed sets; past the cap a series goes to `_other`, counted.

mod cluster;
mod conntrack;
mod passing;
mod registry;
mod rollouts;

use std::{collections::BTreeMap, sync::Arc};

use cluster::ClusterMetrics;
use conntrack::ConntrackMetrics;
pub use registry::Family;
use registry::Registry;
use rollouts::RolloutMetrics;

use prometheus::{
    Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
};

use crate::{
    agent::ScanReport,
    cluster::{ClusterSnapshot, WatchState},
    engine::{State, seconds},
    model::{Cause, Class, Failure, Phase, WorkloadKey},
    series::{SERIES_CAP, Series},
};

/// Every metric of the agent.
pub struct Metrics {
    registry: Arc<Registry>,
    failures: IntCounterVec,
    attempts: IntCounterVec,
    rollouts: RolloutMetrics,
    kernel_events: IntCounterVec,
    kernel_lost: IntCounterVec,
    closed: IntCounterVec,
    flows_memory: IntGauge,
    probe_attached: IntGaugeVec,
    watch_synced: IntGaugeVec,
    watch_restarts: IntCounterVec,
    api_requests: IntCounterVec,
    cluster: ClusterMetrics,
    delay: Histogram,
    endpoints: IntGaugeVec,
    undecided: IntGauge,
    pending: IntGauge,
    covered_since: Gauge,
    coverage_gaps: IntCounterVec,
    forgotten: IntCounterVec,
    conntrack: ConntrackMetrics,
    history_written: Gauge,
    history_failed: IntCounter,
    capped: IntCounter,
    series: Series,
    counted: BTreeMap<(&'static str, Vec<String>), u64>,
}

impl Metrics {
    /// All families, registered.
    ///
    /// # Panics
    /// Never: the names are constants, and distinct.
    #[expect(
        clippy::too_many_lines,
        reason = "a family after the other, in one place to read them"
    )]
    pub fn new() -> Self {
        let registry = Registry::new();
        let build = registry.add(IntGaugeVec::new(
            Opts::new("build_info", "1, with the version as label."),
            &["version"],
        ));
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Self {
            failures: registry.add(IntCounterVec::new(
                Opts::new(
                    "connection_failures_total",
                    "Failed connections that this node accounts for."
                ),
                &["namespace", "service", "workload_kind", "workload", "class", "cause", "phase"],
            )),
            attempts: registry.add(IntCounterVec::new(
                Opts::new(
                    "connection_attempts_total",
                    "Attempts to connect to a Service from this node."
                ),
                &["namespace", "service"],
            )),
            rollouts: RolloutMetrics::new(&registry),
            kernel_events: registry.add(IntCounterVec::new(
                Opts::new(
                    "kernel_events_total",
                    "What the eBPF programs did: read, matched, submitted."
                ),
                &["kind"],
            )),
            kernel_lost: registry.add(IntCounterVec::new(
                Opts::new(
                    "kernel_events_lost_total",
                    "Events and entries lost: counts are lower bounds."
                ),
                &["reason"],
            )),
            closed: registry.add(IntCounterVec::new(
                Opts::new(
                    "connections_closed_total",
                    "Answered connections that their endpoint ended, and that are no failures: doubtful \
                     (it left; the wire cannot tell whether anything was lost) or stayed (it did not leave)."
                ),
                &["what"],
            )),
            flows_memory: registry.add(IntGauge::new(
                "flows_memory_bytes",
                "Memory of the kernel's map of answered connections (--max-flows)."
            )),
            probe_attached: registry.add(IntGaugeVec::new(
                Opts::new("probe_attached", "1 if the probe is attached."),
                &["probe"],
            )),
            watch_synced: registry.add(IntGaugeVec::new(
                Opts::new(
                    "watch_synced",
                    "1 if the watch has listed everything and follows, or is not needed now."
                ),
                &["resource"],
            )),
            watch_restarts: registry.add(IntCounterVec::new(
                Opts::new("watch_restarts_total", "Times a watch had to begin again."),
                &["resource", "reason"],
            )),
            api_requests: registry.add(IntCounterVec::new(
                Opts::new(
                    "api_requests_total",
                    "Single requests to the API server (watches apart)."
                ),
                &["resource", "code"],
            )),
            cluster: ClusterMetrics::new(&registry),
            delay: registry.add(Histogram::with_opts(
                HistogramOpts::new(
                    "attribution_delay_seconds",
                    "From a failure's outcome to its verdict: the wait for evidence.",
                )
                .buckets(vec![0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0]),
            )),
            endpoints: registry.add(IntGaugeVec::new(
                Opts::new(
                    "endpoints_tracked",
                    "Endpoints by state: serving, leaving, gone and remembered."
                ),
                &["state"],
            )),
            undecided: registry.add(IntGauge::new(
                "undecided_failures",
                "Failures that wait for evidence."
            )),
            pending: registry.add(IntGauge::new(
                "pending_attempts",
                "Attempts seen to be in trouble, not yet decided."
            )),
            covered_since: registry.add(Gauge::new(
                "coverage_since_timestamp_seconds",
                "Since when the agent covers its node: probes attached, watches in step; 0: not yet."
            )),
            coverage_gaps: registry.add(IntCounterVec::new(
                Opts::new(
                    "coverage_gaps_total",
                    "Times of which something may be missing: rollouts of then are partly covered."
                ),
                &["reason"],
            )),
            history_written: registry.add(Gauge::new(
                "history_written_timestamp_seconds",
                "When the history was last written: a crash now loses what came since; 0: not kept."
            )),
            history_failed: registry.add(IntCounter::new(
                "history_write_failures_total",
                "How often the history could not be written."
            )),
            forgotten: registry.add(IntCounterVec::new(
                Opts::new(
                    "forgotten_total",
                    "What was forgotten before its time for want of room: verdicts may be unknown."
                ),
                &["what"],
            )),
            conntrack: ConntrackMetrics::new(&registry),
            capped: registry.add(IntCounter::new("series_capped_total", "Label sets that went to _other.")),
            series: Series::default(),
            counted: BTreeMap::new(),
            registry: Arc::new(registry),
        }
    }

    /// What is scraped now, to be encoded elsewhere.
    pub fn scrape(&self) -> Scrape {
        Scrape(Arc::clone(&self.registry))
    }

    /// Every family that there can be, whether it has a series yet or not.
    pub fn families(&self) -> Vec<Family> {
        self.registry.families()
    }

    /// Counts a decided failure.
    pub fn failure(&mut self, failure: &Failure) {
        let workload = failure.workload.as_ref();
        let labels = [
            &*failure.namespace,
            &*failure.service,
            workload.map_or("", |workload| &workload.kind),
            workload.map_or("", |workload| &workload.name),
            failure.class.name(),
            failure.cause.name(),
            failure.phase.name(),
        ];
        let labels = self.capped("connection_failures_total", &labels, 4);
        self.failures.with_label_values(&labels).inc();
    }

    /// Brings everything else up to date.
    pub fn observe(
        &mut self,
        state: &mut State,
        probes: &[(&str, bool)],
        cluster: &ClusterSnapshot,
    ) {
        for nanos in state.take_delays() {
            self.delay.observe(seconds(nanos));
        }
        for (name, attached) in probes {
            self.probe_attached.with_label_values(&[*name]).set(i64::from(*attached));
        }
        for (name, watch) in &cluster.watches {
            self.watch_synced
                .with_label_values(&[name.name()])
                .set(i64::from(matches!(watch.state, WatchState::Synced | WatchState::Idle)));
            for (reason, count) in &watch.restarts {
                let labels = [name.name(), reason.name()];
                raise(&mut self.counted, "restarts", &labels, *count, &self.watch_restarts);
            }
        }
        self.cluster.observe(&mut self.counted, cluster, state);
        for ((resource, code), count) in &cluster.requests {
            let code = code.to_string();
            raise(&mut self.counted, "requests", &[resource, &code], *count, &self.api_requests);
        }
        let (serving, leaving, gone) = state.endpoints().counts();
        for (name, count) in [("serving", serving), ("leaving", leaving), ("gone", gone)] {
            self.endpoints.with_label_values(&[name]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.undecided.set(i64::try_from(state.undecided_failures()).unwrap_or(i64::MAX));
        self.pending.set(i64::try_from(state.pending_attempts()).unwrap_or(i64::MAX));
        if let Some(since) = state.coverage().since() {
            self.covered_since.set(state.clock().wall(since).as_duration().as_secs_f64());
        }
        for (reason, count) in state.coverage().counts() {
            raise(&mut self.counted, "gaps", &[reason.name()], count, &self.coverage_gaps);
        }
        for (what, count) in state.forgotten() {
            raise(&mut self.counted, "forgotten", &[what], count, &self.forgotten);
        }
        self.attempts_of(state);
        for rollout in RolloutMetrics::shown(state) {
            self.zeros_of(state, &rollout.workload);
        }
        self.rollouts.observe(state);
    }

    /// The conntrack table and its stale entries.
    pub fn conntrack(&mut self, state: &State, report: &ScanReport) {
        self.conntrack.observe(&mut self.counted, state, report);
    }

    /// Of what an earlier agent left, that one has counted what belongs into histograms.
    pub fn recalled(&mut self, state: &State) {
        self.rollouts.recalled(state);
    }

    /// How it stands with the history.
    pub fn history(&mut self, written: Option<jiff::Timestamp>, failed: u64) {
        if let Some(written) = written {
            self.history_written.set(written.as_duration().as_secs_f64());
        }
        self.history_failed.inc_by(failed.saturating_sub(self.history_failed.get()));
    }

    /// Counts what the kernel side did and lost.
    pub fn kernel(&mut self, events: &[(&'static str, u64)], lost: &[(&'static str, u64)]) {
        for (kind, count) in events {
            raise(&mut self.counted, "events", &[kind], *count, &self.kernel_events);
        }
        for (reason, count) in lost {
            raise(&mut self.counted, "lost", &[reason], *count, &self.kernel_lost);
        }
    }

    /// Counts answered connections.
    pub fn flows(&mut self, state: &State, memory_bytes: u64) {
        for (what, count) in [("doubtful", state.closed()), ("stayed", state.stayed())] {
            raise(&mut self.counted, "closed", &[what], count, &self.closed);
        }
        self.flows_memory.set(i64::try_from(memory_bytes).unwrap_or(i64::MAX));
    }

    fn attempts_of(&mut self, state: &State) {
        let mut by_service: BTreeMap<(String, String), u64> = BTreeMap::new();
        for (original, counts) in state.counts() {
            if let Some((namespace, name)) = state.endpoints().service_at(*original) {
                *by_service.entry((namespace.to_string(), name.to_string())).or_insert(0) +=
                    counts.attempts;
            }
        }
        // Several share one series past the cap.
        let mut by_labels: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for ((namespace, service), count) in by_service {
            let labels = self.capped("connection_attempts_total", &[&namespace, &service], 2);
            *by_labels.entry(labels).or_insert(0) += count;
        }
        for (labels, count) in by_labels {
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            raise(&mut self.counted, "attempts", &labels, count, &self.attempts);
        }
    }

    /// A counter is 0 before its first event can be scraped: a burst whose series was born with it
    /// would not be seen by `increase()`. (The shipped rules see it all the same.) Zeros take at most
    /// half of the room, so that real failures find some.
    fn zeros_of(&mut self, state: &State, workload: &WorkloadKey) {
        if self.series.count("connection_failures_total") > SERIES_CAP / 2 {
            return;
        }
        let services = state.services_of(workload);
        for service in services {
            for class in Class::ALL {
                for phase in [Phase::During, Phase::After] {
                    let labels = [
                        &*workload.namespace,
                        &*service,
                        &*workload.kind,
                        &*workload.name,
                        class.name(),
                        Cause::Rollout.name(),
                        phase.name(),
                    ];
                    let labels = self.capped("connection_failures_total", &labels, 4);
                    self.failures.with_label_values(&labels);
                }
            }
        }
    }

    /// The labels, or `_other` in the first `open` of them past the cap.
    fn capped(&mut self, family: &'static str, labels: &[&str], open: usize) -> Vec<String> {
        let (labels, is_new) = self.series.labels(family, labels, open);
        if is_new {
            self.capped.inc();
        }
        labels
    }
}

/// What a scrape shows. It is taken from the live registry while it is encoded, and so without the
/// engine: each series is as it was at some moment meanwhile.
#[derive(Clone, Debug)]
pub struct Scrape(Arc<Registry>);

impl Scrape {
    /// The text format; some 10,000 series take tens of milliseconds, so this is for a thread that may
    /// block.
    ///
    /// # Errors
    /// If a family cannot be encoded.
    pub fn encode(&self) -> Result<Vec<u8>, prometheus::Error> {
        self.0.encode()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Raises a counter to a cumulative value kept elsewhere.
fn raise(
    counted: &mut BTreeMap<(&'static str, Vec<String>), u64>,
    family: &'static str,
    labels: &[&str],
    value: u64,
    into: &IntCounterVec,
) {
    let key = (family, labels.iter().map(|label| (*label).to_owned()).collect());
    let before = counted.insert(key, value).unwrap_or(0);
    into.with_label_values(labels).inc_by(value.saturating_sub(before));
}

#[cfg(test)]
mod tests;
