//! The node's conntrack table: what drops connections at random, whatever rolls out.

use crate::advise::{Case, Finding, Rule, Weight, count_of};

/// A table as full as this is as good as full, in percent.
const FULL: u64 = 90;

pub(super) fn table(case: &Case) -> Vec<Finding> {
    let mut found = Vec::new();
    for part in &case.nodes {
        let Some(table) = &part.conntrack else { continue };
        let node = &part.node;
        let is_full = table.limit > 0 && table.entries * 100 >= table.limit * FULL;
        if is_full || table.drops > 0 {
            let weight = if is_full { Weight::Fault } else { Weight::Risk };
            let title =
                format!("the conntrack table of {node} is full, or was: it drops at random");
            let mut finding = Finding::new(Rule::ConntrackFull, weight, title);
            if table.limit > 0 {
                finding = finding.because(format!("{} of {} entries", table.entries, table.limit));
            }
            if table.drops > 0 {
                let drops = count_of(table.drops, "packet");
                finding = finding
                    .because(format!("{drops} dropped for want of room since the agent started"));
            }
            found.push(
                finding.change(
                    "raise nf_conntrack_max on that node (kube-proxy: conntrack.maxPerCore)",
                ),
            );
        }
        if table.insert_failed > 0 {
            let finding = Finding::new(
                Rule::SnatPorts,
                Weight::Risk,
                format!("connections through {node} lose the race for a source port"),
            );
            found.push(
                finding
                    .because(format!(
                        "{} could not be inserted since the agent started",
                        count_of(table.insert_failed, "conntrack entry")
                            .replace("entrys", "entries")
                    ))
                    .change(
                        "more source addresses, fewer short connections to one destination (reuse \
                         them), or masquerade with --random-fully",
                    ),
            );
        }
    }
    found
}
