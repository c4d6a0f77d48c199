//! One rollout out of what each node knows of it.
//!
//! Nodes number a workload's rollouts as they observe them, so ordinals differ: two nodes speak of the
//! same rollout if workload and target template are the same and they saw it at the same time.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{
    answers::Failure,
    gather::{Answered, Gathered},
    workload::Wanted,
};
use crate::advise::{
    Case, Figures,
    facts::{Missing, NodePart, NotOfRollouts},
};

/// How much later than another a node may observe a rollout's begin: watches lag, and a node follows a
/// workload only when its own clients dial it.
const APART: SignedDuration = SignedDuration::from_secs(90);

/// Failures of other causes belong to the picture if they came so shortly before or after.
const ABOUT: SignedDuration = SignedDuration::from_mins(10);

/// Which rollouts are of interest.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only of this namespace.
    pub namespace: Option<String>,
    /// Only of this workload.
    pub workload: Option<Wanted>,
}

impl Filter {
    /// Whether it is of interest.
    pub fn takes(&self, namespace: &str, kind: &str, name: &str) -> bool {
        self.namespace.as_ref().is_none_or(|wanted| wanted == namespace)
            && self.workload.as_ref().is_none_or(|wanted| wanted.is(kind, name))
    }
}

/// All rollouts of interest, newest first.
pub fn rollouts(gathered: &Gathered, filter: &Filter) -> Vec<Case> {
    let mut seen: Vec<(&Answered, &Figures)> = Vec::new();
    for answered in &gathered.answered {
        let wanted = answered.rollouts.rollouts.iter();
        let wanted = wanted.filter(|one| filter.takes(&one.namespace, &one.kind, &one.name));
        seen.extend(wanted.map(|figures| (answered, figures)));
    }
    seen.sort_by_key(|(_, figures)| figures.started);
    let mut groups: Vec<Vec<(&Answered, &Figures)>> = Vec::new();
    let mut of_target: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (answered, figures) in seen {
        let known = of_target.entry((&figures.uid, &figures.to.hash)).or_default();
        let same = known.iter().rev().copied().find(|at| {
            let group: &Vec<(&Answered, &Figures)> = &groups[*at];
            let has_node = group.iter().any(|(other, _)| other.status.node == answered.status.node);
            !has_node && group.iter().any(|(_, other)| is_same(other, figures))
        });
        if let Some(at) = same {
            groups[at].push((answered, figures));
        } else {
            known.push(groups.len());
            groups.push(vec![(answered, figures)]);
        }
    }
    let mut cases: Vec<Case> = groups.iter().map(|group| case(gathered, group)).collect();
    cases.sort_by_key(|case| std::cmp::Reverse(case.started));
    cases
}

/// The later one began while the earlier was under way, or just after.
fn is_same(earlier: &Figures, later: &Figures) -> bool {
    let apart = later.started.duration_since(earlier.started);
    apart <= APART || end(earlier).is_none_or(|end| later.started <= end)
}

/// When a node was done with it; `None`: it is under way.
fn end(figures: &Figures) -> Option<Timestamp> {
    figures.completed.max(figures.last_old_pod_gone)
}

fn case(gathered: &Gathered, group: &[(&Answered, &Figures)]) -> Case {
    let first = group[0].1;
    let all = || group.iter().map(|(_, figures)| *figures);
    // What only some know (a template, the workload) is taken from whoever knows it.
    let revision = |of: &dyn Fn(&Figures) -> Option<&crate::advise::facts::Revision>| {
        let known = || group.iter().filter_map(|(_, figures)| of(figures));
        let best = known().max_by_key(|one| (one.template.is_some(), one.revision.is_some()));
        best.cloned()
    };
    let services = all().flat_map(|figures| &figures.services);
    let services: BTreeMap<&str, _> = services.map(|service| (&*service.name, service)).collect();
    let figures: BTreeMap<&str, &Figures> =
        group.iter().map(|(answered, figures)| (&*answered.status.node, *figures)).collect();
    let mut case = Case {
        namespace: first.namespace.clone(),
        kind: first.kind.clone(),
        name: first.name.clone(),
        from: revision(&|figures| figures.from.as_ref()),
        to: revision(&|figures| Some(&figures.to)).unwrap_or_default(),
        started: all().map(|figures| figures.started).min().unwrap_or_default(),
        completed: all().filter_map(|figures| figures.completed).min(),
        superseded: all().any(|figures| figures.superseded),
        last_old_pod_gone: all().filter_map(|figures| figures.last_old_pod_gone).min(),
        workload: all().find_map(|figures| figures.workload.clone()),
        services: services.into_values().cloned().collect(),
        kubernetes: gathered.answered.iter().find_map(|one| one.status.kubernetes.clone()),
        missing: gathered.missing.clone(),
        nodes: Vec::new(),
        others: Vec::new(),
    };
    case.nodes = gathered.answered.iter().map(|answered| part(answered, &figures)).collect();
    case.missing.extend(uncovered(&case, gathered));
    case
}

fn part(answered: &Answered, figures: &BTreeMap<&str, &Figures>) -> NodePart {
    let status = &answered.status;
    NodePart {
        node: status.node.clone(),
        figures: figures.get(&*status.node).map(|figures| (*figures).clone()),
        lost: status.lost(),
        conntrack: status.conntrack_table(),
    }
}

