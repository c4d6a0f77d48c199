//! Evidence that comes late, and what is heard of an attempt after its verdict.

use std::sync::Arc;

use rollrace::{
    engine::{ClusterChange, Config, Request, What},
    model::{Cause, Class, Sighting},
};

use crate::world::{Is, World};

#[test]
fn a_failure_that_precedes_the_event_which_explains_it_is_held_and_then_decided() {
    let mut world = World::at_rest();
    world.set("new", 2, 1, 1);
    world.set("old", 1, 2, 3);
    world.mark_deleted("old-a");
    world.pass(50);
    world.refused("old-a");
    world.pass(3_000);
    assert!(world.failures.is_empty());
    let facts = Arc::new(world.facts("old-a"));
    world.cluster(ClusterChange::Pod(facts));
    world.slice(&[("old-a", Is::Leaving), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
    world.pass(250);
    assert_eq!(world.failures[0].cause, Cause::Rollout);
}

#[test]
fn while_the_watches_are_out_of_step_verdicts_wait_and_afterwards_they_are_right() {
    let mut world = World::at_rest();
    world.cluster(ClusterChange::Synced(false));
    world.pass(1_000);
    world.set("new", 2, 1, 1);
    world.set("old", 1, 2, 3);
    world.mark_deleted("old-a");
    world.refused("old-a");
    world.pass(70_000);
    assert!(world.failures.is_empty());
    assert_eq!(world.state.undecided_failures(), 1);
    let facts = Arc::new(world.facts("old-a"));
    world.cluster(ClusterChange::PodGone(facts));
    world.slice(&[("old-b", Is::Ready), ("old-c", Is::Ready)]);
    world.cluster(ClusterChange::Synced(true));
    assert_eq!(world.verdict().cause, Cause::Rollout);
}

#[test]
fn after_the_watches_have_caught_up_evidence_is_waited_for_anew() {
    let mut world = World::at_rest();
    world.cluster(ClusterChange::Synced(false));
    world.refused("old-a");
    world.pass(100_000);
    world.cluster(ClusterChange::Synced(true));
    world.pass(29_000);
    assert!(world.failures.is_empty());
    world.pass(2_000);
    assert_eq!(world.failures[0].cause, Cause::Unknown);
}

#[test]
fn past_the_bound_failures_are_unknown_at_once_and_counted() {
    let mut world = World::with(Config { max_held: 2, ..Config::new("n1") });
    for pod in ["old-a", "old-b", "old-c"] {
        world.unseen_pod(pod);
        world.refused(pod);
    }
    assert_eq!(world.state.undecided_failures(), 2);
    assert_eq!((world.failures.len(), world.state.overflowed()), (1, 1));
    assert_eq!(world.failures[0].cause, Cause::Unknown);
}

#[test]
fn the_owner_of_a_failed_backend_is_asked_for_once_and_again_while_it_is_not_answered() {
    let mut world = World::empty();
    world.unseen_pod("old-a");
    world.slice(&[("old-a", Is::Ready)]);
    world.pass(1_000);
    let asked = |world: &World| {
        let resolves = world.requests.iter().filter(|r| matches!(r, Request::Resolve { .. }));
        resolves.count()
    };
    let before = asked(&world);
    world.pass(10_000);
    world.refused("old-a");
    world.pass(5_000);
    assert_eq!(asked(&world), before + 1);
    world.pass(6_000);
    assert_eq!(asked(&world), before + 2);
}

#[test]
fn a_workload_followed_no_longer_is_followed_again_at_its_next_departure() {
    let mut world = World::at_rest();
    let answer = |pod: &str| ClusterChange::Owner {
        namespace: "shop".into(),
        pod: pod.into(),
        uid: format!("uid-{pod}").into(),
        owner: Some(crate::world::object("ReplicaSet", "old")),
        how: "the pod names its controller".into(),
    };
    world.cluster(answer("old-a"));
    world.pass(200_000);
    let follows = |world: &World| {
        let follows = world.requests.iter().filter(|r| matches!(r, Request::Follow { .. }));
        let unfollows = world.requests.iter().filter(|r| matches!(r, Request::Unfollow { .. }));
        (follows.count(), unfollows.count())
    };
    assert_eq!(follows(&world), (1, 1));
    world.slice(&[("old-b", Is::Ready), ("old-c", Is::Ready)]);
    world.cluster(answer("old-a"));
    assert_eq!(follows(&world), (2, 1));
}

#[test]
fn the_sweeps_last_look_at_a_decided_attempt_is_no_second_failure() {
    let mut world = World::rolling();
    let attempt = world.attempt("old-a");
    world.pass(10_000);
    // An outside client: this node did the DNAT, and sees no socket.
    let mut foreign = attempt;
    foreign.key.client.set_ip("203.0.113.7".parse().unwrap());
    world.input(What::Saw(Sighting::Unanswered { attempt: foreign, at: world.now }));
    world.pass(110_000);
    world.input(What::Saw(Sighting::Unanswered { attempt: foreign, at: world.now }));
    world.input(What::Saw(Sighting::Superseded { attempt: foreign, at: world.now }));
    assert_eq!(world.verdict().class, Class::Timeout);
}

#[test]
fn the_drop_of_a_syn_that_comes_after_the_verdict_is_no_second_failure() {
    let mut world = World::rolling();
    let attempt = world.attempt("old-a");
    world.pass(2_990);
    world.dropped(attempt, "NEIGH_FAILED");
    world.pass(10);
    world.abandon(attempt, 0);
    world.pass(500);
    world.dropped(attempt, "NEIGH_FAILED");
    world.pass(200_000);
    assert_eq!(world.verdict().class, Class::Unreachable);
}

#[test]
fn a_syn_that_waits_for_a_neighbour_is_decided_by_the_drop_that_comes_after_the_close() {
    let mut world = World::rolling();
    let mut unseen = world.attempt("old-a");
    let begun = world.now;
    let seen = unseen;
    unseen.syns = 0;
    unseen.backend = None;
    world.pass(1_000);
    unseen.first_syn = begun;
    world.abandon(unseen, 0);
    world.pass(2_000);
    assert!(world.failures.is_empty());
    world.dropped(seen, "NEIGH_FAILED");
    let failure = world.verdict();
    assert_eq!((failure.class, failure.first_syn), (Class::Unreachable, begun));
}

#[test]
fn a_step_of_the_civil_clock_by_an_hour_changes_no_verdict() {
    for stepped in [-3_600, 0, 3_600] {
        for after_deletion in [false, true] {
            let mut world = World::at_rest();
            if !after_deletion {
                world.stepped = stepped;
                world.pass(1_000);
            }
            world.set("new", 2, 1, 1);
            world.set("old", 1, 2, 3);
            world.delete("old-a");
            world.slice(&[("old-a", Is::Leaving), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
            world.stepped = stepped;
            world.pass(500);
            world.refused("old-a");
            assert_eq!(world.verdict().cause, Cause::Rollout, "{stepped} {after_deletion}");
        }
    }
}
