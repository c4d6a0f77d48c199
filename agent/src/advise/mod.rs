//! A rollout's figures and its pod templates → why connections failed, and what to change.
//!
//! Pure: facts in, findings out. Every finding says the figures that it rests on; what nobody
//! measured is said to be unmeasured.
//!
//! # Layout
//! - [`facts`]: what the nodes know of one rollout, put together
//! - [`prestop`]: how long preStop must be, by measurement
//! - [`patch`]: the change of the pod template
//! - `rules`: one file a rule or a small family; each says `Finding`s
//! - `helps`: what is often tried and does not help
//! - `words`: numbers for people

pub mod facts;
mod helps;
pub mod patch;
pub mod prestop;
mod rules;
#[cfg(test)]
mod tests;
pub(crate) mod words;

use serde::Serialize;

pub use facts::{Case, Figures};
pub use helps::NoHelp;
pub use words::{count_of, duration, share_of};

use crate::closed::names;
use patch::Patch;
use prestop::PreStop;

names! {
    /// What was found.
    Rule {
        /// No readiness probe.
        NoReadiness = "no_readiness",
        /// New pods were ready before they listened.
        ReadyTooEarly = "ready_too_early",
        /// No preStop, and the listener closed before the proxies knew.
        NoPreStop = "no_prestop",
        /// preStop is shorter than the proxies take.
        ShortPreStop = "short_prestop",
        /// preStop is not smaller than the grace period.
        PreStopOverGrace = "prestop_over_grace",
        /// The grace period ended before the process did.
        GraceTruncates = "grace_truncates",
        /// The process ignores SIGTERM.
        IgnoresSigterm = "ignores_sigterm",
        /// Established connections were cut at the exit.
        KeepaliveCut = "keepalive_cut",
        /// Stale conntrack entries keep failing after the rollout.
        StaleTail = "stale_tail",
        /// One node's proxy is much slower than the others'.
        SlowNode = "slow_node",
        /// One replica fails all the time.
        BadReplica = "bad_replica",
        /// Other causes than a rollout.
        OtherCause = "other_cause",
        /// The conntrack table is full.
        ConntrackFull = "conntrack_full",
        /// Source ports ran out.
        SnatPorts = "snat_ports",
        /// The strategy takes every replica away.
        OutageByDesign = "outage_by_design",
        /// Endpoints that are not ready are published by design.
        PublishedNotReady = "published_not_ready",
        /// Nothing failed.
        NothingWrong = "nothing_wrong",
        /// Connections failed, and no rule says why.
        Unexplained = "unexplained",
    }
}

names! {
    /// How much a finding matters.
    Weight {
        /// It broke connections.
        Fault = "fault",
        /// It broke none here, and will.
        Risk = "risk",
        /// Worth knowing.
        Note = "note",
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which rule.
    pub rule: Rule,
    /// How much it matters.
    pub weight: Weight,
    /// What is wrong, in one line.
    pub title: String,
    /// The figures that it rests on.
    pub because: Vec<String>,
    /// What to change, where the patch alone does not do it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

impl Finding {
    fn new(rule: Rule, weight: Weight, title: impl Into<String>) -> Self {
        Self { rule, weight, title: title.into(), because: Vec::new(), change: None }
    }

    fn because(mut self, why: impl Into<String>) -> Self {
        self.because.push(why.into());
        self
    }

    fn because_all(mut self, why: impl IntoIterator<Item = String>) -> Self {
        self.because.extend(why);
        self
    }

    fn change(mut self, what: impl Into<String>) -> Self {
        self.change = Some(what.into());
        self
    }
}

/// What on-call should know and do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// How long preStop must be.
    pub prestop: PreStop,
    /// The change of the pod template; `None`: nothing that a patch can mend.
    pub patch: Option<Patch>,
    /// The application must drain its connections at SIGTERM: no patch does that.
    pub needs_drain: bool,
    /// What does not help against what was found.
    pub does_not_help: Vec<NoHelp>,
    /// What nobody knows, and why.
    pub unknown: Vec<String>,
}

/// Advises on one rollout.
pub fn advise(case: &Case) -> Advice {
    let prestop = prestop::measure(case);
    let mut findings = rules::all(case, &prestop);
    findings.sort_by_key(|finding| finding.weight);
    let has = |rule: Rule| findings.iter().any(|finding| finding.rule == rule);
    Advice {
        patch: patch::of(case, &prestop, &findings),
        needs_drain: has(Rule::KeepaliveCut),
        does_not_help: helps::against(&findings),
        unknown: unknown(case, &prestop),
        prestop,
        findings,
    }
}

/// What is missing from the picture: said, never shown as zero.
fn unknown(case: &Case, prestop: &PreStop) -> Vec<String> {
    let mut unknown = Vec::new();
    for missing in &case.missing {
        let of = match &missing.node {
            Some(node) => format!("no answer from the agent on {node} ({})", missing.agent),
            None => format!("no answer from {}", missing.agent),
        };
        unknown.push(format!("{of}: {}; what its node saw is in no figure here", missing.why));
    }
    for (node, figures) in case.figures() {
        if figures.covered.partial {
            let why = match figures.covered.gaps {
                0 => "its agent may have come after the rollout began".to_owned(),
                gaps => format!("{} in its agent's watch", count_of(gaps, "gap")),
            };
            unknown.push(format!("{node}: {why}; its counts are lower bounds"));
        }
    }
    for part in case.nodes.iter().filter(|part| part.lost > 0) {
        unknown.push(format!(
            "{}: its agent lost {} since it started; counts of that time are lower bounds",
            part.node,
            count_of(part.lost, "event")
        ));
    }
    if !prestop.unmeasured.is_empty() && prestop.matters {
        let nodes = words::list(prestop.unmeasured.iter().map(String::as_str), 8);
        unknown.push(format!(
            "convergence was not measured on {nodes}: no new connection to a leaving pod there"
        ));
    }
    if case.from.is_some() && case.old_template().is_none() {
        unknown.push(format!(
            "the pod template of revision {} is not known: what its pods do at SIGTERM is told from \
             the wire alone",
            case.from.as_ref().map_or("?", |from| from.name())
        ));
    }
    unknown
}
