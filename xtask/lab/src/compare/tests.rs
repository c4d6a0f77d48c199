//! Tests of the comparison.

use super::attribution::{Expectation, PodTruth};
use super::*;
use crate::app::failure::ClientClass;
use jiff::Timestamp;

const START: i64 = 1_700_000_000_000_000_000;
const MILLISECOND: i64 = 1_000_000;

fn truth(port: u16, class: ClientClass, start: i64) -> Truth {
    Truth {
        client: "client".to_owned(),
        node: "n1".to_owned(),
        failure: Failure {
            start,
            connect_start: start,
            end: start + MILLISECOND,
            phase: match class {
                ClientClass::Cut | ClientClass::Reset => Phase::Request,
                _ => Phase::Connect,
            },
            class,
            error: String::new(),
            errno: None,
            local: format!("10.244.1.9:{port}").parse().expect("an address"),
            reused: false,
            pod: None,
        },
    }
}

fn reported(node: &str, port: u16, class: &str, start: i64) -> Reported {
    let failure = serde_json::json!({
        "class": class,
        "client": {"address": "10.244.1.9", "port": port},
        "backend": {"address": "10.244.2.2", "port": 8080},
        "isn": port,
        "first_syn": Timestamp::from_nanosecond(start.into()).expect("a time"),
        "namespace": "shop", "pod": "api-old-1",
        "workload": {"kind": "Deployment", "name": "api"},
        "cause": "rollout", "side": "old", "rollout": "R", "revision": "2",
    });
    Reported { node: node.to_owned(), failure: serde_json::from_value(failure).expect("a failure") }
}

fn expectation() -> Expectation {
    let pod = |name: &str, hash: &str, by: Option<&str>| PodTruth {
        name: name.to_owned(),
        hash: hash.to_owned(),
        removed_by: by.map(str::to_owned),
    };
    Expectation {
        namespace: "shop".to_owned(),
        kind: "Deployment".to_owned(),
        name: "api".to_owned(),
        revision: "2".to_owned(),
        hash: "new".to_owned(),
        pods: [
            ("10.244.2.2", pod("api-old-1", "old", Some("replicaset-controller"))),
            ("10.244.2.3", pod("api-new-1", "new", None)),
        ]
        .map(|(address, pod)| (address.parse().expect("an address"), pod))
        .into(),
        rollouts: ["n1", "n2"].map(|n| ((n.to_owned(), "R".to_owned()), "new".to_owned())).into(),
    }
}

#[test]
fn a_connection_matches_by_port_kind_and_start_within_50_ms() {
    let found = compare(
        &[
            truth(1, ClientClass::Refused, START),
            truth(2, ClientClass::Timeout, START),
            truth(3, ClientClass::Timeout, START),
        ],
        &[
            reported("n1", 1, "refused", START + 49 * MILLISECOND),
            reported("n1", 2, "stale_nat", START),
            reported("n1", 3, "unreachable", START - MILLISECOND),
        ],
        &expectation(),
    );
    assert!(found.agrees(), "{:?}", found.differences);
    assert_eq!(found.truth["timeout"], 2);
}

#[test]
fn another_kind_or_start_is_both_missed_and_extra() {
    let found = compare(
        &[truth(1, ClientClass::Refused, START), truth(2, ClientClass::Timeout, START)],
        &[
            reported("n1", 1, "timeout", START),
            reported("n1", 2, "timeout", START + 51 * MILLISECOND),
        ],
        &expectation(),
    );
    assert_eq!(found.missed["refused"], 1);
    assert_eq!(found.missed["timeout"], 1);
    assert_eq!(found.extra["timeout"], 2);
    assert!(!found.agrees());
}

#[test]
fn a_port_used_twice_pairs_each_attempt_with_its_own_report() {
    let later = START + 3_000 * MILLISECOND;
    let found = compare(
        &[truth(1, ClientClass::Timeout, START), truth(1, ClientClass::Timeout, later)],
        &[reported("n1", 1, "stale_nat", later), reported("n1", 1, "timeout", START)],
        &expectation(),
    );
    assert!(found.agrees(), "{:?}", found.differences);
}

#[test]
fn a_connection_reported_by_two_agents_is_a_double_and_not_an_extra() {
    let found = compare(
        &[truth(1, ClientClass::Refused, START)],
        &[reported("n1", 1, "refused", START), reported("n2", 1, "refused", START)],
        &expectation(),
    );
    assert_eq!((found.doubles, found.extra.len()), (1, 0));
    assert!(!found.agrees());
}

#[test]
fn a_reset_that_connect_told_of_is_compared_as_well() {
    let mut early = truth(1, ClientClass::Reset, START);
    early.failure.phase = Phase::Connect;
    let mut report = reported("n1", 1, "reset", START);
    report.failure.ended = Timestamp::from_nanosecond(START.into()).ok();
    assert!(compare(&[early], &[report], &expectation()).agrees());
}

#[test]
fn classes_not_compared_are_listed() {
    let found = compare(&[truth(1, ClientClass::Stalled, START)], &[], &expectation());
    assert!(found.agrees());
    assert_eq!(found.not_compared["client:stalled"], 1);
}

#[test]
fn a_connection_that_was_answered_matches_by_its_end_whenever_it_began() {
    let ended = |port, class, end: i64| {
        let mut report = reported("n1", port, class, START - 60_000 * MILLISECOND);
        report.failure.ended = Timestamp::from_nanosecond(end.into()).ok();
        report
    };
    let found = compare(
        &[truth(1, ClientClass::Cut, START), truth(2, ClientClass::Reset, START)],
        &[ended(1, "cut", START - 90 * MILLISECOND), ended(2, "reset", START)],
        &expectation(),
    );
    assert!(found.agrees(), "{:?}", found.differences);
    let late = ended(1, "cut", START - 600 * MILLISECOND);
    let found = compare(&[truth(1, ClientClass::Cut, START)], &[late], &expectation());
    assert_eq!((found.missed["cut"], found.extra["cut"]), (1, 1));
}

#[test]
fn what_an_agent_calls_cut_a_client_may_see_as_a_reset_and_not_the_other_way_round() {
    let at_once = |class| {
        let mut report = reported("n1", 1, class, START);
        report.failure.ended = Timestamp::from_nanosecond(START.into()).ok();
        report
    };
    let reset = truth(1, ClientClass::Reset, START);
    assert!(compare(&[reset], &[at_once("cut")], &expectation()).agrees());
    let cut = truth(1, ClientClass::Cut, START);
    assert!(!compare(&[cut], &[at_once("reset")], &expectation()).agrees());
}

#[test]
fn a_wrong_cause_side_or_rollout_is_misattributed() {
    for spoil in [
        |failure: &mut report::Failure| failure.cause = Some("unknown".to_owned()),
        |failure: &mut report::Failure| failure.side = Some("new".to_owned()),
        |failure: &mut report::Failure| failure.rollout = Some("another".to_owned()),
        |failure: &mut report::Failure| failure.revision = None,
    ] {
        let mut report = reported("n1", 1, "refused", START);
        spoil(&mut report.failure);
        let found = compare(&[truth(1, ClientClass::Refused, START)], &[report], &expectation());
        assert_eq!(found.misattributed, 1);
    }
}
