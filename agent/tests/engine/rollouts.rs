//! How rollouts are observed: begin, completion, the last old pod.

use std::sync::Arc;

use rollrace::{
    engine::{AttemptCounts, ClusterChange, What},
    model::{Cause, WorkloadStatus},
};

use crate::world::{Is, VIP, World, object};

#[test]
fn a_rollout_is_complete_when_rollout_status_would_return() {
    let mut world = World::rolling();
    assert!(world.rollout().completed.is_none());
    world.set("new", 2, 3, 3);
    for status in [[4, 2, 3], [4, 3, 3], [3, 3, 2]] {
        world.workload(2, 3, status);
        assert!(world.rollout().completed.is_none(), "{status:?}");
    }
    world.workload(2, 3, [3, 3, 3]);
    assert_eq!(world.rollout().completed, Some(world.now));
}

#[test]
fn a_status_of_the_rollout_before_does_not_complete_this_one() {
    let mut world = World::at_rest();
    // The ReplicaSets' watch is ahead of the Deployment's, which still says "complete".
    world.set("new", 2, 1, 0);
    world.workload(1, 3, [3, 3, 3]);
    assert!(world.rollout().completed.is_none());
}

#[test]
fn a_paused_rollout_stays_open() {
    let mut world = World::rolling();
    world.workload_in("Deployment", 2, 3, [3, 3, 3], 2, true);
    assert!(world.rollout().completed.is_none());
    world.pass(300_000);
    assert!(world.rollout().completed.is_none());
    world.workload(2, 3, [3, 3, 3]);
    assert!(world.rollout().completed.is_some());
}

#[test]
fn an_old_pod_whose_containers_have_ended_is_not_gone_yet() {
    let mut world = World::rolling();
    world.set("old", 1, 0, 0);
    world.delete("old-b");
    world.delete("old-c");
    world.gone("old-a");
    world.gone("old-b");
    world.change("old-c", |pod| pod.finished = true);
    world.workload(2, 3, [3, 3, 3]);
    assert!(world.rollout().completed.is_some());
    assert!(world.rollout().last_old_pod_gone.is_none());
    world.pass(1_000);
    world.gone("old-c");
    assert_eq!(world.rollout().last_old_pod_gone, Some(world.now));
}

#[test]
fn the_last_old_pod_outlives_completion() {
    let mut world = World::rolling();
    world.set("old", 1, 0, 0);
    world.delete("old-b");
    world.delete("old-c");
    world.workload(2, 3, [3, 3, 3]);
    world.gone("old-a");
    world.gone("old-b");
    assert!(world.rollout().last_old_pod_gone.is_none());
    world.pass(30_000);
    world.gone("old-c");
    assert_eq!(world.rollout().last_old_pod_gone, Some(world.now));
}

#[test]
fn an_old_pod_whose_containers_have_exited_is_not_gone_yet() {
    let mut world = World::rolling();
    world.gone("old-a");
    world.set("old", 1, 0, 0);
    for pod in ["old-b", "old-c"] {
        world.delete(pod);
        world.change(pod, |facts| facts.finished = true);
    }
    world.gone("old-b");
    world.workload(2, 3, [3, 3, 3]);
    assert!(world.rollout().completed.is_some());
    assert!(world.rollout().last_old_pod_gone.is_none());
    world.pass(200);
    world.gone("old-c");
    assert_eq!(world.rollout().last_old_pod_gone, Some(world.now));
}

#[test]
fn an_old_pod_that_was_evicted_and_stays_as_a_record_is_no_old_pod() {
    let mut world = World::rolling();
    world.set("old", 1, 0, 0);
    world.change("old-b", |facts| facts.finished = true);
    world.delete("old-c");
    for pod in ["old-a", "old-c"] {
        world.gone(pod);
    }
    world.workload(2, 3, [3, 3, 3]);
    assert_eq!(world.rollout().last_old_pod_gone, Some(world.now));
}

#[test]
fn a_rollout_found_complete_was_complete_when_its_last_pod_became_ready() {
    let mut world = World::empty();
    world.unseen_pod("old-a");
    world.unseen_pod("new-a");
    world.slice(&[("old-a", Is::Ready)]);
    world.pass(60_000);
    world.slice(&[("old-a", Is::Ready), ("new-a", Is::Ready)]);
    let ready = world.now;
    world.pass(20_000);
    world.set("old", 1, 0, 0);
    world.set("new", 2, 1, 1);
    world.workload(2, 1, [1, 1, 1]);
    let facts = Arc::new(world.facts("new-a"));
    world.cluster(ClusterChange::Pod(facts));
    if let Some(rollout) = world.state.rollouts().all().next() {
        assert_eq!(rollout.completed, Some(ready.max(rollout.started)));
    }
}

#[test]
fn attempts_are_counted_to_the_rollout_of_the_service_dialled_until_its_tail_is_over() {
    let mut world = World::rolling();
    let counted = |world: &mut World, attempts| {
        let counts =
            AttemptCounts { original: VIP.parse().unwrap(), attempts, answered: 0, refused: 0 };
        world.input(What::Attempts(counts));
        world.rollout().attempts
    };
    let before = counted(&mut world, 100);
    assert_eq!(counted(&mut world, 150), before + 50);
    // The probes were attached anew: their counts begin anew.
    assert_eq!(counted(&mut world, 7), before + 57);
    world.set("old", 1, 0, 0);
    world.workload(2, 3, [3, 3, 3]);
    for pod in ["old-a", "old-b", "old-c"] {
        world.gone(pod);
    }
    world.pass(121_000);
    assert_eq!(counted(&mut world, 500), before + 57);
}

