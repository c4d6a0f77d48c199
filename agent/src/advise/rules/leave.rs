//! Pods that leave: their listener against the proxies' convergence.

use super::{super::words::float, leaving_failed, of_failed};
use crate::{
    advise::{Case, Finding, PreStop, Rule, Weight, count_of, duration, facts::Pod},
    model::TemplateFacts,
};

pub(super) fn prestop(case: &Case, figure: &PreStop) -> Option<Finding> {
    let failed = leaving_failed(case);
    let by_design = case.workload.as_ref().is_some_and(|shape| shape.outage_by_design);
    if by_design && figure.measured_seconds.is_none() {
        return None;
    }
    if failed == 0 {
        return risk(case, figure);
    }
    let serving = |template: &TemplateFacts| {
        let hook = template.serving(case.port()).map(|container| container.pre_stop.clone());
        hook.flatten()
    };
    let evidence = |finding: Finding| {
        finding
            .because_all(closed(&case.pods()))
            .because_all(converged(figure))
            .because(format!("{} at leaving pods", of_failed(failed, case)))
    };
    let no_hook = "old pods stop listening before every proxy knows that they leave";
    match case.old_template().map(serving) {
        None => Some(evidence(Finding::new(Rule::NoPreStop, Weight::Fault, no_hook))),
        Some(None) => {
            let title = format!("no preStop: {no_hook}");
            Some(evidence(Finding::new(Rule::NoPreStop, Weight::Fault, title)))
        }
        Some(Some(hook)) => match (hook.seconds, figure.measured_seconds) {
            (Some(slept), Some(measured)) if measured <= float(slept) => None,
            (Some(_), None) => None,
            (Some(slept), _) => {
                let title = format!("preStop is too short: it sleeps {slept} s");
                Some(evidence(Finding::new(Rule::ShortPreStop, Weight::Fault, title)))
            }
            (None, _) => {
                let title = format!("preStop ({}) ends before every proxy knows", hook.how);
                let finding = Finding::new(Rule::ShortPreStop, Weight::Fault, title);
                let finding = match figure.seconds {
                    Some(seconds) => finding.change(format!(
                        "its preStop does more than sleep, so no patch is printed for it: let it \
                         take at least {seconds} s"
                    )),
                    None => finding,
                };
                Some(evidence(finding))
            }
        },
    }
}

/// It went well, and would not with a little more traffic or a slower proxy.
fn risk(case: &Case, figure: &PreStop) -> Option<Finding> {
    let measured = figure.measured_seconds?;
    let container = case.new_template()?.serving(case.port())?;
    let finding = match &container.pre_stop {
        None => Finding::new(
            Rule::NoPreStop,
            Weight::Risk,
            "no preStop: whether a rollout breaks connections is left to chance",
        ),
        Some(hook) if hook.seconds.is_some_and(|slept| float(slept) < measured) => Finding::new(
            Rule::ShortPreStop,
            Weight::Risk,
            "preStop is shorter than the proxies take",
        ),
        Some(_) => return None,
    };
    Some(finding.because_all(converged(figure)))
}

/// When the listeners closed.
fn closed(pods: &[Pod]) -> Option<String> {
    let gaps = || pods.iter().filter_map(|pod| pod.listener_gap);
    let (least, most) = (gaps().reduce(f64::min)?, gaps().reduce(f64::max)?);
    let precision = pods.iter().map(|pod| pod.precision).reduce(f64::max).unwrap_or(0.0);
    let between = if most - least < 0.05 {
        duration(most)
    } else {
        format!("{} to {}", duration(least), duration(most))
    };
    let pods = count_of(u64::try_from(pods.len()).unwrap_or(u64::MAX), "pod");
    Some(format!(
        "the listener was closed {between} after the deletion ({} of {pods} seen){}",
        gaps().count(),
        exact_to(precision)
    ))
}

/// Until when new connections came.
fn converged(figure: &PreStop) -> Option<String> {
    let measured = figure.measured_seconds?;
    let node = figure.node.as_deref().unwrap_or("?");
    Some(format!(
        "new connections were sent to it until {} after the deletion (on {node}; at least {} on {}){}",
        duration(measured),
        count_of(figure.samples, "connection"),
        count_of(u64::try_from(figure.measured_nodes).unwrap_or(u64::MAX), "node"),
        exact_to(figure.precision_seconds)
    ))
}

fn exact_to(precision: f64) -> String {
    if precision < 0.05 {
        String::new()
    } else {
        format!(", or up to {} less", duration(precision))
    }
}

pub(super) fn over_grace(case: &Case) -> Option<Finding> {
    let of = |template: Option<&TemplateFacts>| {
        let template = template?;
        let hook = template.serving(case.port())?.pre_stop.as_ref()?;
        let slept = hook.seconds.filter(|slept| *slept >= template.grace_seconds)?;
        Some((slept, template.grace_seconds))
    };
    let (old, new) = (of(case.old_template()), of(case.new_template()));
    let (slept, grace) = new.or(old)?;
    let weight = match (old, new, case.failed()) {
        (Some(_), _, 1..) => Weight::Fault,
        (_, Some(_), _) => Weight::Risk,
        // It is mended, and has broken nothing.
        _ => return None,
    };
    let finding = Finding::new(
        Rule::PreStopOverGrace,
        weight,
        "preStop is not smaller than the grace period: the process is killed, not stopped",
    );
    Some(finding.because(format!(
        "preStop sleeps {slept} s, terminationGracePeriodSeconds is {grace}, and both count from the \
         deletion: when the sleep is cut off, SIGTERM comes 2 s before SIGKILL at best"
    )))
}
