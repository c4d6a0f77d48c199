//! The rules. One file a family; each looks at the case by itself.

mod arrive;
mod conntrack;
mod design;
mod exit;
mod leave;
mod nodes;
mod others;
mod rest;
mod tail;

use super::{Case, Finding, PreStop};

/// Everything that the rules find.
pub(super) fn all(case: &Case, prestop: &PreStop) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(design::outage(case));
    found.extend(arrive::readiness(case));
    found.extend(leave::prestop(case, prestop));
    found.extend(leave::over_grace(case));
    found.extend(exit::killed(case));
    found.extend(exit::cut(case));
    found.extend(tail::stale(case));
    found.extend(nodes::slow(case));
    found.extend(others::others(case));
    found.extend(conntrack::table(case));
    found.extend(design::published(case));
    let rest = rest::rest(case, prestop, &found);
    found.extend(rest);
    found
}

/// Failures to open a connection to a pod that left.
fn leaving_failed(case: &Case) -> u64 {
    let classes = ["refused", "timeout", "unreachable", "stale_nat", "misdelivered"];
    let opened: u64 = classes.iter().map(|class| case.count(class)).sum();
    opened.saturating_sub(case.side("new"))
}

/// `57 of 106 failures`.
fn of_failed(count: u64, case: &Case) -> String {
    format!("{} of {}", super::words::grouped(count), super::count_of(case.failed(), "failure"))
}
