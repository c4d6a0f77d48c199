use super::*;
use crate::app::failure::{ClientClass, Failure, Phase};

const SECOND: i64 = 1_000_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("a time")
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn pod(name: &str, version: &str) -> PodRecord {
    PodRecord {
        name: name.to_owned(),
        application: "api".to_owned(),
        version: version.to_owned(),
        hash: format!("hash{version}"),
    }
}

fn removal(uid: &str, seconds: i64, user: &str) -> Removal {
    Removal {
        namespace: "shop".to_owned(),
        pod: uid.to_owned(),
        uid: uid.to_owned(),
        at: at(seconds),
        user: user.to_owned(),
        grace_seconds: 30,
    }
}

fn rolled(version: &str, seconds: i64) -> (Timestamp, Action) {
    let action = Action::RolledOut { application: "api".to_owned(), version: version.to_owned() };
    (at(seconds), action)
}

/// One pod of version 1 at 10.0.0.1, started at 0 s.
fn ledger(actions: Vec<(Timestamp, Action)>, removals: Vec<Removal>) -> Ledger {
    let address = "10.0.0.1".parse().expect("an address");
    let (uid, node) = ("old".to_owned(), "n2".to_owned());
    let start = Start { at: at(0), uid, node, addresses: vec![address], listened: Some(at(2)) };
    let mut ledger = Ledger { removals, actions, ..Ledger::default() };
    ledger.pods.insert("old".to_owned(), pod("old", "1"));
    ledger.starts.push(start);
    ledger
}

fn causes(ledger: &Ledger, seconds: i64) -> Vec<String> {
    let start = &ledger.starts[0];
    let found = ledger.causes(start, &ledger.pods[&start.uid], at(seconds), at(seconds));
    found.iter().map(Expected::text).collect()
}

#[test]
fn a_pod_of_an_old_version_that_its_controller_removed_belongs_to_the_rollout_in_force() {
    let ledger = ledger(
        vec![rolled("2", 10), rolled("3", 20)],
        vec![removal("old", 25, "replicaset-controller")],
    );
    assert_eq!(causes(&ledger, 26), ["rollout (old, api 3)"]);
}

#[test]
fn just_after_a_change_the_controller_may_act_on_what_was_before() {
    let ledger = ledger(
        vec![rolled("2", 10), rolled("3", 20)],
        vec![removal("old", 20, "replicaset-controller")],
    );
    assert_eq!(causes(&ledger, 26), ["rollout (old, api 3)", "rollout (old, api 2)"]);
}

#[test]
fn a_pod_of_the_current_version_that_its_controller_removed_is_a_scale_down() {
    let scaled = Action::Scaled { application: "api".to_owned(), replicas: 2 };
    let removals = vec![removal("old", 20, "replicaset-controller")];
    let scaled = ledger(vec![(at(19), scaled)], removals.clone());
    assert_eq!(causes(&scaled, 26), ["scale_down"]);
    assert!(causes(&ledger(Vec::new(), removals), 26).is_empty(), "nobody scaled it");
}

#[test]
fn a_pod_that_somebody_removed_during_a_rollout_was_not_removed_by_it() {
    let deleted = ledger(vec![rolled("2", 10)], vec![removal("old", 12, "lab-delete")]);
    assert_eq!(causes(&deleted, 13), ["deleted"]);
    let evicted = ledger(vec![rolled("2", 10)], vec![removal("old", 12, "lab-evict")]);
    assert_eq!(causes(&evicted, 13), ["eviction"]);
}

#[test]
fn before_its_removal_a_serving_pod_has_no_excuse() {
    let ledger = ledger(vec![rolled("2", 10)], vec![removal("old", 12, "lab-delete")]);
    assert!(causes(&ledger, 11).is_empty());
}

#[test]
fn a_lost_node_explains_its_pods() {
    let lost = Action::NodeLost { node: "n2".to_owned() };
    let ledger = ledger(vec![(at(10), lost)], Vec::new());
    assert_eq!(causes(&ledger, 11), ["node_loss"]);
    assert!(causes(&ledger, 9).is_empty());
}

#[test]
fn a_new_pod_that_does_not_listen_yet_is_the_new_side() {
    let mut ledger = ledger(vec![rolled("2", 10)], Vec::new());
    ledger.pods.insert("new".to_owned(), pod("new", "2"));
    let listened = Some(at(14));
    ledger.starts[0] =
        Start { at: at(11), uid: "new".to_owned(), listened, ..ledger.starts[0].clone() };
    assert_eq!(causes(&ledger, 12), ["rollout (new, api 2)"]);
}

#[test]
fn a_failure_without_a_backend_is_due_to_the_removal_that_emptied_the_service() {
    let mut ledger =
        ledger(vec![rolled("2", 10)], vec![removal("old", 11, "replicaset-controller")]);
    let served = Served {
        service: "api".to_owned(),
        application: "api".to_owned(),
        addresses: vec![address("10.96.0.80:80")],
    };
    ledger.dialled.insert("client".to_owned(), served);
    let truth = Truth {
        client: "client".to_owned(),
        node: "n1".to_owned(),
        failure: Failure {
            start: 12 * SECOND,
            connect_start: 12 * SECOND,
            end: 12 * SECOND,
            phase: Phase::Connect,
            class: ClientClass::Refused,
            error: String::new(),
            errno: None,
            local: address("10.244.1.5:40000"),
            reused: false,
            pod: None,
        },
    };
    let judged = ledger.judge(&truth);
    assert_eq!(judged.backend, None);
    assert_eq!(judged.expected[0].text(), "rollout (old, api 2)");
}
