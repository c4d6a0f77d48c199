//! How long preStop must be: the longest that any node still sent new connections to a pod after its
//! deletion, and a margin.
//!
//! preStop starts at the pod's deletion, so that is what the figure begins at. The measure is a lower
//! bound (with little traffic the last SYN comes early), so it goes with its sample count. A node
//! without traffic is "not measured", never zero.

use serde::Serialize;

use super::{facts::Case, words::float};

/// The margin is half of what was measured, and at least this much, in seconds.
const LEAST_MARGIN: f64 = 2.0;
/// With fewer SYNs than this behind the figure, the margin is at least [`FEW_MARGIN`].
const FEW: u64 = 20;
/// See [`FEW`]; in seconds.
const FEW_MARGIN: f64 = 5.0;
/// Left after the drain before the kubelet kills, in seconds.
const KILL_MARGIN: f64 = 5.0;
/// What an application is given to drain where nothing was measured, in seconds.
const UNKNOWN_DRAIN: f64 = 10.0;
/// What preStop is set to where one is needed and nothing was measured, in seconds: a guess, and said
/// to be one.
pub(super) const GUESS: i64 = 15;
/// The `sleep` action is on by default since then (KEP-3960).
const SLEEP_SINCE: (u32, u32) = (1, 30);

/// The figure, and what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PreStop {
    /// Deletion → last fresh SYN, the longest of all nodes, in seconds; `None`: not measured.
    pub measured_seconds: Option<f64>,
    /// The node that it was measured on.
    pub node: Option<String>,
    /// The pod that it was measured for.
    pub pod: Option<String>,
    /// How much too long it may be, since the API's times have a resolution of a second.
    pub precision_seconds: f64,
    /// Fresh SYNs after the deletions, of all pods on all nodes: how much the figure rests on. A lower
    /// bound: the kernel counts by second, and those of the deletion's own second are left out.
    pub samples: u64,
    /// Pods and nodes with a measure.
    pub measured_pods: usize,
    /// See `measured_pods`.
    pub measured_nodes: usize,
    /// Nodes that saw the rollout and no new connection to a leaving pod.
    pub unmeasured: Vec<String>,
    /// What preStop should sleep, in whole seconds; `None`: there is no figure to go by.
    pub seconds: Option<i64>,
    /// What was added to the measure.
    pub margin_seconds: f64,
    /// How long the application took from SIGTERM to its exit, the longest; `None`: not known.
    pub drain_seconds: Option<f64>,
    /// Whether this Kubernetes has the `sleep` action; `None`: its version is not known.
    pub has_sleep: Option<bool>,
    /// Whether anything rests on the figure: a workload that failed, or whose preStop may be short.
    #[serde(skip)]
    pub matters: bool,
}

/// Measures it.
pub fn measure(case: &Case) -> PreStop {
    let mut worst: Option<(f64, f64, &str, &str)> = None;
    let (mut samples, mut nodes) = (0, 0);
    let mut unmeasured = Vec::new();
    for (node, figures) in case.figures() {
        let mut measured_here = false;
        for pod in &figures.convergence {
            let Some(seconds) = pod.seconds else { continue };
            measured_here = true;
            samples += pod.fresh_syns_after;
            if worst.is_none_or(|(known, ..)| known < seconds) {
                worst = Some((seconds, pod.precision_seconds, node, &pod.pod));
            }
        }
        if measured_here {
            nodes += 1;
        } else {
            unmeasured.push(node.to_owned());
        }
    }
    // A node whose agent saw nothing of the rollout had no traffic to it.
    let silent = case.nodes.iter().filter(|part| part.figures.is_none());
    unmeasured.extend(silent.map(|part| part.node.clone()));
    // What failed there was sent there.
    let failed = ["refused", "timeout", "unreachable"].iter().map(|class| case.count(class));
    samples = samples.max(failed.sum::<u64>().saturating_sub(case.side("new")));
    let pods = case.pods();
    let slept = slept(case);
    let drain = pods.iter().filter(|pod| !pod.was_killed() && !pod.exit_codes.is_empty());
    let drain =
        drain.filter_map(|pod| pod.gone).reduce(f64::max).map(|gone| (gone - slept).max(0.0));
    let mut margin = 0.0;
    let seconds = worst.map(|(measured, ..)| {
        margin = (measured / 2.0).max(LEAST_MARGIN);
        if samples < FEW {
            margin = margin.max(FEW_MARGIN);
        }
        whole(measured + margin)
    });
    PreStop {
        measured_seconds: worst.map(|(seconds, ..)| seconds),
        precision_seconds: worst.map_or(0.0, |(_, precision, ..)| precision),
        node: worst.map(|(_, _, node, _)| node.to_owned()),
        pod: worst.map(|(.., pod)| pod.to_owned()),
        samples,
        measured_pods: pods.iter().filter(|pod| pod.converged.is_some()).count(),
        measured_nodes: nodes,
        unmeasured,
        seconds,
        margin_seconds: margin,
        drain_seconds: drain,
        has_sleep: case.kubernetes.as_deref().and_then(version).map(|v| v >= SLEEP_SINCE),
        matters: case.failed() > 0,
    }
}

/// What the preStop of the pods that left slept, in seconds.
fn slept(case: &Case) -> f64 {
    let template = case.old_template();
    let container = template.and_then(|template| template.serving(case.port()));
    let seconds = container.and_then(|container| container.pre_stop.as_ref()?.seconds);
    seconds.map_or(0.0, float)
}

/// Room for preStop, the drain and a margin; in steps of 5 s, and never less than there is.
pub(super) fn grace(case: &Case, prestop: i64, drain: Option<f64>) -> i64 {
    let now = case.new_template().or(case.old_template());
    let now = now.map_or(crate::model::DEFAULT_GRACE_SECONDS, |template| template.grace_seconds);
    let killed = case.pods().iter().any(super::facts::Pod::was_killed);
    let old = case.old_template().map_or(now, |template| template.grace_seconds);
    let drain = if killed {
        // It took longer than all that it had.
        2.0 * (float(old) - slept(case)).max(UNKNOWN_DRAIN / 2.0)
    } else {
        drain.map_or(UNKNOWN_DRAIN, |drain| drain.max(1.0))
    };
    let needed = whole((float(prestop) + drain + KILL_MARGIN) / 5.0) * 5;
    needed.max(now)
}

/// `v1.33.1` → (1, 33).
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim_start_matches('v').split('.');
    let number = |part: &str| {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..end].parse().ok()
    };
    Some((number(parts.next()?)?, number(parts.next()?)?))
}

#[expect(clippy::cast_possible_truncation, reason = "seconds that a rollout takes")]
fn whole(seconds: f64) -> i64 {
    seconds.ceil() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_servers_say_them() {
        assert_eq!(version("v1.33.1"), Some((1, 33)));
        assert_eq!(version("v1.29.8-gke.1031000"), Some((1, 29)));
        assert_eq!(version("v1.30+"), Some((1, 30)));
        assert_eq!(version("unknown"), None);
    }
}
