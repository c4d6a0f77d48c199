//! What is often tried, and does not help.

use serde::Serialize;

use super::{Finding, Rule, Weight};

/// Something that does not help, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NoHelp {
    /// What.
    pub what: &'static str,
    /// Why not.
    pub why: &'static str,
}

const READINESS: NoHelp = NoHelp {
    what: "failing the readiness probe at SIGTERM",
    why: "it crosses the same control plane as the deletion did, later",
};
const MAX_UNAVAILABLE: NoHelp = NoHelp {
    what: "maxUnavailable: 0, or more replicas",
    why: "each pod that leaves runs the same race",
};
const BUDGET: NoHelp = NoHelp {
    what: "a PodDisruptionBudget",
    why: "it guards against evictions; a rollout does not ask it",
};
const PRE_STOP_ALONE: NoHelp = NoHelp {
    what: "a longer preStop alone",
    why: "connections that stay open are cut when the process exits, only later",
};
const STATUS: NoHelp = NoHelp {
    what: "waiting for kubectl rollout status",
    why: "it returns when the new pods are ready, not when the old ones are forgotten",
};

/// What does not help against what was found.
pub(super) fn against(findings: &[Finding]) -> Vec<NoHelp> {
    let is = |rules: &[Rule]| {
        findings.iter().any(|one| one.weight != Weight::Note && rules.contains(&one.rule))
    };
    let mut helps = Vec::new();
    if is(&[Rule::NoPreStop, Rule::ShortPreStop, Rule::PreStopOverGrace, Rule::StaleTail]) {
        helps.extend([READINESS, MAX_UNAVAILABLE, BUDGET]);
    }
    if is(&[Rule::KeepaliveCut, Rule::IgnoresSigterm]) {
        helps.push(PRE_STOP_ALONE);
    }
    if is(&[Rule::StaleTail]) {
        helps.push(STATUS);
    }
    helps
}