/// Nodes that ran the workload's pods, and on which there is no agent at all. A recording is of one
/// node, and says nothing about others.
fn uncovered(case: &Case, gathered: &Gathered) -> Vec<Missing> {
    if gathered.namespace.is_none() {
        return Vec::new();
    }
    let covered: BTreeSet<&str> = gathered
        .answered
        .iter()
        .map(|answered| &*answered.status.node)
        .chain(gathered.missing.iter().map(Missing::covers))
        .collect();
    let pods = case.figures().flat_map(|(_, figures)| &figures.convergence);
    let nodes: BTreeSet<&str> = pods.filter_map(|pod| pod.node.as_deref()).collect();
    let uncovered = nodes.difference(&covered);
    let missing = uncovered.map(|node| Missing {
        agent: "no agent".to_owned(),
        node: Some((*node).to_owned()),
        why: "no agent runs there".to_owned(),
    });
    missing.collect()
}

/// Adds what failed of the workload, about the time of the rollout, for other causes.
pub fn add_others(case: &mut Case, gathered: &Gathered) {
    let from = case.started - ABOUT;
    let until = case.completed.max(case.last_old_pod_gone).map(|end| end + ABOUT);
    let failures = gathered.answered.iter().flat_map(|answered| &answered.failures.failures);
    let about = failures.filter(|failure| {
        let is_its = failure.workload.as_ref().is_some_and(|workload| {
            failure.namespace == case.namespace
                && workload.kind == case.kind
                && workload.name == case.name
        });
        let at = failure.first_syn;
        is_its && failure.cause != "rollout" && at >= from && until.is_none_or(|until| at <= until)
    });
    case.others = by_cause(about);
}

/// Failures that no rollout caused, by their cause.
pub fn by_cause<'a>(failures: impl Iterator<Item = &'a Failure>) -> Vec<NotOfRollouts> {
    let mut causes: BTreeMap<&str, NotOfRollouts> = BTreeMap::new();
    for failure in failures {
        let known = causes.entry(&failure.cause).or_default();
        known.cause.clone_from(&failure.cause);
        known.count += 1;
        if !failure.pod.is_empty() {
            *known.pods.entry(failure.pod.clone()).or_default() += 1;
        }
    }
    causes.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oncall::answers::{Rollouts, Status};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn figures(ordinal: u32, target: &str, started: i64, completed: i64, refused: u64) -> Figures {
        let mut figures = Figures {
            id: format!("u/{target}/{ordinal}"),
            namespace: "shop".into(),
            kind: "Deployment".into(),
            name: "api".into(),
            uid: "u".into(),
            started: at(started),
            completed: Some(at(completed)),
            failures: [("refused".to_owned(), refused)].into(),
            ..Figures::default()
        };
        figures.to.hash = target.into();
        figures
    }

    fn node(name: &str, rollouts: Vec<Figures>) -> Answered {
        Answered {
            status: Status { node: name.into(), ..Status::default() },
            rollouts: Rollouts { node: name.into(), rollouts },
            ..Answered::default()
        }
    }

    #[test]
    fn nodes_that_number_rollouts_differently_are_joined_by_time() {
        // n2 came later: what is the second time of hash b for n1 is the first for it.
        let gathered = Gathered {
            answered: vec![
                node(
                    "n1",
                    vec![
                        figures(2, "b", 1_000, 1_010, 5),
                        figures(1, "a", 500, 510, 0),
                        figures(1, "b", 0, 10, 3),
                    ],
                ),
                node("n2", vec![figures(1, "b", 1_002, 1_011, 7)]),
            ],
            ..Gathered::default()
        };
        let cases = rollouts(&gathered, &Filter::default());
        let failed: Vec<(i64, u64, usize)> = cases
            .iter()
            .map(|case| {
                (case.started.as_second() - 1_800_000_000, case.failed(), case.figures().count())
            })
            .collect();
        assert_eq!(failed, [(1_000, 12, 2), (500, 0, 1), (0, 3, 1)]);
    }

    #[test]
    fn a_node_that_follows_late_in_a_long_rollout_is_joined() {
        let gathered = Gathered {
            answered: vec![
                node("n1", vec![figures(1, "b", 0, 900, 1)]),
                node("n2", vec![figures(1, "b", 600, 901, 2)]),
            ],
            ..Gathered::default()
        };
        assert_eq!(rollouts(&gathered, &Filter::default()).len(), 1);
    }

    #[test]
    fn a_node_that_ran_its_pods_without_an_agent_is_said_to_be_uncovered() {
        let mut of_n1 = figures(1, "b", 0, 10, 0);
        of_n1
            .convergence
            .push(crate::advise::facts::Leaving { node: Some("n9".into()), ..Default::default() });
        let gathered = Gathered {
            answered: vec![node("n1", vec![of_n1])],
            namespace: Some("shop".into()),
            ..Gathered::default()
        };
        let cases = rollouts(&gathered, &Filter::default());
        assert_eq!(cases[0].missing.len(), 1);
        assert_eq!(cases[0].missing[0].covers(), "n9");
    }
}