fn daemon_set(world: &mut World, generation: i64, observed: i64, revision: &str, updated: i32) {
    let base = world.state.owners().workload_by_uid("uid-api").unwrap().clone();
    let mut facts = (*base).clone();
    facts.object = object("DaemonSet", "agent");
    facts.resource_version = world.version();
    facts.generation = generation;
    facts.status = WorkloadStatus {
        observed_generation: observed,
        replicas: 3,
        updated,
        available: 3,
        update_revision: revision.into(),
        ..WorkloadStatus::default()
    };
    world.cluster(ClusterChange::Workload(Arc::new(facts)));
}

fn daemon_sets_completion(world: &World) -> Vec<bool> {
    let of_it = world.state.rollouts().of("uid-agent");
    of_it.map(|rollout| rollout.completed.is_some()).collect()
}

#[test]
fn a_daemon_set_is_complete_when_all_its_pods_are_of_the_new_revision_and_available() {
    let mut world = World::at_rest();
    daemon_set(&mut world, 1, 1, "r1", 3);
    daemon_set(&mut world, 2, 1, "r1", 3);
    daemon_set(&mut world, 2, 2, "r2", 1);
    assert_eq!(daemon_sets_completion(&world), [false]);
    daemon_set(&mut world, 2, 2, "r2", 3);
    assert_eq!(daemon_sets_completion(&world), [true]);
}

#[test]
fn a_daemon_sets_new_revision_that_comes_before_its_new_generation_is_not_complete() {
    let mut world = World::at_rest();
    daemon_set(&mut world, 1, 1, "r1", 3);
    daemon_set(&mut world, 1, 1, "r2", 3);
    assert_eq!(daemon_sets_completion(&world), [false]);
    daemon_set(&mut world, 2, 2, "r2", 3);
    assert_eq!(daemon_sets_completion(&world), [true]);
}

fn stateful_set(world: &mut World, current: &str, update: &str, updated: i32, partition: i32) {
    let base = world.state.owners().workload_by_uid("uid-api").unwrap().clone();
    let mut facts = (*base).clone();
    facts.object = object("StatefulSet", "db");
    facts.resource_version = world.version();
    facts.status = WorkloadStatus {
        observed_generation: facts.generation,
        replicas: 3,
        updated,
        available: 3,
        current_revision: current.into(),
        update_revision: update.into(),
        partition,
        ..WorkloadStatus::default()
    };
    world.cluster(ClusterChange::Workload(Arc::new(facts)));
}

#[test]
fn a_stateful_set_is_complete_when_its_revisions_agree_or_its_share_is_updated() {
    for (partition, done) in [(0, false), (2, true)] {
        let mut world = World::at_rest();
        stateful_set(&mut world, "db-1", "db-1", 3, partition);
        stateful_set(&mut world, "db-1", "db-2", 0, partition);
        let completed = |world: &World| {
            let mut of_it = world.state.rollouts().of("uid-db");
            of_it.next().unwrap().completed.is_some()
        };
        assert!(!completed(&world));
        stateful_set(&mut world, "db-1", "db-2", 1, partition);
        assert_eq!(completed(&world), done, "partition {partition}");
        stateful_set(&mut world, "db-2", "db-2", 3, partition);
        assert!(completed(&world));
    }
}

#[test]
fn a_stateful_set_first_looked_at_while_it_rolls_is_rolling() {
    let mut world = World::at_rest();
    stateful_set(&mut world, "db-1", "db-2", 1, 0);
    let rollout = world.state.rollouts().of("uid-db").next().expect("a rollout");
    assert_eq!(&*rollout.from.as_ref().unwrap().hash, "db-1");
}

#[test]
fn convergence_is_from_the_deletion_to_the_last_fresh_syn() {
    let mut world = World::rolling();
    let deleted = world.now;
    world.pass(1_500);
    world.fresh("old-a", None);
    let known = &world.rollout().convergence[0];
    // The deletion's time is truncated to the second.
    let nanos = known.nanos.unwrap();
    assert!((1_500_000_000..2_500_000_000).contains(&nanos), "{nanos}");
    assert!(nanos - known.precision_nanos <= world.now.since(deleted), "{known:#?}");
}

#[test]
fn convergence_is_not_measured_by_a_clock_that_cannot_be_believed() {
    let mut world = World::at_rest();
    world.stepped = 3_600;
    world.pass(1_000);
    world.set("new", 2, 1, 1);
    world.set("old", 1, 2, 3);
    world.delete("old-a");
    world.slice(&[("old-a", Is::Leaving), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
    world.pass(500);
    world.fresh("old-a", None);
    assert!(world.rollout().convergence.iter().all(|known| known.nanos.is_none()));
}

#[test]
fn of_more_than_a_thousand_rollouts_the_last_thousand_are_remembered() {
    let mut world = World::at_rest();
    for revision in 2..1_100 {
        world.set(&format!("set{revision}"), revision, 1, 1);
    }
    assert_eq!(world.state.rollouts().all().count(), 1_000);
    world.refused("old-a");
    assert_eq!(world.verdict().cause, Cause::Unknown);
}
