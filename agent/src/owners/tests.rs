use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use super::{Owners, Pod, Remover, UNSEEN_NANOS};
use crate::model::{Clock, Mono, ObjectRef, PodFacts, ReplicaSetFacts};

const SECOND: u64 = 1_000_000_000;
const NOW: Mono = Mono(1_000 * SECOND);

fn clock() -> Clock {
    Clock { mono: NOW, wall: Timestamp::from_second(1_800_000_000).unwrap() }
}

fn object(kind: &str, uid: &str) -> ObjectRef {
    ObjectRef {
        kind: kind.into(),
        api_version: "apps/v1".into(),
        name: uid.into(),
        uid: uid.into(),
    }
}

fn set(version: u64, wanted: i32, replicas: i32) -> Arc<ReplicaSetFacts> {
    Arc::new(ReplicaSetFacts {
        namespace: "shop".into(),
        name: "set".into(),
        uid: "set".into(),
        resource_version: version.to_string().into(),
        owner: Some(object("Deployment", "api")),
        template_hash: "hash".into(),
        revision: Some(1),
        created: None,
        wanted,
        replicas,
        images: Vec::new(),
        template: None,
    })
}

fn pod(uid: &str, version: u64) -> PodFacts {
    PodFacts {
        namespace: "shop".into(),
        name: uid.into(),
        uid: uid.into(),
        resource_version: version.to_string().into(),
        node: Some("n1".into()),
        ips: Vec::new(),
        host_network: false,
        owner: Some(object("ReplicaSet", "set")),
        revision_hash: "hash".into(),
        deletion_timestamp: None,
        deletion_grace: None,
        disruption: None,
        finished: false,
        restarts: 0,
        exit_codes: BTreeMap::new(),
    }
}

/// Deleted `ago` seconds before now, with 30 s of grace.
fn deleted(uid: &str, version: u64, ago: i64) -> PodFacts {
    PodFacts {
        deletion_timestamp: Some(Timestamp::from_second(1_800_000_000 - ago + 30).unwrap()),
        deletion_grace: Some(30),
        ..pod(uid, version)
    }
}

fn tell(owners: &mut Owners, facts: PodFacts) {
    owners.pod(Arc::new(facts), &clock(), NOW);
}

fn nobody(_: &Pod) -> bool {
    false
}

/// Three pods, the set wants three.
fn three() -> Owners {
    let mut owners = Owners::default();
    owners.replica_set(set(10, 3, 3));
    for (version, uid) in [(1, "a"), (2, "b"), (3, "c")] {
        tell(&mut owners, pod(uid, version));
    }
    owners
}

#[test]
fn an_owner_that_wanted_fewer_than_there_were_removed_the_pod() {
    let mut owners = three();
    owners.replica_set(set(20, 2, 3));
    tell(&mut owners, deleted("a", 21, 0));
    assert_eq!(owners.remover("a", nobody), Remover::Owner);
}

#[test]
fn an_owner_that_wanted_as_many_did_not_though_it_wants_fewer_later() {
    let mut owners = three();
    tell(&mut owners, deleted("a", 20, 0));
    owners.replica_set(set(21, 3, 2));
    owners.replica_set(set(22, 2, 2));
    assert_eq!(owners.remover("a", nobody), Remover::Other);
}

#[test]
fn a_count_that_fell_unseen_around_the_deletion_accuses_nobody() {
    // A watch that is late and a list that is not: the set is seen at versions 10 and 21 only.
    let mut owners = three();
    tell(&mut owners, deleted("a", 20, 0));
    owners.replica_set(set(21, 2, 3));
    assert_eq!(owners.remover("a", nobody), Remover::Unclear);
}

#[test]
fn the_order_in_which_the_watches_deliver_does_not_matter() {
    let mut owners = three();
    tell(&mut owners, deleted("a", 21, 0));
    assert_eq!(owners.remover("a", nobody), Remover::Unclear);
    owners.replica_set(set(25, 2, 2));
    owners.replica_set(set(20, 2, 3));
    assert_eq!(owners.remover("a", nobody), Remover::Owner);
}

#[test]
fn while_not_all_pods_are_known_nobody_is_accused() {
    let mut owners = Owners::default();
    owners.replica_set(set(10, 3, 3));
    tell(&mut owners, deleted("a", 20, 0));
    assert_eq!(owners.remover("a", nobody), Remover::Unclear);
}

#[test]
fn a_replacement_was_not_there_before() {
    let mut owners = three();
    tell(&mut owners, deleted("a", 20, 0));
    tell(&mut owners, pod("d", 22));
    owners.replica_set(set(23, 3, 3));
    assert_eq!(owners.remover("a", nobody), Remover::Other);
}

#[test]
fn two_pods_removed_at_once_were_both_there_before() {
    let mut owners = three();
    owners.replica_set(set(20, 1, 3));
    tell(&mut owners, deleted("a", 21, 0));
    tell(&mut owners, deleted("b", 22, 0));
    assert_eq!(owners.remover("a", nobody), Remover::Owner);
    assert_eq!(owners.remover("b", nobody), Remover::Owner);
}

