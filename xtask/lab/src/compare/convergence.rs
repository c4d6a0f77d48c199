//! Measured convergence against the true one: when each node's rules stopped naming an old
//! endpoint, counted from its pod's deletion.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::agent::report::Convergence;

/// When a node sent fresh connections to a backend: the kernel's own NEW events of conntrack.
pub type FreshSyns = BTreeMap<(String, SocketAddr), Vec<Timestamp>>;

/// The agent's figure is at most this much above the true one: the API tells a deletion by the second.
const ABOVE_MS: f64 = 1_000.0;
/// It is below the last fresh SYN, as conntrack told it, by no more than this.
const BELOW_MS: f64 = 50.0;
/// The agent is told of a deletion at most this much later than its watch's delay: controllers, and a
/// busy machine.
const TOLD_WITHIN_MS: f64 = 5_000.0;
/// The clocks that a delay is kept by and that it is measured with are not the same.
const CLOCKS_MS: f64 = 20.0;
/// Gaps are looked for in this time before the rule was gone.
const GAP_WINDOW_MS: f64 = 5_000.0;

/// What is known of an old endpoint.
#[derive(Debug, Clone)]
pub struct OldEndpoint {
    /// The pod.
    pub pod: String,
    /// Its address and port.
    pub endpoint: SocketAddr,
    /// When its deletion was taken by the API server.
    pub deleted: Timestamp,
}

/// Convergence of an old endpoint on a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeConvergence {
    /// The node.
    pub node: String,
    /// The pod.
    pub pod: String,
    /// Its address and port.
    pub endpoint: SocketAddr,
    /// The agent's figure; absent when it measured none.
    pub measured_ms: Option<f64>,
    /// From the deletion to when the agent was told of it, as it says; absent when it measured nothing.
    pub told_ms: Option<f64>,
    /// From the deletion to the rule's end; absent when the rule was still there.
    pub true_ms: Option<f64>,
    /// From the deletion to the last fresh SYN; absent when there was none after it.
    pub last_fresh_syn_ms: Option<f64>,
    /// Fresh SYNs after the deletion.
    pub fresh_syns_after: usize,
    /// The largest time without a fresh SYN in the last five seconds before the rule's end, that
    /// end included: the agent's figure may be below the true one by this much.
    pub largest_gap_ms: Option<f64>,
}

impl NodeConvergence {
    /// What is wrong with the agent's figure; nothing when it is right.
    ///
    /// The last fresh SYN is the sharper truth for the lower bound: the figure may be below the
    /// rule's end by the time without a fresh SYN, and that time begins at the last one.
    pub fn objection(&self) -> Option<String> {
        let of = || format!("convergence of {} on {}", self.pod, self.node);
        match (self.measured_ms, self.last_fresh_syn_ms, self.true_ms) {
            (None, Some(last), _) => Some(format!(
                "{} was not measured, though {} fresh SYNs came after the deletion, the last after {last:.0} ms",
                of(),
                self.fresh_syns_after
            )),
            (Some(measured), Some(last), _) if measured < last - BELOW_MS => Some(format!(
                "{} is {measured:.0} ms, below the last fresh SYN at {last:.0} ms",
                of()
            )),
            (Some(measured), _, Some(end)) if measured > end + ABOVE_MS => Some(format!(
                "{} is {measured:.0} ms, over a second above the rule's end at {end:.0} ms",
                of()
            )),
            _ => None,
        }
    }
}

impl NodeConvergence {
    /// What is wrong with when the agent says that it was told, its watch being that late.
    pub fn lag_objection(&self, watch_delay_ms: f64) -> Option<String> {
        let of = || format!("control-plane lag of {} on {}", self.pod, self.node);
        let within = watch_delay_ms - CLOCKS_MS..=watch_delay_ms + TOLD_WITHIN_MS;
        match self.told_ms {
            None => Some(format!("{} was not measured", of())),
            Some(told) if !within.contains(&told) => Some(format!(
                "{}: told {told:.0} ms after the deletion, by a watch that is {watch_delay_ms:.0} ms late",
                of()
            )),
            Some(_) => None,
        }
    }
}

/// Quantiles of a list of durations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Maximum.
    pub max: Option<f64>,
    /// How many.
    pub samples: usize,
}

