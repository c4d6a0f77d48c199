//! Failures after the rollout: conntrack entries that still lead to pods that are gone.

use super::of_failed;
use crate::advise::{Case, Finding, Rule, Weight, count_of};

pub(super) fn stale(case: &Case) -> Option<Finding> {
    let failed = case.count("stale_nat") + case.count("misdelivered");
    let left = case.stale().filter(|stale| stale.entries > 0);
    if failed == 0 && left.is_none() {
        return None;
    }
    let mut finding = Finding::new(
        Rule::StaleTail,
        Weight::Fault,
        "new connections follow the NAT of earlier unanswered ones to pods that are gone",
    );
    if failed > 0 {
        finding = finding
            .because(format!("{} followed a stale conntrack entry", of_failed(failed, case)));
    }
    if case.after() > 0 {
        finding = finding.because(format!(
            "{} began after the rollout was complete",
            of_failed(case.after(), case)
        ));
    }
    if let Some(stale) = left {
        let entries = format!(
            "{} of that kind now",
            count_of(stale.entries, "entry").replace("entrys", "entries")
        );
        finding = finding.because(match stale.expires {
            Some(at) => format!("{entries}, the last expires at {at:.0}"),
            None => format!("{entries}, kept alive by clients: no end can be told"),
        });
    }
    Some(finding.change(
        "it ends by itself nf_conntrack_tcp_timeout_syn_sent (120 s) after the last such SYN; at once \
         with `conntrack -D -p tcp --state SYN_SENT --reply-src POD-IP` on the node; a preStop that \
         leaves no SYN unanswered prevents it",
    ))
}
