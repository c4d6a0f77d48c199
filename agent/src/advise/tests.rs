//! Each rule with a case that it finds something in, and one that it must not.

use super::{
    facts::{
        Address, ConntrackTable, Leaving, Missing, NodePart, NotOfRollouts, Revision, ServiceShape,
        Shape, Stale, StaleAt,
    },
    *,
};
use crate::model::{ContainerFacts, PreStopFacts, ProbeFacts, StrategyFacts, TemplateFacts};

/// A template with a readiness probe on the served port.
fn template(prestop: Option<i64>) -> TemplateFacts {
    TemplateFacts {
        grace_seconds: 30,
        containers: vec![ContainerFacts {
            name: "app".into(),
            ports: vec![8080],
            readiness: Some(ProbeFacts {
                how: "httpGet".into(),
                port: Some(8080),
                period_seconds: 1,
                failure_threshold: 3,
            }),
            pre_stop: prestop
                .map(|seconds| PreStopFacts { how: "sleep".into(), seconds: Some(seconds) }),
            ..ContainerFacts::default()
        }],
        ..TemplateFacts::default()
    }
}

fn revision(number: u32, template: TemplateFacts) -> Revision {
    Revision {
        revision: Some(number.to_string()),
        hash: format!("hash{number}"),
        images: vec![format!("api:{number}")],
        template: Some(template),
    }
}

/// A pod that left: its convergence and listener gap.
fn left(pod: &str, seconds: Option<f64>, gap: Option<f64>, exit: i32) -> Leaving {
    Leaving {
        endpoint: Some(facts::Address { address: [10, 244, 1, 7].into(), port: 8080 }),
        pod: pod.to_owned(),
        seconds,
        fresh_syns_after: if seconds.is_some() { 40 } else { 0 },
        deleted: Some("2026-11-30T05:00:05Z".parse().expect("a time")),
        listener_gap_seconds: gap,
        gone_seconds: Some(gap.unwrap_or(30.0) + 0.4),
        exit_codes: [("app".to_owned(), exit)].into(),
        ..Leaving::default()
    }
}

fn node(name: &str, failures: &[(&str, u64)], left: Vec<Leaving>) -> NodePart {
    let total: u64 = failures.iter().map(|(_, count)| count).sum();
    NodePart {
        node: name.to_owned(),
        figures: Some(Figures {
            failures: failures.iter().map(|(class, n)| ((*class).to_owned(), *n)).collect(),
            sides: [("old".to_owned(), total)].into(),
            attempts: 5_000,
            convergence: left,
            ..Figures::default()
        }),
        ..NodePart::default()
    }
}

/// A rollout whose old and new pods have these preStops.
fn case(old: Option<i64>, new: Option<i64>, nodes: Vec<NodePart>) -> Case {
    Case {
        namespace: "shop".into(),
        kind: "Deployment".into(),
        name: "api".into(),
        from: Some(revision(1, template(old))),
        to: revision(2, template(new)),
        started: "2026-11-30T05:00:00Z".parse().expect("a time"),
        completed: Some("2026-11-30T05:00:09Z".parse().expect("a time")),
        workload: Some(Shape {
            replicas: 3,
            strategy: Some(StrategyFacts {
                kind: "RollingUpdate".into(),
                max_surge: Some(1),
                max_unavailable: Some(0),
            }),
            outage_by_design: false,
        }),
        nodes,
        kubernetes: Some("v1.33.1".into()),
        ..Case::default()
    }
}

/// The reference: exits at SIGTERM, no preStop.
fn broken() -> Case {
    let pods = |seconds| vec![left("api-1-a", Some(seconds), Some(0.02), 0)];
    case(
        None,
        None,
        vec![
            node("n1", &[("refused", 34), ("timeout", 20)], pods(1.9)),
            node("n2", &[("refused", 30)], pods(1.4)),
        ],
    )
}

/// The same with a preStop that covers it.
fn healthy() -> Case {
    case(
        Some(5),
        Some(5),
        vec![
            node("n1", &[], vec![left("api-1-a", Some(1.9), None, 0)]),
            node("n2", &[], vec![left("api-1-a", Some(1.4), None, 0)]),
        ],
    )
}

fn weight(case: &Case, rule: Rule) -> Option<Weight> {
    let found = advise(case).findings;
    found.iter().find(|finding| finding.rule == rule).map(|finding| finding.weight)
}

fn patched(advice: &Advice) -> String {
    let patch = advice.patch.as_ref().expect("a patch");
    serde_json::to_string(&patch.value).expect("JSON")
}