/// Convergence of one old endpoint on one node.
pub fn on_node(
    node: &str,
    old: &OldEndpoint,
    rule_gone: Option<Timestamp>,
    measured: Option<&Convergence>,
    fresh_syns: &FreshSyns,
) -> NodeConvergence {
    let syns: &[Timestamp] =
        fresh_syns.get(&(node.to_owned(), old.endpoint)).map_or(&[], Vec::as_slice);
    let after: Vec<f64> = syns
        .iter()
        .map(|at| milliseconds(old.deleted, *at))
        .filter(|offset| *offset > 0.0)
        .collect();
    let true_ms = rule_gone.map(|at| milliseconds(old.deleted, at));
    NodeConvergence {
        node: node.to_owned(),
        pod: old.pod.clone(),
        endpoint: old.endpoint,
        measured_ms: measured
            .and_then(|known| known.seconds)
            .map(|seconds| round(seconds * 1000.0)),
        told_ms: measured.and_then(|known| {
            let lag = known.control_plane_lag_seconds? * 1000.0;
            Some(round(milliseconds(old.deleted, known.deleted?) + lag))
        }),
        true_ms: true_ms.map(round),
        last_fresh_syn_ms: after.iter().copied().reduce(f64::max).map(round),
        fresh_syns_after: after.len(),
        largest_gap_ms: true_ms.and_then(|end| largest_gap(syns, old.deleted, end)).map(round),
    }
}

fn largest_gap(syns: &[Timestamp], deleted: Timestamp, end: f64) -> Option<f64> {
    let mut offsets: Vec<f64> = syns
        .iter()
        .map(|at| milliseconds(deleted, *at))
        .filter(|offset| *offset >= end - GAP_WINDOW_MS && *offset <= end)
        .collect();
    if offsets.is_empty() {
        return None;
    }
    offsets.push(end);
    offsets.windows(2).map(|pair| pair[1] - pair[0]).reduce(f64::max)
}

/// Quantiles by nearest rank.
pub fn quantiles(values: impl IntoIterator<Item = f64>) -> Quantiles {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let rank = |percent: usize| {
        let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(index).copied()
    };
    Quantiles { p50: rank(50), p99: rank(99), max: sorted.last().copied(), samples: sorted.len() }
}

/// From one time to another.
pub fn milliseconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1000.0
}

/// To a tenth of a millisecond.
pub fn round(milliseconds: f64) -> f64 {
    (milliseconds * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::report::Address;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(1_000_000 + millisecond).expect("a time")
    }

    #[test]
    fn the_gap_up_to_the_rules_end_counts() {
        let old = OldEndpoint {
            pod: "api-1".to_owned(),
            endpoint: "10.244.1.2:8080".parse().expect("an address"),
            deleted: at(0),
        };
        let syns = [-100, 0, 40, 100].map(at).to_vec();
        let fresh = FreshSyns::from([(("n1".to_owned(), old.endpoint), syns)]);
        let measured = Convergence {
            endpoint: Address { address: old.endpoint.ip(), port: old.endpoint.port() },
            seconds: Some(0.1),
            fresh_syns_after: None,
            precision_seconds: None,
            deleted: Some(at(-600)),
            control_plane_lag_seconds: Some(0.65),
        };
        let found = on_node("n1", &old, Some(at(300)), Some(&measured), &fresh);
        assert_eq!(found.told_ms, Some(50.0));
        assert_eq!(found.lag_objection(50.0), None);
        assert!(found.lag_objection(3_000.0).is_some(), "told before its watch could tell");
        assert_eq!(found.true_ms, Some(300.0));
        assert_eq!(found.measured_ms, Some(100.0));
        assert_eq!(found.last_fresh_syn_ms, Some(100.0));
        assert_eq!(found.fresh_syns_after, 2);
        assert_eq!(found.largest_gap_ms, Some(200.0));
    }

    #[test]
    fn a_figure_outside_its_bounds_is_objected_to() {
        let found = |measured: Option<f64>, last: Option<f64>| NodeConvergence {
            node: "n1".to_owned(),
            pod: "api-1".to_owned(),
            endpoint: "10.244.1.2:8080".parse().expect("an address"),
            measured_ms: measured,
            told_ms: None,
            true_ms: Some(1_000.0),
            last_fresh_syn_ms: last,
            fresh_syns_after: usize::from(last.is_some()),
            largest_gap_ms: None,
        };
        let wrong = |measured, last| found(measured, last).objection().is_some();
        assert!(!wrong(Some(900.0), Some(900.0)));
        assert!(!wrong(Some(1_999.0), Some(900.0)));
        assert!(!wrong(None, None));
        assert!(wrong(Some(2_001.0), Some(900.0)));
        assert!(wrong(Some(800.0), Some(900.0)));
        assert!(wrong(None, Some(900.0)));
    }

    #[test]
    fn quantiles_of_nothing_are_absent() {
        assert_eq!(quantiles([]), Quantiles::default());
        let found = quantiles([3.0, 1.0, 2.0]);
        assert_eq!((found.p50, found.p99, found.max), (Some(2.0), Some(3.0), Some(3.0)));
    }
}
