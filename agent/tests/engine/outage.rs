//! The API server was away, or went back in time: what it says afterwards explains what happened
//! meanwhile, and nothing is told twice.

use std::sync::Arc;

use rollrace::{
    engine::{ClusterChange, Request},
    model::{Cause, ReplicaSetFacts},
};

use crate::world::{Is, World, object};

const OLD: [(&str, Is); 3] = [("old-a", Is::Ready), ("old-b", Is::Ready), ("old-c", Is::Ready)];

#[test]
fn a_watch_that_goes_on_after_an_outage_explains_failures_from_its_begin() {
    let mut world = World::at_rest();
    world.set("new", 2, 1, 1);
    world.set("old", 1, 2, 3);
    // The connection is dead from here on, and nobody has noticed.
    world.mark_deleted("old-a");
    world.refused("old-a");
    world.pass(15_000);
    world.cluster(ClusterChange::Synced(false));
    world.refused("old-a");
    world.pass(90_000);
    // Open again, and only then what was missed.
    world.cluster(ClusterChange::Synced(true));
    world.pass(500);
    let facts = Arc::new(world.facts("old-a"));
    world.cluster(ClusterChange::PodGone(facts));
    world.slice(&[OLD[1], OLD[2]]);
    world.pass(10_000);
    let causes: Vec<Cause> = world.failures.iter().map(|failure| failure.cause).collect();
    assert_eq!(causes, [Cause::Rollout; 2], "{:#?}", world.failures);
}

#[test]
fn a_server_that_went_back_to_before_the_rollout_and_catches_up_tells_of_one_rollout() {
    let mut world = World::rolling();
    world.refused("old-a");
    let (new_a, first) = (Arc::new(world.facts("new-a")), world.rollout().id.clone());
    world.cluster(ClusterChange::Synced(false));
    world.restart_versions();
    // What the restored server lists: the rollout has not begun.
    world.cluster(ClusterChange::PodGone(new_a.clone()));
    world.change("old-a", |pod| (pod.deletion_timestamp, pod.deletion_grace) = (None, None));
    world.set("old", 1, 3, 3);
    world.workload(1, 3, [3, 3, 3]);
    world.slice(&OLD);
    world.cluster(ClusterChange::Synced(true));
    world.pass(2_000);
    // It catches up.
    world.cluster(ClusterChange::Pod(new_a));
    world.workload_in("Deployment", 2, 3, [3, 3, 3], 1, false);
    world.set("new", 2, 1, 1);
    world.set("old", 1, 2, 2);
    world.delete("old-a");
    world.slice(&[OLD[1], OLD[2], ("new-a", Is::Ready)]);
    world.refused("old-a");
    world.pass(40_000);
    let found: Vec<_> = world.failures.iter().map(|f| (f.cause, f.rollout.clone())).collect();
    assert_eq!(found, vec![(Cause::Rollout, Some(first)); 2], "{:#?}", world.failures);
    world.rollout();
}

#[test]
fn what_a_restored_server_says_is_believed_though_its_versions_are_older() {
    let mut world = World::at_rest();
    world.restart_versions();
    world.workload(1, 5, [5, 5, 5]);
    world.change("old-a", |pod| pod.restarts = 3);
    let owners = world.state.owners();
    assert_eq!(owners.workload_by_uid("uid-api").unwrap().wanted, 5);
    assert_eq!(owners.pod_by_uid("uid-old-a").unwrap().facts.restarts, 3);
}

#[test]
fn past_the_bound_workloads_are_not_followed_and_that_is_counted_once_each() {
    let mut world = World::at_rest();
    let owner = |number: usize| Some(object("ReplicaSet", &format!("db{number}")));
    for number in 0..70 {
        let set = ReplicaSetFacts {
            namespace: "shop".into(),
            name: format!("db{number}").into(),
            uid: format!("uid-db{number}").into(),
            resource_version: world.version(),
            owner: Some(object("Deployment", &format!("workload{number}"))),
            template_hash: "x".into(),
            revision: Some(1),
            created: None,
            wanted: 1,
            replicas: 1,
            images: Vec::new(),
            template: None,
        };
        world.cluster(ClusterChange::ReplicaSet(Arc::new(set)));
    }
    for _ in 0..2 {
        for number in 0..70 {
            world.cluster(ClusterChange::Owner {
                namespace: "shop".into(),
                pod: format!("db{number}-0").into(),
                uid: format!("uid-db{number}-0").into(),
                owner: owner(number),
                how: "its name".into(),
            });
        }
    }
    let follows = world.requests.iter().filter(|r| matches!(r, Request::Follow { .. })).count();
    assert_eq!((follows, world.state.follow_refused()), (64, 6));
}
