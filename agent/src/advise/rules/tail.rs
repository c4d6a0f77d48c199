//! Failures after the rollout: conntrack entries that still lead to pods that are gone.

use std::{collections::BTreeSet, net::IpAddr};

use super::{super::words::list, of_failed};
use crate::advise::{Case, Figures, Finding, Rule, Weight, count_of};

/// So many addresses of a node are named.
const MOST_ADDRESSES: usize = 6;

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
    if failed > 0 && case.after() > 0 {
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
    let at_once = at_once(case).map_or_else(String::new, |how| format!("; at once {how}"));
    Some(finding.change(format!(
        "it ends by itself nf_conntrack_tcp_timeout_syn_sent (120 s) after the last such SYN{at_once}; \
         a preStop that leaves no SYN unanswered prevents it"
    )))
}

/// The command that ends it, where there is anything to end.
fn at_once(case: &Case) -> Option<String> {
    let of = |(node, figures): (&str, &Figures)| {
        let stale = figures.stale.as_ref().filter(|stale| stale.entries > 0)?;
        let addresses: BTreeSet<IpAddr> =
            stale.endpoints.iter().map(|at| at.endpoint.address).collect();
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let addresses = list(addresses.iter().map(String::as_str), MOST_ADDRESSES);
        (!addresses.is_empty()).then(|| format!("{addresses} on {node}"))
    };
    let places: Vec<String> = case.figures().filter_map(of).collect();
    (!places.is_empty()).then(|| {
        format!(
            "with `conntrack -D -p tcp --state SYN_SENT --reply-src ADDRESS` for {}",
            places.join(", and ")
        )
    })
}
