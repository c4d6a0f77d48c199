//! An agent that was not there for all of it says so, and invents nothing.

use rollrace::{
    engine::{ClusterChange, GapReason, Lost, MAX_GAPS, RolloutReport, What},
    model::{Cause, Mono, Sighting},
};

use crate::world::{Is, World};

const SECOND: u64 = 1_000_000_000;

fn report(world: &World) -> RolloutReport {
    world.state.rollout_report(world.rollout())
}

fn reasons(world: &World) -> Vec<GapReason> {
    world.state.coverage().gaps().map(|gap| gap.reason).collect()
}

/// An agent that comes in the middle of the rollout of [`World::rolling`]: `old-a` has been deleted.
fn restarted() -> World {
    let mut world = World::unsynced();
    world.set("new", 2, 1, 1);
    world.set("old", 1, 2, 3);
    for pod in ["old-a", "old-b", "old-c", "new-a"] {
        world.unseen_pod(pod);
    }
    // It was deleted before the probes came.
    let now = world.now;
    world.now = Mono(now.0 - 3 * SECOND);
    world.mark_deleted("old-a");
    world.now = now;
    world.pass(2_000);
    for pod in ["old-b", "old-c", "new-a"] {
        world.change(pod, |_| {});
    }
    let facts = std::sync::Arc::new(world.facts("old-a"));
    world.cluster(ClusterChange::Pod(facts));
    let rest = [("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Ready)];
    world.slice(&[("old-a", Is::Leaving), rest[0], rest[1], rest[2]]);
    world.cluster(ClusterChange::SlicesListed(vec![("shop".into(), "api-1".into())]));
    world.workload_in("Deployment", 2, 3, [4, 1, 3], 1, false);
    world.cluster(ClusterChange::Synced(true));
    world.pass(250);
    world
}

#[test]
fn what_it_was_there_for_is_not_partly_covered() {
    let mut world = World::rolling();
    world.refused("old-a");
    world.pass(40_000);
    let report = report(&world);
    assert!(!report.covered.partial && !report.lower_bound, "{report:#?}");
    assert_eq!(report.covered.since, Some(report.started));
    let coverage = world.state.coverage_report();
    assert!(coverage.since.is_some() && coverage.gaps.is_empty());
}

#[test]
fn it_does_not_cover_anything_before_the_watches_are_in_step() {
    let mut world = World::unsynced();
    world.pass(2_000);
    assert_eq!(world.state.coverage_report().since, None);
    world.cluster(ClusterChange::Synced(true));
    let since = world.state.coverage().since();
    assert_eq!(since, Some(world.now));
    world.cluster(ClusterChange::Synced(false));
    world.pass(1_000);
    world.cluster(ClusterChange::Synced(true));
    assert_eq!(world.state.coverage().since(), since, "verdicts waited: nothing is missing");
}

#[test]
fn after_a_restart_in_the_middle_the_rollout_is_partly_covered_and_later_failures_are_its() {
    let mut world = restarted();
    world.refused("old-a");
    let told = report(&world);
    assert!(told.covered.partial && told.lower_bound, "{told:#?}");
    let failure = world.verdict();
    assert_eq!(failure.cause, Cause::Rollout, "{failure:#?}");
    assert_eq!(failure.rollout, Some(world.rollout().id.clone()));
}

#[test]
fn an_attempt_of_whose_begin_nothing_was_seen_is_counted_and_not_invented() {
    let mut world = restarted();
    let mut attempt = world.attempt("old-a");
    (attempt.syns, attempt.backend) = (0, None);
    (attempt.first_syn, attempt.last_syn) = (Mono(0), Mono(0));
    let ended = Sighting::Abandoned { attempt, started: None, errno: 0, at: world.now };
    world.input(What::Saw(ended.clone()));
    world.no_verdict();
    assert_eq!(world.state.unseen(), 1);
    assert_eq!(reasons(&world), [], "it began before the agent");
    world.pass_coarsely(100_000);
    let again = world.attempt("old-a").key;
    let lost = Sighting::Abandoned {
        attempt: rollrace::model::Attempt { key: again, ..attempt },
        started: None,
        errno: 0,
        at: world.now,
    };
    world.input(What::Saw(lost));
    assert!(reasons(&world).contains(&GapReason::Lost), "this one did not");
}

#[test]
fn a_pod_that_was_gone_before_the_restart_is_nobody_whom_one_could_blame() {
    let mut world = restarted();
    world.unseen_pod("old-d");
    world.timed_out("old-d");
    let failure = world.verdict();
    assert_eq!((failure.cause, failure.rollout), (Cause::Unknown, None));
}

#[test]
fn how_long_a_pod_deleted_before_the_restart_was_chosen_is_not_measured() {
    let mut world = restarted();
    world.fresh("old-a", None);
    world.pass(1_000);
    let told = report(&world);
    assert_eq!(told.convergence.len(), 1, "{told:#?}");
    let known = &told.convergence[0];
    assert_eq!((known.seconds, known.fresh_syns_after), (None, 0), "a retransmit looks fresh");
}

#[test]
fn a_rollout_found_under_way_by_an_agent_that_just_came_may_have_begun_before_it() {
    let mut world = World::empty();
    // A rollback: the ReplicaSet's age tells nothing.
    world.set("new", 2, 2, 2);
    world.set("old", 3, 1, 1);
    world.workload_in("Deployment", 3, 3, [3, 1, 3], 2, false);
    assert!(report(&world).covered.partial);
}

#[test]
fn an_agent_that_did_not_run_for_a_while_has_a_gap_in_the_rollout_of_that_time() {
    let mut world = World::rolling();
    let before = world.now;
    world.now = world.now.plus(20 * SECOND);
    world.pass(250);
    assert_eq!(reasons(&world), [GapReason::Suspended]);
    let gap = *world.state.coverage().gaps().next().unwrap();
    assert_eq!((gap.from, gap.until), (before, world.now));
    let told = report(&world);
    assert_eq!((told.covered.partial, told.covered.gaps, told.lower_bound), (true, 1, true));
}

#[test]
fn what_was_lost_touches_the_rollouts_of_that_time_and_not_those_of_an_hour_later() {
    let mut world = World::at_rest();
    world.input(What::Lost(Lost { count: 3, since: Mono(world.now.0 - SECOND) }));
    assert_eq!(world.state.lost(), 3);
    world.pass_coarsely(80_000);
    world.set("new", 2, 1, 0);
    let told = report(&world);
    assert!(!told.lower_bound, "{told:#?} {:#?}", world.state.coverage_report());
    world.input(What::Lost(Lost { count: 1, since: world.now }));
    assert!(report(&world).lower_bound);
}

#[test]
fn probes_attached_anew_lose_what_was_in_flight() {
    let mut world = World::rolling();
    world.input(What::Attached);
    assert_eq!(reasons(&world), [GapReason::Probes]);
    assert!(report(&world).covered.partial);
}

#[test]
fn the_list_of_gaps_is_bounded_and_what_it_forgets_still_counts() {
    let mut world = World::rolling();
    for _ in 0..MAX_GAPS + 10 {
        world.now = world.now.plus(10 * SECOND);
        world.input(What::Lost(Lost { count: 1, since: world.now }));
    }
    let told = world.state.coverage_report();
    assert_eq!((told.gaps.len(), told.gaps_forgotten), (MAX_GAPS, 10));
    let counts: u64 = world.state.coverage().counts().map(|(_, count)| count).sum();
    assert_eq!(counts, u64::try_from(MAX_GAPS).unwrap() + 10);
    assert!(report(&world).covered.partial);
}
