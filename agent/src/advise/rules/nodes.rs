//! One node whose proxy is slower than the others'.

use crate::advise::{Case, Finding, Rule, Weight, count_of, duration};

/// The slow one takes so many times the median of the others, and a second more.
const TIMES: f64 = 2.0;

pub(super) fn slow(case: &Case) -> Option<Finding> {
    let mut nodes: Vec<(&str, f64, u64)> = case
        .figures()
        .filter_map(|(node, figures)| {
            Some((node, figures.convergence_seconds()?, figures.failed()))
        })
        .collect();
    nodes.sort_by(|one, other| one.1.total_cmp(&other.1));
    let (node, slowest, failed) = nodes.pop()?;
    let median = nodes.get(nodes.len() / 2)?.1;
    if slowest < TIMES * median + 1.0 {
        return None;
    }
    let weight = if failed > 0 { Weight::Fault } else { Weight::Risk };
    let others = count_of(u64::try_from(nodes.len()).unwrap_or(u64::MAX), "other node");
    let finding = Finding::new(
        Rule::SlowNode,
        weight,
        format!("the proxy on {node} is much slower than the others"),
    )
    .because(format!(
        "it sent new connections to leaving pods for {}; the median of {others} is {}",
        duration(slowest),
        duration(median)
    ))
    .because(format!("{} on {node}", count_of(failed, "failure")));
    Some(finding.change(format!(
        "look at the proxy on {node}: its log, its CPU limit, how long it takes to write its rules; \
         until then preStop has to cover it"
    )))
}
