//! Pods that fail without being removed: their node is lost, they restart, or they are just bad.

use std::sync::Arc;

use rollrace::{
    engine::{ClusterChange, Config, Request},
    model::{Cause, NodeFacts},
};

use crate::world::{Is, World};

const READY: [(&str, Is); 3] = [("old-a", Is::Ready), ("old-b", Is::Ready), ("old-c", Is::Ready)];

fn node_is(world: &mut World, ready: &str) {
    let facts = NodeFacts { name: "n2".into(), ready: ready.into(), since: None };
    world.cluster(ClusterChange::Node { name: "n2".into(), facts: Some(Arc::new(facts)) });
}

fn unanswered(world: &mut World, pod: &str) {
    let attempt = world.attempt(pod);
    world.pass(3_000);
    world.abandon(attempt, 110);
}

#[test]
fn the_node_of_a_pod_that_does_not_answer_is_asked_about_and_to_blame_when_it_is_not_ready() {
    let mut world = World::at_rest();
    unanswered(&mut world, "old-a");
    assert!(world.requests.contains(&Request::Node { name: "n2".into() }));
    node_is(&mut world, "True");
    world.pass(10_000);
    assert!(world.failures.is_empty(), "it may be lost without its being known yet");
    node_is(&mut world, "Unknown");
    assert_eq!(world.verdict().cause, Cause::NodeLoss);
}

#[test]
fn a_node_that_is_gone_is_lost() {
    let mut world = World::at_rest();
    unanswered(&mut world, "old-a");
    world.cluster(ClusterChange::Node { name: "n2".into(), facts: None });
    assert_eq!(world.verdict().cause, Cause::NodeLoss);
}

#[test]
fn a_pod_that_was_made_not_ready_with_its_node_is_not_removed_by_the_rollout_of_that_time() {
    let mut world = World::rolling();
    world.slice(&[("old-a", Is::Leaving), ("old-b", Is::NotReady), READY[2], ("new-a", Is::Ready)]);
    unanswered(&mut world, "old-b");
    node_is(&mut world, "Unknown");
    assert_eq!(world.verdict().cause, Cause::NodeLoss);
}

#[test]
fn a_reset_is_an_answer_so_its_node_lives() {
    let mut world = World::at_rest();
    world.refused("old-a");
    node_is(&mut world, "Unknown");
    assert_eq!(world.verdict().cause, Cause::Unknown);
}

#[test]
fn a_restart_that_a_look_up_told_before_the_watch_from_the_past_is_seen_to_be_one() {
    let mut world = World::at_rest();
    world.unseen_pod("old-d");
    world.slice(&[READY[0], READY[1], READY[2], ("old-d", Is::Ready)]);
    world.pass(60_000);
    let mut before = world.facts("old-d");
    before.resource_version = world.version();
    world.refused("old-d");
    world.change("old-d", |pod| pod.restarts = 1);
    world.cluster(ClusterChange::Pod(Arc::new(before)));
    assert_eq!(world.verdict().cause, Cause::Restart);
}

/// Pods that have failed for ten seconds are bad.
fn strict() -> World {
    let config = Config { bad_backend_after_nanos: 10_000_000_000, ..Config::new("n1") };
    let mut world = World::with(config);
    world.cluster(ClusterChange::SlicesListed(Vec::new()));
    world.cluster(ClusterChange::Synced(true));
    world.set("old", 1, 3, 3);
    world.workload(1, 3, [3, 3, 3]);
    for pod in ["old-a", "old-b", "old-c"] {
        world.pod(pod, "n2");
    }
    world.slice(&READY);
    world.pass(60_000);
    world
}

fn fail_every_second(world: &mut World, pods: &[&str], seconds: u64) {
    for _ in 0..seconds {
        for pod in pods {
            world.refused(pod);
        }
        world.pass(1_000);
    }
}

fn causes(world: &mut World) -> Vec<Cause> {
    world.pass(31_000);
    world.failures.iter().map(|failure| failure.cause).collect()
}

#[test]
fn a_pod_that_fails_for_long_while_its_siblings_answer_is_a_bad_backend() {
    let mut world = strict();
    fail_every_second(&mut world, &["old-a"], 12);
    world.dial();
    let causes = causes(&mut world);
    assert_eq!(causes, vec![Cause::BadBackend; 12]);
    assert!(world.failures[0].evidence.iter().any(|why| why.contains("2 siblings")));
}

#[test]
fn a_pod_that_fails_for_a_short_time_is_not_called_bad() {
    let mut world = strict();
    fail_every_second(&mut world, &["old-a"], 9);
    world.dial();
    assert_eq!(causes(&mut world), vec![Cause::Unknown; 9]);
}

#[test]
fn where_most_replicas_fail_none_of_them_is_the_bad_one() {
    let mut world = strict();
    fail_every_second(&mut world, &["old-a", "old-b"], 12);
    world.dial();
    assert_eq!(causes(&mut world), vec![Cause::Unknown; 24]);
}

#[test]
fn where_nobody_answers_no_replica_is_the_bad_one() {
    let mut world = strict();
    fail_every_second(&mut world, &["old-a"], 12);
    assert_eq!(causes(&mut world), vec![Cause::Unknown; 12]);
}

#[test]
fn five_minutes_are_the_default() {
    let mut world = World::at_rest();
    fail_every_second(&mut world, &["old-a"], 12);
    world.dial();
    assert_eq!(causes(&mut world), vec![Cause::Unknown; 12]);
}

#[test]
fn a_syn_that_no_rule_directed_is_due_to_the_departure_that_emptied_the_service() {
    let mut world = World::at_rest();
    world.set("new", 2, 3, 0);
    world.set("old", 1, 0, 3);
    for pod in ["old-a", "old-b", "old-c"] {
        world.delete(pod);
    }
    world.slice(&READY.map(|(pod, _)| (pod, Is::Leaving)));
    world.set("old", 1, 0, 0);
    let service = crate::world::VIP.parse().unwrap();
    let mut attempt = world.attempt_to(service, service);
    world.pass(3_000);
    attempt.syns = 3;
    world.abandon(attempt, 0);
    assert_eq!(world.verdict().cause, Cause::Rollout);
}

#[test]
fn a_syn_that_no_rule_directed_while_others_served_is_unknown() {
    let mut world = World::rolling();
    let service = crate::world::VIP.parse().unwrap();
    let mut attempt = world.attempt_to(service, service);
    world.pass(3_000);
    attempt.syns = 3;
    world.abandon(attempt, 0);
    assert_eq!(world.verdict().cause, Cause::Unknown);
}
