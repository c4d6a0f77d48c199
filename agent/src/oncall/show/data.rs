//! Reports as data: what `-o json` and `-o yaml` print.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    advise::{
        Advice, Case,
        facts::{Missing, Stale},
    },
    oncall::Gathered,
};

/// One rollout, all nodes together.
#[derive(Clone, Debug, Serialize)]
pub struct RolloutData<'a> {
    /// Namespace.
    pub namespace: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Name.
    pub name: &'a str,
    /// From.
    pub from: Option<RevisionData<'a>>,
    /// To.
    pub to: RevisionData<'a>,
    /// First observed.
    pub started: Timestamp,
    /// When `kubectl rollout status` would have returned.
    pub completed: Option<Timestamp>,
    /// A later one began before it was complete.
    pub superseded: bool,
    /// Last old pod gone.
    pub last_old_pod_gone: Option<Timestamp>,
    /// Failed connections.
    pub failed: u64,
    /// Of so many attempts.
    pub attempts: u64,
    /// By class.
    pub failures: BTreeMap<String, u64>,
    /// Begun after completion.
    pub after: u64,
    /// By client workload.
    pub clients: Vec<Count<'a>>,
    /// By node; null: its agent did not observe the rollout.
    pub nodes: BTreeMap<&'a str, Option<u64>>,
    /// Stale conntrack entries; null: no agent looks for them.
    pub stale: Option<Stale>,
    /// The counts are lower bounds.
    pub lower_bound: bool,
}

/// One revision.
#[derive(Clone, Debug, Serialize)]
pub struct RevisionData<'a> {
    /// Number.
    pub revision: Option<&'a str>,
    /// Template hash or controller revision.
    pub hash: &'a str,
    /// Images.
    pub images: &'a [String],
}

/// How many of what.
#[derive(Clone, Debug, Serialize)]
pub struct Count<'a> {
    /// What.
    pub name: std::borrow::Cow<'a, str>,
    /// How many.
    pub count: u64,
}

impl<'a> From<&'a Case> for RolloutData<'a> {
    fn from(case: &'a Case) -> Self {
        let revision = |of: &'a crate::advise::facts::Revision| RevisionData {
            revision: of.revision.as_deref(),
            hash: &of.hash,
            images: &of.images,
        };
        let failed = |part: &'a crate::advise::facts::NodePart| {
            part.figures.as_ref().map(crate::advise::Figures::failed)
        };
        Self {
            namespace: &case.namespace,
            kind: &case.kind,
            name: &case.name,
            from: case.from.as_ref().map(revision),
            to: revision(&case.to),
            started: case.started,
            completed: case.completed,
            superseded: case.superseded,
            last_old_pod_gone: case.last_old_pod_gone,
            failed: case.failed(),
            attempts: case.attempts(),
            failures: case.failures(),
            after: case.after(),
            clients: case
                .clients()
                .into_iter()
                .map(|(name, count)| Count { name: name.into(), count })
                .collect(),
            nodes: case.nodes.iter().map(|part| (&*part.node, failed(part))).collect(),
            stale: case.stale(),
            lower_bound: case.is_lower_bound(),
        }
    }
}

/// `rollrace report -o json`.
#[derive(Clone, Debug, Serialize)]
pub struct ReportData<'a> {
    /// Rollouts, newest first.
    pub rollouts: Vec<RolloutData<'a>>,
    /// Nodes whose agents answered.
    pub nodes: Vec<&'a str>,
    /// Agents that did not.
    pub missing: &'a [Missing],
    /// What else should be known.
    pub notes: &'a [String],
}

impl<'a> ReportData<'a> {
    /// Of these rollouts.
    pub fn new(gathered: &'a Gathered, cases: &'a [Case]) -> Self {
        Self {
            rollouts: cases.iter().map(Into::into).collect(),
            nodes: gathered.answered.iter().map(|answered| &*answered.status.node).collect(),
            missing: &gathered.missing,
            notes: &gathered.notes,
        }
    }
}

/// `rollrace explain -o json`.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainData<'a> {
    /// The rollout.
    pub rollout: RolloutData<'a>,
    /// What was found, and what to change.
    pub advice: &'a Advice,
    /// The patch as YAML.
    pub patch: Option<String>,
    /// Everything that it rests on, node by node.
    pub facts: &'a Case,
    /// What else should be known.
    pub notes: &'a [String],
}
