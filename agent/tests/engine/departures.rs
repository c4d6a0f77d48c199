//! Why an endpoint left: the cause of failures on it.

use std::sync::Arc;

use rollrace::{
    engine::ClusterChange,
    model::{Cause, Class, Failure, Phase, Side},
};

use crate::world::{Is, World, object};

fn is_by_rollout(failure: &Failure, target: &str) {
    assert_eq!(failure.cause, Cause::Rollout, "{failure:#?}");
    assert_eq!(failure.side, Some(Side::Old), "{failure:#?}");
    assert_eq!(&*failure.rollout.as_ref().unwrap().target, target, "{failure:#?}");
}

#[test]
fn a_port_that_never_was_open_was_closed_by_no_rollout() {
    for (seconds, cause) in [(60, Cause::Unknown), (1, Cause::Rollout)] {
        let mut world = World::at_rest();
        let original = "10.96.0.80:81".parse().unwrap();
        world.dial_in_vain(original);
        world.pass(seconds * 1_000);
        world.roll();
        let attempt = world.attempt_to(original, world.backend("old-a"));
        world.refuse(attempt);
        assert_eq!(world.verdict().cause, cause, "refused for {seconds} s before");
    }
}

#[test]
fn a_syn_refused_by_an_old_pod_is_blamed_on_the_rollout_that_removed_it() {
    let mut world = World::rolling();
    world.pass(200);
    world.refused("old-a");
    let failure = world.verdict();
    is_by_rollout(&failure, "new");
    assert_eq!((failure.class, failure.phase), (Class::Refused, Phase::During));
    assert_eq!((&*failure.namespace, &*failure.service), ("shop", "api"));
    assert_eq!(&*failure.pod, "old-a");
    assert_eq!(&*failure.workload.unwrap().name, "api");
}

#[test]
fn the_verdict_on_a_pod_that_its_controller_removed_waits_for_nothing() {
    let mut world = World::rolling();
    world.pass(200);
    world.refused("old-a");
    assert_eq!(world.failures.len(), 1);
}

