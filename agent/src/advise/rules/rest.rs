//! When nothing failed, and when nothing explains what failed.

use super::super::words::grouped;
use crate::advise::{Case, Finding, PreStop, Rule, Weight, count_of, duration};

pub(super) fn rest(case: &Case, prestop: &PreStop, found: &[Finding]) -> Option<Finding> {
    let is_fault = found.iter().any(|finding| finding.weight == Weight::Fault);
    if case.failed() > 0 {
        return (!is_fault).then(|| {
            Finding::new(
                Rule::Unexplained,
                Weight::Fault,
                "connections failed, and no rule says why",
            )
            .because(count_of(case.failed(), "failure"))
            .change("the evidence of each is in rollrace watch, and in /api/v1/failures")
        });
    }
    if is_fault {
        return None;
    }
    let attempts = case.attempts();
    if attempts == 0 {
        return Some(
            Finding::new(
                Rule::NothingWrong,
                Weight::Note,
                "no connection to its Services was seen",
            )
            .because("so nothing failed, and nothing was proven either"),
        );
    }
    let title = if case.is_lower_bound() {
        "nothing failed, as far as the agents were there to see"
    } else {
        "nothing failed"
    };
    let finding = Finding::new(Rule::NothingWrong, Weight::Note, title)
        .because(format!("0 of {} new connections", grouped(attempts)));
    let container = case.old_template().and_then(|template| template.serving(case.port()));
    let slept = container.and_then(|container| container.pre_stop.as_ref()?.seconds);
    Some(match (slept, prestop.measured_seconds) {
        (Some(slept), Some(measured)) => finding.because(format!(
            "preStop slept {slept} s, and new connections were sent to leaving pods until {} after \
             their deletion ({} counted)",
            duration(measured),
            grouped(prestop.samples)
        )),
        _ => finding,
    })
}