#[test]
fn an_older_content_that_comes_late_changes_nothing_but_what_it_alone_tells() {
    let mut owners = Owners::default();
    tell(&mut owners, deleted("a", 30, 2));
    tell(&mut owners, deleted("a", 20, 5));
    tell(&mut owners, pod("a", 10));
    let pod = owners.pod_by_uid("a").unwrap();
    assert_eq!(&*pod.facts.resource_version, "30");
    assert_eq!(pod.deletion_version, Some(20));
    // Of several deletion times the earliest is the deletion.
    assert_eq!(pod.deleted, Some(Mono(NOW.0 - 5 * SECOND)));
}

#[test]
fn a_pod_that_is_gone_stays_gone() {
    let mut owners = Owners::default();
    owners.pod_gone(Arc::new(deleted("a", 30, 2)), &clock(), NOW);
    owners.pod(Arc::new(deleted("a", 20, 2)), &clock(), NOW.plus(SECOND));
    assert_eq!(owners.pod_by_uid("a").unwrap().gone, Some(NOW));
}

#[test]
fn a_deletion_in_the_future_is_a_clock_that_cannot_be_believed() {
    let mut owners = Owners::default();
    tell(&mut owners, deleted("a", 20, -3_600));
    tell(&mut owners, deleted("b", 21, 3_600));
    for uid in ["a", "b"] {
        assert_eq!(owners.pod_by_uid(uid).unwrap().deletion(None, NOW), None, "{uid}");
    }
}

#[test]
fn a_deletion_during_an_outage_of_the_watches_is_believed() {
    let mut owners = Owners::default();
    tell(&mut owners, deleted("a", 20, 60));
    let pod = owners.pod_by_uid("a").unwrap();
    assert_eq!(pod.deletion(None, NOW), None);
    let since = Mono(NOW.0 - 70 * SECOND);
    assert_eq!(pod.deletion(None, since), Some(Mono(NOW.0 - 60 * SECOND)));
}

#[test]
fn a_pods_workload_is_known_through_a_look_up_when_the_pod_never_was() {
    let mut owners = Owners::default();
    owners.replica_set(set(10, 3, 3));
    owners.looked_up("x".into(), Some(object("ReplicaSet", "set")), "by its name".into());
    let place = owners.place("x").unwrap();
    assert_eq!((&*place.workload.name, &*place.hash), ("api", "hash"));
}

#[test]
fn a_deleted_set_still_explains_the_pods_it_had() {
    let mut owners = three();
    owners.replica_set_gone(set(40, 0, 0));
    assert!(owners.place("a").is_some());
}

#[test]
fn pods_of_other_nodes_that_nobody_tells_of_any_more_are_forgotten_while_they_live() {
    let mut owners = three();
    tell(&mut owners, PodFacts { node: Some("n2".into()), ..pod("far", 4) });
    let gone = PodFacts { node: Some("n2".into()), ..pod("gone", 5) };
    owners.pod_gone(Arc::new(gone), &clock(), NOW);
    assert_eq!(owners.unwatch("api", "n1"), ["far".into()]);
    assert!(owners.pod_by_uid("far").is_none());
    assert!(owners.pod_by_uid("a").is_some() && owners.pod_by_uid("gone").is_some());
}

#[test]
fn a_sibling_that_vanished_unseen_accuses_nobody_unless_it_is_known_to_have_been_there() {
    for (known_until, remover) in [(3, Remover::Unclear), (25, Remover::Owner)] {
        let mut owners = three();
        owners.replica_set(set(20, 1, 3));
        tell(&mut owners, deleted("a", 21, 0));
        owners.pod_gone(Arc::new(pod("b", known_until)), &clock(), NOW);
        owners.pod_gone(Arc::new(pod("c", 3)), &clock(), NOW);
        assert_eq!(owners.remover("a", nobody), remover, "{known_until}");
    }
}

#[test]
fn a_sibling_that_vanished_long_before_was_not_there() {
    let mut owners = three();
    owners.pod_gone(Arc::new(pod("c", 3)), &clock(), Mono(NOW.0 - UNSEEN_NANOS));
    owners.replica_set(set(15, 3, 2));
    tell(&mut owners, deleted("a", 20, 0));
    owners.replica_set(set(21, 3, 1));
    assert_eq!(owners.remover("a", nobody), Remover::Other);
}

#[test]
fn while_not_all_pods_were_known_nobody_is_accused_though_none_is_left_by_now() {
    let mut owners = Owners::default();
    owners.replica_set(set(10, 2, 2));
    // Its sibling on another node was never heard of.
    tell(&mut owners, deleted("a", 20, 0));
    owners.replica_set(set(25, 1, 1));
    owners.replica_set(set(30, 0, 0));
    assert_eq!(owners.remover("a", nobody), Remover::Unclear);
}