#[test]
fn a_healthy_rollout_has_nothing_wrong_and_nothing_to_patch() {
    let advice = advise(&healthy());
    let rules: Vec<Rule> = advice.findings.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, [Rule::NothingWrong]);
    assert_eq!(advice.patch, None);
    assert!(advice.does_not_help.is_empty() && advice.unknown.is_empty());
}

#[test]
fn without_a_pre_stop_one_is_advised_by_the_slowest_node() {
    let advice = advise(&broken());
    assert_eq!(advice.findings[0].rule, Rule::NoPreStop);
    assert_eq!(advice.prestop.measured_seconds, Some(1.9));
    assert_eq!(advice.prestop.node.as_deref(), Some("n1"));
    // 1.9 s measured and 2 s of margin, rounded up.
    assert_eq!(
        patched(&advice),
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"app","lifecycle":{"preStop":{"sleep":{"seconds":4}}}}]}}}}"#
    );
    assert!(advice.does_not_help.iter().any(|help| help.what.contains("PodDisruptionBudget")));
    assert_eq!(weight(&healthy(), Rule::NoPreStop), None);
}

#[test]
fn before_kubernetes_1_30_the_pre_stop_is_a_command_that_needs_a_binary() {
    let mut old = broken();
    old.kubernetes = Some("v1.29.4".into());
    let advice = advise(&old);
    assert!(patched(&advice).contains(r#"{"exec":{"command":["sleep","4"]}}"#));
    assert!(advice.patch.expect("a patch").notes.iter().any(|note| note.contains("sleep binary")));
}

#[test]
fn a_pre_stop_that_is_mended_already_is_not_patched_again() {
    let mut mended = broken();
    mended.to = revision(2, template(Some(10)));
    let advice = advise(&mended);
    assert_eq!(advice.findings[0].rule, Rule::NoPreStop);
    assert_eq!(advice.patch, None);
}

#[test]
fn few_samples_widen_the_margin_and_none_are_said_to_be_a_guess() {
    let mut few = broken();
    few.nodes.truncate(1);
    let figures = few.nodes[0].figures.as_mut().expect("figures");
    figures.failures = [("refused".to_owned(), 3)].into();
    figures.convergence[0].fresh_syns_after = 3;
    assert_eq!(advise(&few).prestop.seconds, Some(7));

    let cut = vec![left("api-1-a", None, None, 0)];
    let unmeasured = case(None, None, vec![node("n1", &[("cut", 9)], cut)]);
    let advice = advise(&unmeasured);
    assert_eq!(advice.prestop.seconds, None);
    assert!(advice.unknown.iter().any(|what| what.contains("not measured on n1")));
    assert!(patched(&advice).contains(r#""seconds":15"#));
    assert!(advice.patch.expect("a patch").notes[0].contains("guess"));
}

#[test]
fn a_short_pre_stop_is_told_from_one_that_suffices() {
    let short = |slept| {
        let pods = vec![left("api-1-a", Some(3.5), Some(f64::from(2)), 0)];
        case(Some(slept), Some(slept), vec![node("n1", &[("refused", 5)], pods)])
    };
    assert_eq!(weight(&short(2), Rule::ShortPreStop), Some(Weight::Fault));
    assert_eq!(weight(&short(5), Rule::ShortPreStop), None);
}

#[test]
fn a_pre_stop_that_does_more_than_sleep_is_never_thrown_away() {
    let mut custom = broken();
    for revision in [custom.from.as_mut().expect("from"), &mut custom.to] {
        let template = revision.template.as_mut().expect("a template");
        template.containers[0].pre_stop = Some(PreStopFacts { how: "exec".into(), seconds: None });
    }
    let advice = advise(&custom);
    assert_eq!(advice.findings[0].rule, Rule::ShortPreStop);
    assert_eq!(advice.patch, None);
}

#[test]
fn another_handler_that_only_sleeps_gives_way_to_the_sleep_action() {
    let mut shell = broken();
    for revision in [shell.from.as_mut().expect("from"), &mut shell.to] {
        let template = revision.template.as_mut().expect("a template");
        template.containers[0].pre_stop =
            Some(PreStopFacts { how: "exec".into(), seconds: Some(1) });
    }
    assert!(patched(&advise(&shell)).contains(r#"{"exec":null,"sleep":{"seconds":4}}"#));
}

#[test]
fn a_pre_stop_as_long_as_the_grace_period_raises_it() {
    let mut long = healthy();
    long.to = revision(2, template(Some(30)));
    let advice = advise(&long);
    assert_eq!(weight(&long, Rule::PreStopOverGrace), Some(Weight::Risk));
    let patch = advice.patch.expect("a patch");
    assert!(patch.grace_seconds > Some(30), "{patch:?}");
    assert_eq!(patch.prestop_seconds, None);
    assert_eq!(weight(&healthy(), Rule::PreStopOverGrace), None);
}

#[test]
fn new_pods_that_fail_need_a_readiness_probe_or_another() {
    let arriving = |probed: bool| {
        let mut case = healthy();
        let figures = case.nodes[0].figures.as_mut().expect("figures");
        figures.failures = [("refused".to_owned(), 12)].into();
        figures.sides = [("new".to_owned(), 12)].into();
        let template = case.to.template.as_mut().expect("a template");
        if !probed {
            template.containers[0].readiness = None;
        }
        case
    };
    let bare = advise(&arriving(false));
    assert_eq!(bare.findings[0].rule, Rule::NoReadiness);
    assert!(
        patched(&bare)
            .contains(r#""readinessProbe":{"periodSeconds":2,"tcpSocket":{"port":8080}}"#)
    );
    assert_eq!(weight(&arriving(true), Rule::ReadyTooEarly), Some(Weight::Fault));
    assert_eq!(weight(&arriving(true), Rule::NoReadiness), None);
    assert_eq!(weight(&healthy(), Rule::ReadyTooEarly), None);
    assert_eq!(weight(&arriving(true), Rule::NoPreStop), None, "no leaving pod failed");
}

#[test]
fn a_kill_at_the_end_of_the_grace_period_is_a_short_drain_or_a_deaf_process() {
    let killed = |gap, converged| {
        let mut pod = left("api-1-a", converged, gap, 137);
        pod.gone_seconds = Some(30.4);
        case(Some(5), Some(5), vec![node("n1", &[("cut", 4)], vec![pod])])
    };
    let draining = killed(Some(5.1), Some(1.5));
    assert_eq!(weight(&draining, Rule::GraceTruncates), Some(Weight::Fault));
    assert_eq!(weight(&draining, Rule::IgnoresSigterm), None);
    assert!(advise(&draining).patch.expect("a patch").grace_seconds > Some(30));

    let deaf = killed(None, Some(29.0));
    assert_eq!(weight(&deaf, Rule::IgnoresSigterm), Some(Weight::Fault));
    assert_eq!(weight(&deaf, Rule::GraceTruncates), None);

    assert_eq!(weight(&healthy(), Rule::IgnoresSigterm), None);
}

#[test]
fn established_connections_that_are_cut_need_a_drain_and_a_pre_stop() {
    let pods = vec![left("api-1-a", Some(1.0), Some(0.05), 0)];
    let advice = advise(&case(None, None, vec![node("n1", &[("cut", 13), ("refused", 3)], pods)]));
    assert!(advice.needs_drain);
    assert!(advice.findings.iter().any(|finding| finding.rule == Rule::KeepaliveCut));
    assert!(advice.patch.is_some());
    assert!(!advise(&broken()).needs_drain);
}

#[test]
fn a_stale_tail_is_told_with_its_end() {
    let mut tail = broken();
    let figures = tail.nodes[0].figures.as_mut().expect("figures");
    figures.failures.insert("stale_nat".to_owned(), 9);
    figures.after = 9;
    let endpoint = Address { address: "10.244.2.7".parse().expect("an address"), port: 8080 };
    figures.stale = Some(Stale {
        entries: 4,
        expires: Some("2026-11-30T05:02:00Z".parse().expect("a time")),
        endpoints: vec![StaleAt { endpoint }, StaleAt { endpoint }],
    });
    let advice = advise(&tail);
    let finding = advice.findings.iter().find(|finding| finding.rule == Rule::StaleTail);
    let finding = finding.expect("the tail");
    let how = finding.change.as_deref().expect("what to do");
    assert!(how.contains("--reply-src ADDRESS` for 10.244.2.7 on n1;"), "{how}");
    let because = finding.because.join("; ");
    assert!(because.contains("9 of 93 failures"), "{because}");
    assert!(
        because.contains("4 entries of that kind now, the last expires at 2026-11-30T05:02:00Z"),
        "{because}"
    );
    assert_eq!(weight(&broken(), Rule::StaleTail), None);
}

#[test]
fn one_slow_node_is_named() {
    let mut slow = broken();
    slow.nodes.push(node("n7", &[("timeout", 40)], vec![left("api-1-a", Some(12.0), None, 0)]));
    let advice = advise(&slow);
    let finding = advice.findings.iter().find(|finding| finding.rule == Rule::SlowNode);
    assert!(finding.expect("the slow node").title.contains("n7"));
    assert_eq!(advice.prestop.seconds, Some(18), "until it is mended preStop covers it");
    assert_eq!(weight(&broken(), Rule::SlowNode), None);
}

#[test]
fn a_bad_replica_is_not_the_rollouts_doing() {
    let mut bad = healthy();
    bad.others.push(NotOfRollouts {
        cause: "bad_backend".into(),
        count: 200,
        pods: [("api-2-x".to_owned(), 200)].into(),
    });
    assert_eq!(weight(&bad, Rule::BadReplica), Some(Weight::Fault));
    assert_eq!(weight(&healthy(), Rule::BadReplica), None);
    bad.others[0].cause = "eviction".into();
    assert_eq!(weight(&bad, Rule::OtherCause), Some(Weight::Note));
}

#[test]
fn a_full_conntrack_table_and_lost_source_ports_are_told() {
    let table = |entries, drops, insert_failed| {
        let mut case = healthy();
        case.nodes[1].conntrack =
            Some(ConntrackTable { entries, limit: 100_000, drops, insert_failed });
        case
    };
    assert_eq!(weight(&table(99_000, 0, 0), Rule::ConntrackFull), Some(Weight::Fault));
    assert_eq!(weight(&table(10, 3, 0), Rule::ConntrackFull), Some(Weight::Risk));
    assert_eq!(weight(&table(10, 0, 7), Rule::SnatPorts), Some(Weight::Risk));
    assert_eq!(weight(&table(10, 0, 0), Rule::ConntrackFull), None);
    assert_eq!(weight(&table(10, 0, 0), Rule::SnatPorts), None);
}

#[test]
fn an_outage_by_design_is_said_to_be_one() {
    let mut design = broken();
    let shape = design.workload.as_mut().expect("a shape");
    shape.outage_by_design = true;
    shape.strategy = Some(StrategyFacts { kind: "Recreate".into(), ..StrategyFacts::default() });
    assert_eq!(advise(&design).findings[0].rule, Rule::OutageByDesign);
    assert_eq!(weight(&broken(), Rule::OutageByDesign), None);
}

#[test]
fn services_that_publish_pods_that_are_not_ready_are_named() {
    let mut published = healthy();
    published.services.push(ServiceShape {
        name: "peers".into(),
        publish_not_ready: true,
        ..ServiceShape::default()
    });
    assert_eq!(weight(&published, Rule::PublishedNotReady), Some(Weight::Note));
    assert_eq!(weight(&healthy(), Rule::PublishedNotReady), None);
}

#[test]
fn what_no_rule_explains_is_said_to_be_unexplained() {
    let pods = vec![left("api-1-a", Some(1.0), None, 0)];
    let odd = case(Some(5), Some(5), vec![node("n1", &[("imploded", 2)], pods)]);
    assert_eq!(weight(&odd, Rule::Unexplained), Some(Weight::Fault));
    assert_eq!(weight(&broken(), Rule::Unexplained), None);
}

#[test]
fn what_nobody_knows_is_said_and_never_zero() {
    let mut dark = healthy();
    dark.missing.push(Missing {
        agent: "rollrace-x7k2p".into(),
        node: Some("n3".into()),
        why: "no answer within 5 s".into(),
    });
    dark.nodes[0].lost = 147;
    dark.nodes[1].figures.as_mut().expect("figures").covered.partial = true;
    let mut plain = dark.clone();
    plain.from.as_mut().expect("from").template = None;
    let unknown = advise(&plain).unknown.join("\n");
    for part in ["on n3", "147 events", "n2: its agent may have come", "template of revision 1"] {
        assert!(unknown.contains(part), "{part} in {unknown}");
    }
    let title = &advise(&dark).findings[0].title;
    assert_eq!(title, "nothing failed, as far as the agents were there to see");
}

#[test]
fn a_custom_resource_gets_no_patch_command() {
    let mut argo = broken();
    argo.kind = "Rollout".into();
    let patch = advise(&argo).patch.expect("a patch");
    assert_eq!(patch.command, None);
    assert!(patch.notes.iter().any(|note| note.contains("by hand")), "{:?}", patch.notes);
}

#[test]
fn an_empty_case_is_no_panic() {
    let advice = advise(&Case::default());
    assert_eq!(advice.findings[0].rule, Rule::NothingWrong);

    assert!(advice.patch.is_none());
}
