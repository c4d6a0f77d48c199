//! What is an outage, or a failure, by design.

use super::super::words::list;
use crate::advise::{Case, Finding, Rule, Weight, count_of};

pub(super) fn outage(case: &Case) -> Option<Finding> {
    let shape = case.workload.as_ref().filter(|shape| shape.outage_by_design)?;
    let weight = if case.failed() > 0 { Weight::Fault } else { Weight::Risk };
    let strategy = shape.strategy.clone().unwrap_or_default();
    let how = if &*strategy.kind == "Recreate" {
        "strategy Recreate removes every pod before it makes a new one".to_owned()
    } else {
        let unavailable = strategy.max_unavailable.unwrap_or(shape.replicas);
        let surge = strategy.max_surge.unwrap_or(0);
        format!(
            "{}, maxSurge {surge}, maxUnavailable {unavailable}: all of them may be gone at once",
            count_of(u64::try_from(shape.replicas).unwrap_or(0), "replica")
        )
    };
    let change = match &*case.kind {
        "Deployment" => {
            "a rolling update with maxSurge 1 and maxUnavailable 0, if two versions may run side by \
             side (no volume that only one can mount)"
        }
        _ => "more than one replica",
    };
    Some(
        Finding::new(
            Rule::OutageByDesign,
            weight,
            "the strategy takes every replica away: an outage by design",
        )
        .because(how)
        .change(change),
    )
}

pub(super) fn published(case: &Case) -> Option<Finding> {
    let published = case.services.iter().filter(|service| service.publish_not_ready);
    let names: Vec<&str> = published.map(|service| &*service.name).collect();
    if names.is_empty() {
        return None;
    }
    let finding = Finding::new(
        Rule::PublishedNotReady,
        Weight::Note,
        "its pods are published whether they are ready or not",
    );
    Some(
        finding
            .because(format!("publishNotReadyAddresses is set on Service {}", list(names, 3)))
            .because("so no convergence is measured through it")
            .change("send clients through another Service, without publishNotReadyAddresses"),
    )
}
