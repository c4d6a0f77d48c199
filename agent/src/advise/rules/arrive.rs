//! Pods that arrive: sent connections before they listen.

use super::of_failed;
use crate::{
    advise::{Case, Finding, Rule, Weight},
    model::{ContainerFacts, ProbeFacts},
};

pub(super) fn readiness(case: &Case) -> Option<Finding> {
    let early = case.side("new");
    let template = case.new_template();
    let container = template.and_then(|template| template.serving(case.port()));
    let gated = template.is_some_and(|template| template.readiness_gates);
    match container {
        Some(ContainerFacts { name, readiness: None, .. }) if !gated => {
            Some(no_probe(case, name, early))
        }
        _ if early == 0 => None,
        Some(ContainerFacts { readiness: Some(probe), .. }) => Some(too_early(case, probe, early)),
        _ => Some(
            Finding::new(
                Rule::ReadyTooEarly,
                Weight::Fault,
                "new pods are sent connections before they listen",
            )
            .because(format!(
                "{} at pods that had not answered anybody yet",
                of_failed(early, case)
            ))
            .change("a readiness probe of the very port that the Service sends to"),
        ),
    }
}

fn no_probe(case: &Case, container: &str, early: u64) -> Finding {
    let finding = if early > 0 {
        Finding::new(
            Rule::NoReadiness,
            Weight::Fault,
            "no readiness probe: new pods are sent connections before they listen",
        )
        .because(format!("{} at pods that had not answered anybody yet", of_failed(early, case)))
    } else {
        Finding::new(
            Rule::NoReadiness,
            Weight::Risk,
            "no readiness probe: nothing tells when a new pod listens",
        )
    };
    finding
        .because(format!(
            "container {container} has none, so its pod counts as ready as soon as it runs, and the \
             rollout goes on to remove old pods"
        ))
        .change(
            "a readiness probe of the port that the Service sends to; an httpGet of a path that \
             answers only when the application can serve is better than the tcpSocket below",
        )
}

fn too_early(case: &Case, probe: &ProbeFacts, early: u64) -> Finding {
    let finding = Finding::new(
        Rule::ReadyTooEarly,
        Weight::Fault,
        "new pods pass their readiness probe before they listen",
    )
    .because(format!("{} at pods that had not answered anybody yet", of_failed(early, case)));
    let finding = match (probe.port, case.port()) {
        (Some(asked), Some(sent)) if asked != sent => finding.because(format!(
            "the probe ({}) asks port {asked}, connections are sent to port {sent}",
            probe.how
        )),
        _ => finding.because(format!("the probe ({}) succeeds too early", probe.how)),
    };
    finding.change(
        "let the probe ask the very port that the Service sends to, and fail until the application \
         accepts there",
    )
}
