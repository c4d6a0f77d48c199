//! How old pods ended: killed, or with connections still open.

use super::{super::words::float, of_failed};
use crate::advise::{Case, Finding, Rule, Weight, count_of, duration, facts::Pod};

/// A listener that closed so long before the pod was gone was closed by the process, not by the kill.
const BEFORE_KILL: f64 = 1.0;

pub(super) fn killed(case: &Case) -> Option<Finding> {
    let pods = case.pods();
    let killed: Vec<&Pod> = pods.iter().filter(|pod| pod.was_killed()).collect();
    let last = killed.iter().filter_map(|pod| pod.gone).reduce(f64::max);
    if killed.is_empty() {
        return None;
    }
    let template = case.old_template();
    let hook = template.and_then(|template| template.serving(case.port())?.pre_stop.as_ref());
    let slept = hook.and_then(|hook| hook.seconds);
    if let (Some(template), Some(slept)) = (template, slept)
        && slept >= template.grace_seconds
    {
        // Said by another rule: it had no time at all.
        return None;
    }
    let known = pods.iter().filter(|pod| !pod.exit_codes.is_empty()).count();
    let mut evidence = format!("{} of {known} old pods ended with exit code 137", killed.len());
    if let Some(last) = last {
        evidence = format!("{evidence}, gone {} after the deletion", duration(last));
    }
    if let Some(template) = template {
        evidence = format!("{evidence} (grace period {} s)", template.grace_seconds);
    }
    let drained = killed.iter().filter_map(|pod| {
        let gap = pod.listener_gap?;
        pod.gone.is_none_or(|gone| gap + BEFORE_KILL < gone).then_some(gap)
    });
    if let Some(gap) = drained.reduce(f64::min) {
        return Some(truncated(gap, evidence));
    }
    let accepted = killed.iter().filter_map(|pod| pod.converged.as_ref());
    let accepted = accepted.map(|(seconds, _)| *seconds).reduce(f64::max);
    let accepted = accepted.filter(|at| *at > float(slept.unwrap_or(0)) + 1.0);
    Some(deaf(case, accepted, evidence))
}

fn truncated(gap: f64, evidence: String) -> Finding {
    Finding::new(
        Rule::GraceTruncates,
        Weight::Fault,
        "the grace period ends before the drain does: SIGKILL cuts what is left",
    )
    .because(evidence)
    .because(format!("the listener was closed {} after the deletion", duration(gap)))
    .change("a longer grace period, or a drain with a deadline of its own")
}

fn deaf(case: &Case, accepted: Option<f64>, evidence: String) -> Finding {
    let cut = case.count("cut") + case.count("reset");
    let weight = if cut > 0 { Weight::Fault } else { Weight::Risk };
    let finding = Finding::new(
        Rule::IgnoresSigterm,
        weight,
        "the process ignores SIGTERM and is killed after the whole grace period",
    )
    .because(evidence);
    let finding = match accepted {
        Some(at) => finding.because(format!(
            "it still accepted new connections {} after the deletion, and refused none",
            duration(at)
        )),
        None => finding.because("no new connection was refused before it was killed"),
    };
    finding.change(
        "let PID 1 act on SIGTERM: start it without a shell around it (exec), or under an init that \
         passes signals on; then it needs a preStop and a drain, since until now the grace period \
         did the work of both",
    )
}

pub(super) fn cut(case: &Case) -> Option<Finding> {
    let (cut, reset) = (case.count("cut"), case.count("reset"));
    if cut + reset == 0 {
        return None;
    }
    let mut parts = Vec::new();
    if cut > 0 {
        parts.push(format!("{cut} closed with a request unanswered"));
    }
    if reset > 0 {
        parts.push(format!("{reset} reset"));
    }
    let finding = Finding::new(
        Rule::KeepaliveCut,
        Weight::Fault,
        "established connections were cut when old pods exited",
    )
    .because(format!("{}: {}", of_failed(cut + reset, case), parts.join(", ")))
    .change(
        "at SIGTERM: go on serving, answer each connection's next request with Connection: close \
         (HTTP/2: GOAWAY), close idle connections, and exit when the last one is done",
    );
    let drain = case
        .pods()
        .iter()
        .filter(|pod| !pod.was_killed())
        .filter_map(|pod| pod.gone)
        .reduce(f64::max);
    Some(match drain {
        Some(gone) => finding.because(format!(
            "old pods were gone {} after their deletion at the latest ({} seen)",
            duration(gone),
            count_of(u64::try_from(case.pods().len()).unwrap_or(u64::MAX), "pod")
        )),
        None => finding,
    })
}