#[test]
fn a_syn_unanswered_after_its_pod_was_gone_is_a_timeout_of_the_rollout() {
    let mut world = World::rolling();
    world.pass(300);
    world.gone("old-a");
    world.slice(&[("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Ready)]);
    world.pass(1_000);
    world.timed_out("old-a");
    let failure = world.verdict();
    is_by_rollout(&failure, "new");
    assert_eq!((failure.class, failure.syns), (Class::Timeout, 3));
}

#[test]
fn a_new_syn_on_the_entry_of_an_unanswered_one_is_stale_nat_only_if_its_endpoint_had_left() {
    for (leaves, errno, class) in [
        (true, 0, Class::StaleNat),
        (true, 113, Class::StaleNat),
        (true, 111, Class::Refused),
        (false, 0, Class::Timeout),
    ] {
        let mut world = World::rolling();
        world.pass(300);
        world.gone("old-a");
        world.slice(&[("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Ready)]);
        world.pass(5_000);
        let mut attempt = world.attempt(if leaves { "old-a" } else { "old-b" });
        attempt.stale = true;
        world.pass(3_000);
        attempt.syns = 3;
        attempt.last_syn = world.now;
        world.abandon(attempt, errno);
        let failure = world.verdict();
        assert_eq!(failure.class, class, "{failure:#?}");
        let told = failure.evidence.iter().any(|why| why.contains("entry of an earlier SYN"));
        assert_eq!(told, class == Class::StaleNat, "{failure:#?}");
    }
}

#[test]
fn a_failure_begun_after_completion_is_of_phase_after() {
    let mut world = World::rolling();
    world.gone("old-a");
    world.set("old", 1, 0, 0);
    world.set("new", 2, 3, 3);
    world.workload(2, 3, [3, 3, 3]);
    world.pass(50);
    world.timed_out("old-a");
    assert_eq!(world.verdict().phase, Phase::After);
    let rollout = world.rollout();
    assert_eq!((rollout.failures_after(), rollout.failures()[&Class::Timeout]), (1, 1));
}

#[test]
fn a_timeout_that_began_before_completion_is_of_phase_during() {
    let mut world = World::rolling();
    let attempt = world.attempt("old-a");
    world.pass(1_000);
    world.set("old", 1, 0, 0);
    world.workload(2, 3, [3, 3, 3]);
    world.pass(2_000);
    world.abandon(attempt, 0);
    assert_eq!(world.verdict().phase, Phase::During);
}

#[test]
fn a_pod_with_a_true_disruption_target_was_evicted() {
    let mut world = World::at_rest();
    world.change("old-a", |pod| pod.disruption = Some("EvictionByEvictionAPI".into()));
    world.delete("old-a");
    world.slice(&[("old-a", Is::Leaving), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
    world.refused("old-a");
    let failure = world.verdict();
    assert_eq!((failure.cause, failure.phase), (Cause::Eviction, Phase::None));
}

#[test]
fn an_eviction_of_an_old_pod_during_a_rollout_is_no_rollout_though_its_pod_comes_late() {
    let mut world = World::rolling();
    world.mark_deleted("old-b");
    world.slice(&[("old-b", Is::Leaving), ("old-c", Is::Ready), ("new-a", Is::Ready)]);
    world.refused("old-b");
    world.pass(2_000);
    world.change("old-b", |pod| pod.disruption = Some("DeletionByTaintManager".into()));
    assert_eq!(world.verdict().cause, Cause::Eviction);
}

#[test]
fn a_pod_removed_because_fewer_were_wanted_was_scaled_down() {
    let mut world = World::at_rest();
    world.workload_in("Deployment", 2, 2, [3, 3, 3], 1, false);
    world.set("old", 1, 2, 3);
    world.delete("old-a");
    world.slice(&[("old-a", Is::Leaving), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
    world.set("old", 1, 2, 2);
    world.refused("old-a");
    let failure = world.verdict();
    assert_eq!((failure.cause, failure.rollout), (Cause::ScaleDown, None));
}

#[test]
fn a_scale_down_is_seen_though_the_workload_is_first_looked_at_afterwards() {
    let mut world = World::empty();
    for pod in ["old-a", "old-b", "old-c"] {
        world.unseen_pod(pod);
    }
    world.slice(&[("old-a", Is::Ready), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
    world.pass(60_000);
    world.mark_deleted("old-a");
    world.slice(&[("old-a", Is::Leaving), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
    world.refused("old-a");
    world.pass(500);
    world.set("old", 1, 2, 2);
    world.workload(1, 2, [2, 2, 2]);
    for pod in ["old-a", "old-b", "old-c"] {
        let facts = Arc::new(world.facts(pod));
        world.cluster(ClusterChange::Pod(facts));
    }
    assert_eq!(world.verdict().cause, Cause::ScaleDown);
}

#[test]
fn a_pod_deleted_by_hand_whose_set_makes_another_was_deleted() {
    let mut world = World::at_rest();
    world.delete("old-a");
    world.slice(&[("old-a", Is::Leaving), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
    world.refused("old-a");
    world.set("old", 1, 3, 2);
    world.pod("old-d", "n2");
    world.set("old", 1, 3, 3);
    assert_eq!(world.verdict().cause, Cause::Deleted);
}

#[test]
fn an_old_pod_deleted_by_hand_during_a_rollout_is_not_blamed_on_it() {
    let mut world = World::rolling();
    world.pass(300);
    world.gone("old-a");
    world.slice(&[("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Ready)]);
    world.pass(500);
    world.delete("old-b");
    world.slice(&[("old-b", Is::Leaving), ("old-c", Is::Ready), ("new-a", Is::Ready)]);
    world.refused("old-b");
    world.set("old", 1, 2, 1);
    world.pod("old-d", "n2");
    world.set("old", 1, 2, 2);
    assert_eq!(world.verdict().cause, Cause::Deleted);
}

#[test]
fn after_a_deletion_by_hand_the_old_pods_that_the_controller_removes_are_the_rollouts() {
    let mut world = World::rolling();
    world.delete("old-b");
    world.set("old", 1, 2, 1);
    world.pod("old-d", "n2");
    world.set("old", 1, 2, 2);
    world.pass(2_000);
    world.set("old", 1, 1, 2);
    world.delete("old-d");
    world.slice(&[("old-d", Is::Leaving), ("old-c", Is::Ready), ("new-a", Is::Ready)]);
    world.refused("old-d");
    is_by_rollout(&world.verdict(), "new");
}

#[test]
fn pods_of_a_deployment_that_was_deleted_are_deleted() {
    let mut world = World::at_rest();
    let facts = world.state.owners().workload_by_uid("uid-api").unwrap().clone();
    world.cluster(ClusterChange::WorkloadGone(facts));
    for pod in ["old-a", "old-b", "old-c"] {
        world.delete(pod);
    }
    world.slice(&[("old-a", Is::Leaving), ("old-b", Is::Leaving), ("old-c", Is::Leaving)]);
    world.refused("old-a");
    assert_eq!(world.verdict().cause, Cause::Deleted);
}

#[test]
fn a_restart_explains_a_pod_that_was_not_ready_for_a_while() {
    let mut world = World::at_rest();
    world.slice(&[("old-a", Is::NotReady), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
    world.refused("old-a");
    world.pass(1_000);
    world.change("old-a", |pod| pod.restarts = 1);
    world.slice(&[("old-a", Is::Ready), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
    assert_eq!(world.verdict().cause, Cause::Restart);
}

#[test]
fn an_old_pod_that_is_only_not_ready_during_a_rollout_was_removed_by_nobody() {
    let mut world = World::rolling();
    world.slice(&[("old-a", Is::Leaving), ("old-b", Is::NotReady), ("new-a", Is::Ready)]);
    world.slice(&[("old-b", Is::NotReady), ("old-c", Is::Ready), ("new-a", Is::Ready)]);
    world.refused("old-b");
    let failure = world.verdict();
    assert_eq!(failure.cause, Cause::Unknown, "{failure:#?}");
}

#[test]
fn of_two_rollouts_that_overlap_the_one_that_removed_that_pod_is_blamed() {
    let mut world = World::rolling();
    world.pass(200);
    // A third revision, before the second has replaced the first.
    world.set("newer", 3, 1, 0);
    world.set("new", 2, 0, 1);
    world.delete("new-a");
    world.slice(&[("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Leaving)]);
    world.set("new", 2, 0, 0);
    world.refused("old-a");
    world.refused("new-a");
    world.pass(40_000);
    let [first, second] = &world.failures[..] else { panic!("{:#?}", world.failures) };
    is_by_rollout(first, "new");
    is_by_rollout(second, "newer");
    let superseded: Vec<bool> =
        world.state.rollouts().all().map(|rollout| rollout.superseded).collect();
    assert_eq!(superseded, [true, false]);
}

#[test]
fn a_rollback_is_a_rollout_of_its_own_with_the_next_ordinal() {
    let mut world = World::rolling();
    world.workload_in("Deployment", 3, 3, [3, 1, 3], 2, false);
    world.set("old", 3, 3, 2);
    world.set("new", 2, 0, 1);
    world.delete("new-a");
    world.slice(&[("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Leaving)]);
    world.set("new", 2, 0, 0);
    world.refused("new-a");
    let failure = world.verdict();
    is_by_rollout(&failure, "old");
    assert_eq!(failure.rollout.unwrap().ordinal, 2);
}

#[test]
fn a_pod_that_the_controller_still_removed_for_the_rollout_just_turned_back_is_blamed_on_that_one()
{
    let mut world = World::rolling();
    world.pass(200);
    // The template goes back, and the controller has not heard of it when it scales down.
    world.set("old", 3, 1, 2);
    world.workload_in("Deployment", 3, 3, [3, 1, 3], 3, false);
    world.pass(20);
    world.delete("old-b");
    world.slice(&[("old-b", Is::Leaving), ("old-c", Is::Ready), ("new-a", Is::Ready)]);
    world.set("old", 3, 1, 1);
    world.refused("old-b");
    world.set("old", 3, 2, 1);
    world.pass(10_000);
    let failure = world.verdict();
    is_by_rollout(&failure, "new");
    assert_eq!(failure.rollout.unwrap().ordinal, 1);
}

#[test]
fn a_rollback_just_after_the_first_look_begins_then_and_not_with_its_old_replica_set() {
    let mut world = World::empty();
    // Of late, as in a cluster that is some seconds old.
    world.sets_made = -10;
    world.set("old", 1, 3, 3);
    world.set("new", 2, 1, 0);
    world.workload_in("Deployment", 2, 3, [4, 1, 3], 2, false);
    world.pass(5_000);
    let before = world.now;
    world.set("old", 3, 3, 3);
    world.workload_in("Deployment", 3, 3, [4, 3, 3], 3, false);
    let begun = world.state.rollouts().all().last().unwrap();
    assert_eq!((&*begun.to.hash, begun.started >= before), ("old", true), "{begun:#?}");
}

#[test]
fn a_rollback_that_was_complete_when_first_looked_at_is_blamed_for_the_pod_it_removed() {
    let mut world = World::empty();
    world.unseen_pod("bad-a");
    world.unseen_pod("good-a");
    world.slice(&[("bad-a", Is::Ready)]);
    world.pass(60_000);
    world.mark_deleted("bad-a");
    world.slice(&[("bad-a", Is::Leaving), ("good-a", Is::Ready)]);
    world.pass(100);
    world.refused("bad-a");
    world.pass(500);
    // Both sets are a day old: their age shows no rollout.
    world.set("bad", 2, 0, 0);
    world.set("good", 3, 1, 1);
    world.workload(3, 1, [1, 1, 1]);
    for pod in ["bad-a", "good-a"] {
        let facts = Arc::new(world.facts(pod));
        world.cluster(ClusterChange::Pod(facts));
    }
    let failure = world.verdict();
    is_by_rollout(&failure, "good");
    assert_eq!(&*world.rollout().from.as_ref().unwrap().hash, "bad");
}

#[test]
fn a_rollout_whose_begin_comes_by_a_slower_watch_than_the_departure_is_blamed() {
    let mut world = World::at_rest();
    world.set("old", 1, 2, 3);
    world.delete("old-a");
    world.slice(&[("old-a", Is::Leaving), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
    world.set("old", 1, 2, 2);
    world.refused("old-a");
    world.pass(3_000);
    world.set("new", 2, 1, 1);
    is_by_rollout(&world.verdict(), "new");
}

#[test]
fn owners_of_an_unknown_kind_roll_out_too() {
    let mut world = World::empty();
    world.set_of("Rollout", "old", 1, 1, 1);
    world.workload_in("Rollout", 1, 1, [1, 1, 1], 1, false);
    world.pod("old-a", "n2");
    world.slice(&[("old-a", Is::Ready)]);
    world.pass(60_000);
    world.set_of("Rollout", "new", 2, 1, 1);
    world.set_of("Rollout", "old", 1, 0, 1);
    world.delete("old-a");
    world.slice(&[("old-a", Is::Leaving)]);
    world.refused("old-a");
    let failure = world.verdict();
    is_by_rollout(&failure, "new");
    assert_eq!(&*failure.workload.unwrap().kind, "Rollout");
}

#[test]
fn a_pod_that_nobody_saw_again_is_placed_by_the_set_that_its_name_was_made_from() {
    let mut world = World::rolling();
    world.unseen_pod("old-z");
    world.slice(&[("old-z", Is::Ready), ("new-a", Is::Ready)]);
    world.pass(1_000);
    world.slice(&[("new-a", Is::Ready)]);
    world.refused("old-z");
    world.cluster(ClusterChange::Owner {
        namespace: "shop".into(),
        pod: "old-z".into(),
        uid: "uid-old-z".into(),
        owner: Some(object("ReplicaSet", "old")),
        how: "only ReplicaSet old makes such a name".into(),
    });
    is_by_rollout(&world.verdict(), "new");
}

#[test]
fn a_stateful_set_removes_its_old_pods_by_rollout_though_it_wants_as_many_throughout() {
    use rollrace::model::WorkloadStatus;
    let mut world = World::at_rest();
    let base = world.state.owners().workload_by_uid("uid-api").unwrap().clone();
    let mut facts = (*base).clone();
    facts.object = object("StatefulSet", "db");
    facts.wanted = 1;
    facts.resource_version = world.version();
    facts.status = WorkloadStatus {
        observed_generation: 2,
        current_revision: "db-1".into(),
        update_revision: "db-1".into(),
        ..facts.status
    };
    world.cluster(ClusterChange::Workload(Arc::new(facts.clone())));
    world.pod("db-0", "n2");
    world.change("db-0", |pod| {
        pod.owner = Some(object("StatefulSet", "db"));
        pod.revision_hash = "db-1".into();
    });
    world.slice(&[("db-0", Is::Ready)]);
    world.pass(60_000);
    facts.generation = 2;
    facts.status.update_revision = "db-2".into();
    facts.resource_version = world.version();
    world.cluster(ClusterChange::Workload(Arc::new(facts)));
    world.delete("db-0");
    world.slice(&[("db-0", Is::Leaving)]);
    world.refused("db-0");
    is_by_rollout(&world.verdict(), "db-2");
}
