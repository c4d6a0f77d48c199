//! The registry. Labels are closed sets; past the cap a series goes to `_other`, counted.

mod cluster;
mod conntrack;
mod registry;

use std::collections::{BTreeMap, HashSet};

use cluster::ClusterMetrics;
use conntrack::ConntrackMetrics;
pub use registry::Family;
use registry::Registry;

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts,
};

use crate::{
    agent::ScanReport,
    cluster::{ClusterSnapshot, WatchState},
    engine::{FailureLabels, State, seconds},
    model::{Cause, Class, Failure, Mono, Phase, Rollout, RolloutId, WorkloadKey},
    series::{SERIES_CAP, Series},
};

/// The most rollouts with gauges of their own.
const ROLLOUT_CAP: usize = 200;
/// How long after an endpoint left its fresh SYNs are still counted.
const CONVERGENCE_GROWS_NANOS: u64 = 120 * 1_000_000_000;
/// How long after a rollout's last failure or completion its gauges stay.
const ROLLOUT_STAYS_NANOS: u64 = 3_600 * 1_000_000_000;

/// Every metric of the agent.
pub struct Metrics {
    registry: Registry,
    failures: IntCounterVec,
    attempts: IntCounterVec,
    convergence: Histogram,
    rollout_failures: IntGaugeVec,
    rollout_convergence: GaugeVec,
    rollout_start: GaugeVec,
    rollout_complete: GaugeVec,
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
    /// Convergences already in the histogram: the last value counted of each endpoint.
    converged: HashSet<(RolloutId, std::net::SocketAddr)>,
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
        let rollout = &["namespace", "workload_kind", "workload", "revision"];
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
            convergence: registry.add(Histogram::with_opts(
                HistogramOpts::new(
                    "convergence_seconds",
                    "From a pod's deletion to the last fresh connection that this node sent to it.",
                )
                .buckets(vec![
                    0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0,
                    60.0, 120.0, 300.0, 900.0,
                ]),
            )),
            rollout_failures: registry.add(IntGaugeVec::new(
                Opts::new("rollout_failures", "Failures of a rollout on this node."),
                &["namespace", "workload_kind", "workload", "revision", "class", "phase"],
            )),
            rollout_convergence: registry.add(GaugeVec::new(
                Opts::new(
                    "rollout_convergence_seconds",
                    "Longest convergence of a rollout's old pods on this node."
                ),
                rollout,
            )),
            rollout_start: registry.add(GaugeVec::new(
                Opts::new(
                    "rollout_start_timestamp_seconds",
                    "When the rollout was first observed."
                ),
                rollout,
            )),
            rollout_complete: registry.add(GaugeVec::new(
                Opts::new("rollout_complete_timestamp_seconds", "When the rollout was complete."),
                rollout,
            )),
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
            converged: HashSet::new(),
            registry,
        }
    }

    /// The text format.
    ///
    /// # Errors
    /// If a family cannot be encoded.
    pub fn encode(&self) -> Result<Vec<u8>, prometheus::Error> {
        self.registry.encode()
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
        self.rollouts_of(state);
    }

    /// The conntrack table and its stale entries.
    pub fn conntrack(&mut self, state: &State, report: &ScanReport) {
        self.conntrack.observe(&mut self.counted, state, report);
    }

    /// Of what an earlier agent left, that one has counted what belongs into histograms.
    pub fn recalled(&mut self, state: &State) {
        let measured = state.rollouts().all().flat_map(|rollout| {
            rollout.convergence.iter().map(|known| (rollout.id.clone(), known.endpoint))
        });
        self.converged.extend(measured);
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

    /// Gauges of the rollouts that broke connections here, and the zeros of those that may.
    fn rollouts_of(&mut self, state: &State) {
        let now = state.clock().mono;
        let rollouts: Vec<&Rollout> = state
            .rollouts()
            .all()
            .rev()
            .filter(|rollout| {
                let last = rollout.last_failure.max(rollout.completed).unwrap_or(rollout.started);
                now.since(last) < ROLLOUT_STAYS_NANOS
            })
            .take(ROLLOUT_CAP)
            .collect();
        self.converged.retain(|(id, _)| state.rollouts().get(id).is_some());
        self.rollout_failures.reset();
        self.rollout_convergence.reset();
        self.rollout_start.reset();
        self.rollout_complete.reset();
        for rollout in rollouts {
            self.zeros_of(state, &rollout.workload);
            self.convergence_of(rollout, now);
            let revision = rollout.revision();
            let key = &rollout.workload;
            let labels: [&str; 4] = [&key.namespace, &key.kind, &key.name, &revision];
            let clock = state.clock();
            let at = |mono| clock.wall(mono).as_duration().as_secs_f64();
            self.rollout_start.with_label_values(&labels).set(at(rollout.started));
            if let Some(completed) = rollout.completed {
                self.rollout_complete.with_label_values(&labels).set(at(completed));
            }
            if let Some(longest) = rollout.convergence.iter().filter_map(|known| known.nanos).max()
            {
                self.rollout_convergence.with_label_values(&labels).set(seconds(longest));
            }
            for (class, by_phase) in &rollout.failures_by_phase {
                for (phase, count) in by_phase {
                    let [namespace, kind, name, revision] = labels;
                    self.rollout_failures
                        .with_label_values(&[
                            namespace,
                            kind,
                            name,
                            revision,
                            class.name(),
                            phase.name(),
                        ])
                        .set(i64::try_from(*count).unwrap_or(i64::MAX));
                }
            }
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
                    let labels = FailureLabels {
                        namespace: workload.namespace.clone(),
                        service: service.clone(),
                        workload_kind: workload.kind.clone(),
                        workload: workload.name.clone(),
                        class: *class,
                        cause: Cause::Rollout,
                        phase,
                    };
                    let labels = [
                        &*labels.namespace,
                        &*labels.service,
                        &*labels.workload_kind,
                        &*labels.workload,
                        labels.class.name(),
                        labels.cause.name(),
                        labels.phase.name(),
                    ];
                    let labels = self.capped("connection_failures_total", &labels, 4);
                    self.failures.with_label_values(&labels);
                }
            }
        }
    }

    /// A convergence enters the histogram once it can grow no more: two minutes after the last old
    /// pod was gone nobody looks at its fresh SYNs any longer.
    fn convergence_of(&mut self, rollout: &Rollout, now: Mono) {
        if rollout.last_old_pod_gone.is_none_or(|gone| now.since(gone) < CONVERGENCE_GROWS_NANOS) {
            return;
        }
        for known in &rollout.convergence {
            if let Some(nanos) = known.nanos
                && self.converged.insert((rollout.id.clone(), known.endpoint))
            {
                self.convergence.observe(seconds(nanos));
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
mod tests {
    use std::{net::SocketAddr, sync::Arc};

    use super::*;
    use crate::{
        engine::{AttemptCounts, ClusterChange, Config, Input, What, step},
        model::{ServiceFacts, ServicePort},
    };

    /// A Service of its own for each number, dialled so often.
    fn dialled(state: &mut State, number: u32, attempts: u64) {
        let ip = std::net::Ipv4Addr::from(0x0A60_0000 + number);
        let service = ServiceFacts {
            namespace: "shop".into(),
            name: format!("api-{number}").into(),
            resource_version: "1".into(),
            cluster_ips: vec![ip.into()],
            external_ips: Vec::new(),
            ports: vec![ServicePort {
                name: "http".into(),
                protocol: "TCP".into(),
                port: 80,
                node_port: None,
            }],
            has_selector: true,
            publish_not_ready: false,
            external_local: false,
            internal_local: false,
        };
        let original = SocketAddr::new(ip.into(), 80);
        let counts = AttemptCounts { original, attempts, answered: attempts, refused: 0 };
        for what in
            [What::Cluster(ClusterChange::Service(Arc::new(service))), What::Attempts(counts)]
        {
            step(state, Input { at: Mono(1), what });
        }
    }

    fn value(metrics: &Metrics, series: &str) -> Option<u64> {
        let text = String::from_utf8(metrics.encode().unwrap()).unwrap();
        let mut values = text.lines().filter_map(|line| line.strip_prefix(series));
        values.next().map(|value| value.trim().parse().unwrap())
    }

    #[test]
    fn rollouts_past_the_cap_have_no_gauges_and_the_newest_have() {
        let mut state = State::new(Config::new("n1"));
        let created = jiff::Timestamp::from_second(1_000).unwrap();
        let clock = crate::model::Clock { mono: Mono(1_000_000_000), wall: created };
        step(&mut state, Input { at: clock.mono, what: What::Tick(clock) });
        for number in 0..ROLLOUT_CAP + 5 {
            for (revision, hash) in [(1, "old"), (2, "new")] {
                let owner = crate::model::ObjectRef {
                    kind: "Deployment".into(),
                    api_version: "apps/v1".into(),
                    name: format!("api-{number}").into(),
                    uid: format!("uid-{number}").into(),
                };
                let set = crate::model::ReplicaSetFacts {
                    namespace: "shop".into(),
                    name: format!("api-{number}-{hash}").into(),
                    uid: format!("uid-{number}-{hash}").into(),
                    resource_version: "1".into(),
                    owner: Some(owner),
                    template_hash: hash.into(),
                    revision: Some(revision),
                    created: Some(created),
                    wanted: 1,
                    replicas: 1,
                    images: Vec::new(),
                    template: None,
                };
                let what = What::Cluster(ClusterChange::ReplicaSet(Arc::new(set)));
                step(&mut state, Input { at: clock.mono, what });
            }
        }
        let mut metrics = Metrics::new();
        metrics.observe(&mut state, &[], &ClusterSnapshot::default());
        let text = String::from_utf8(metrics.encode().unwrap()).unwrap();
        let gauge = "rollrace_rollout_start_timestamp_seconds{";
        assert_eq!(text.matches(gauge).count(), ROLLOUT_CAP);
        assert!(text.contains("workload=\"api-204\"") && !text.contains("workload=\"api-4\""));
    }

    #[test]
    fn two_thousand_services_that_all_roll_out_and_fail_fit_into_a_scrape() {
        let mut state = State::new(Config::new("n1"));
        for number in 0..2_000 {
            dialled(&mut state, number, 10);
        }
        let mut metrics = Metrics::new();
        metrics.observe(&mut state, &[], &ClusterSnapshot::default());
        // Each of its failures in a class and phase of its own, as far as there is room; and all gauges
        // that rollouts may have.
        let revision = "1000";
        for number in 0..2_000 {
            let (service, workload) = (format!("service-{number:04}"), format!("api-{number:04}"));
            for class in Class::ALL {
                for phase in [Phase::During, Phase::After] {
                    let (class, phase) = (class.name(), phase.name());
                    let labels =
                        ["shop", &service, "Deployment", &workload, class, "rollout", phase];
                    let labels = metrics.capped("connection_failures_total", &labels, 4);
                    metrics.failures.with_label_values(&labels).inc();
                    if number < ROLLOUT_CAP {
                        let labels = ["shop", "Deployment", &workload, revision, class, phase];
                        metrics.rollout_failures.with_label_values(&labels).set(7);
                    }
                }
            }
            if number < ROLLOUT_CAP {
                let labels = ["shop", "Deployment", &workload, revision];
                for gauge in [
                    &metrics.rollout_start,
                    &metrics.rollout_complete,
                    &metrics.rollout_convergence,
                ] {
                    gauge.with_label_values(&labels).set(1_764_480_000.123);
                }
            }
        }
        let began = std::time::Instant::now();
        let text = metrics.encode().unwrap();
        let took = began.elapsed();
        let series =
            text.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#")).count();
        println!("{series} series, {} bytes, {took:?}", text.len());
        assert!((9_000..20_000).contains(&series), "{series} series");
        assert!(text.len() < 3_000_000, "{} bytes", text.len());
        // The bar is for a release build.
        let bar = if cfg!(debug_assertions) { 2_000 } else { 200 };
        assert!(took.as_millis() < bar, "{took:?}");
    }

    #[test]
    fn services_past_the_cap_share_one_counter_that_is_their_sum_however_often_it_is_looked_at() {
        let mut state = State::new(Config::new("n1"));
        let cap = u32::try_from(SERIES_CAP).unwrap();
        for number in 0..cap + 3 {
            dialled(&mut state, number, 10);
        }
        let mut metrics = Metrics::new();
        let other = "rollrace_connection_attempts_total{namespace=\"_other\",service=\"_other\"}";
        for _ in 0..3 {
            metrics.observe(&mut state, &[], &ClusterSnapshot::default());
            assert_eq!(value(&metrics, other), Some(30));
            assert_eq!(value(&metrics, "rollrace_series_capped_total"), Some(3));
        }
        let text = String::from_utf8(metrics.encode().unwrap()).unwrap();
        let series = text.matches("rollrace_connection_attempts_total{").count();
        assert_eq!(series, SERIES_CAP + 1);
    }
}
