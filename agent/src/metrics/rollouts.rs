//! Rollouts: gauges of those that this node took part in, and what was measured of their old pods.

use std::{collections::HashSet, net::SocketAddr};

use prometheus::{
    GaugeVec, Histogram, HistogramOpts, IntGaugeVec, Opts,
    core::{AtomicF64, AtomicI64},
};

use super::{passing::Passing, registry::Registry};
use crate::{
    engine::{State, seconds},
    model::{Mono, Rollout, RolloutId},
};

/// The most rollouts with gauges of their own.
pub(super) const ROLLOUT_CAP: usize = 200;
/// How long after an endpoint left its fresh SYNs are still counted.
const CONVERGENCE_GROWS_NANOS: u64 = 120 * 1_000_000_000;
/// How long after a rollout's last failure or completion its gauges stay.
const ROLLOUT_STAYS_NANOS: u64 = 3_600 * 1_000_000_000;
/// Fine below a second, and up to the quarter of an hour that huge clusters take.
const BUCKETS: [f64; 19] = [
    0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0, 120.0,
    300.0, 900.0,
];

/// The families.
pub(super) struct RolloutMetrics {
    convergence: Histogram,
    lag: Histogram,
    failures: Passing<AtomicI64>,
    longest: Passing<AtomicF64>,
    start: Passing<AtomicF64>,
    complete: Passing<AtomicF64>,
    /// Old pods that are in the histogram.
    converged: HashSet<(RolloutId, SocketAddr)>,
    /// The same of the lag.
    lagged: HashSet<(RolloutId, SocketAddr)>,
}

impl RolloutMetrics {
    /// Registered.
    pub(super) fn new(registry: &Registry) -> Self {
        let labels = &["namespace", "workload_kind", "workload", "revision"];
        let gauges = |name: &str, help: &str| {
            Passing::new(registry.add(GaugeVec::new(Opts::new(name, help), labels)))
        };
        let histogram = |name: &str, help: &str| {
            registry
                .add(Histogram::with_opts(HistogramOpts::new(name, help).buckets(BUCKETS.to_vec())))
        };
        Self {
            convergence: histogram(
                "convergence_seconds",
                "From a pod's deletion to the last fresh connection that this node sent to it.",
            ),
            lag: histogram(
                "control_plane_lag_seconds",
                "From a pod's deletion to when this node was told that its endpoint leaves; up to a second too long, as the API cuts deletion times to seconds.",
            ),
            failures: Passing::new(registry.add(IntGaugeVec::new(
                Opts::new("rollout_failures", "Failures of a rollout on this node."),
                &["namespace", "workload_kind", "workload", "revision", "class", "phase"],
            ))),
            longest: gauges(
                "rollout_convergence_seconds",
                "Longest convergence of a rollout's old pods on this node.",
            ),
            start: gauges(
                "rollout_start_timestamp_seconds",
                "When the rollout was first observed.",
            ),
            complete: gauges(
                "rollout_complete_timestamp_seconds",
                "When the rollout was complete.",
            ),
            converged: HashSet::new(),
            lagged: HashSet::new(),
        }
    }

    /// The rollouts that have gauges now: the newest of those that are not over for long.
    pub(super) fn shown(state: &State) -> Vec<&Rollout> {
        let now = state.clock().mono;
        let is_of_now = |rollout: &&Rollout| {
            let last = rollout.last_failure.max(rollout.completed).unwrap_or(rollout.started);
            now.since(last) < ROLLOUT_STAYS_NANOS
        };
        state.rollouts().all().rev().filter(is_of_now).take(ROLLOUT_CAP).collect()
    }

    /// Takes over how they stand.
    pub(super) fn observe(&mut self, state: &State) {
        let is_known = |id: &RolloutId| state.rollouts().get(id).is_some();
        self.converged.retain(|(id, _)| is_known(id));
        self.lagged.retain(|(id, _)| is_known(id));
        for rollout in Self::shown(state) {
            self.measured(rollout, state.clock().mono);
            self.gauges(state, rollout);
        }
        self.failures.sweep();
        for gauges in [&mut self.longest, &mut self.start, &mut self.complete] {
            gauges.sweep();
        }
    }

    /// Of what an earlier agent left, that one has counted what belongs into histograms.
    pub(super) fn recalled(&mut self, state: &State) {
        for rollout in state.rollouts().all() {
            let pods = || rollout.convergence.iter().map(|of| (rollout.id.clone(), of.endpoint));
            self.converged.extend(pods());
            self.lagged.extend(pods());
        }
    }

    fn gauges(&mut self, state: &State, rollout: &Rollout) {
        let revision = rollout.revision();
        let key = &rollout.workload;
        let labels: [&str; 4] = [&key.namespace, &key.kind, &key.name, &revision];
        let at = |mono| state.clock().wall(mono).as_duration().as_secs_f64();
        self.start.set(&labels, at(rollout.started));
        if let Some(completed) = rollout.completed {
            self.complete.set(&labels, at(completed));
        }
        if let Some(longest) = rollout.convergence.iter().filter_map(|known| known.nanos).max() {
            self.longest.set(&labels, seconds(longest));
        }
        for (class, by_phase) in &rollout.failures_by_phase {
            for (phase, count) in by_phase {
                let [namespace, kind, name, revision] = labels;
                let labels = [namespace, kind, name, revision, class.name(), phase.name()];
                self.failures.set(&labels, i64::try_from(*count).unwrap_or(i64::MAX));
            }
        }
    }

    /// The lag enters its histogram when the last old pod is gone, since by then each deletion is known;
    /// a convergence once it can grow no more: two minutes later nobody looks at fresh SYNs any longer.
    fn measured(&mut self, rollout: &Rollout, now: Mono) {
        let Some(gone) = rollout.last_old_pod_gone else { return };
        let is_final = now.since(gone) >= CONVERGENCE_GROWS_NANOS;
        for known in &rollout.convergence {
            let key = || (rollout.id.clone(), known.endpoint);
            if let Some(nanos) = known.lag_nanos
                && self.lagged.insert(key())
            {
                self.lag.observe(seconds(nanos));
            }
            if let Some(nanos) = known.nanos.filter(|_| is_final)
                && self.converged.insert(key())
            {
                self.convergence.observe(seconds(nanos));
            }
        }
    }
}

#[cfg(test)]
impl RolloutMetrics {
    /// Gives as many rollouts as may have gauges each of them.
    pub(super) fn fill(&mut self, namespace: &str, kind: &str, revision: &str) {
        use crate::model::{Class, Phase};
        for number in 0..ROLLOUT_CAP {
            let name = format!("api-{number:04}");
            let labels = [namespace, kind, &name, revision];
            for gauges in [&mut self.longest, &mut self.start, &mut self.complete] {
                gauges.set(&labels, 1_764_480_000.123);
            }
            for class in Class::ALL {
                for phase in [Phase::During, Phase::After] {
                    let labels = [namespace, kind, &name, revision, class.name(), phase.name()];
                    self.failures.set(&labels, 7);
                }
            }
        }
    }
}
