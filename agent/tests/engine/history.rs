//! What one agent leaves to the next: a tail that began before a restart is still attributed after it.

use rollrace::{
    engine::{GapReason, Request, What, step},
    model::{Cause, Class, Phase},
};

use crate::world::{Is, World};

const SECOND: u64 = 1_000_000_000;

const NEW: [(&str, Is); 3] = [("new-a", Is::Ready), ("new-b", Is::Ready), ("new-c", Is::Ready)];

/// One failure was told, the rollout is complete, and its last old pod is gone.
fn complete() -> World {
    let mut world = World::rolling();
    world.pass(200);
    world.refused("old-a");
    for (old, new) in [("old-b", "new-b"), ("old-c", "new-c")] {
        world.pod(new, "n2");
        world.delete(old);
    }
    for pod in ["old-a", "old-b", "old-c"] {
        world.gone(pod);
    }
    world.set("old", 1, 0, 0);
    world.set("new", 2, 3, 3);
    world.slice(&NEW);
    world.workload_in("Deployment", 2, 3, [3, 3, 3], 2, false);
    world.pass(5_000);
    assert!(world.rollout().completed.is_some() && world.rollout().last_old_pod_gone.is_some());
    assert_eq!(world.failures.len(), 1);
    world.failures.clear();
    world
}

#[test]
fn a_late_timeout_after_a_restart_is_blamed_on_the_rollout_that_was_complete_before_it() {
    let mut world = complete();
    world.restart(4_000, false);
    world.listed(&NEW, 0, 3);
    let mut attempt = world.attempt("old-b");
    attempt.stale = true;
    world.pass(3_000);
    world.abandon(attempt, 0);
    let failure = world.verdict();
    assert_eq!((failure.class, failure.cause), (Class::StaleNat, Cause::Rollout), "{failure:#?}");
    assert_eq!((failure.phase, &*failure.pod), (Phase::After, "old-b"), "{failure:#?}");
    let rollout = world.rollout();
    assert_eq!(rollout.failures().values().sum::<u64>(), 2, "the one from before is still counted");
    assert_eq!(rollout.failures_after(), 1);
}

#[test]
fn failures_told_before_a_restart_are_told_after_it() {
    let mut world = complete();
    let before: Vec<_> = world.state.failures().map(|f| world.state.failure_report(f)).collect();
    world.restart(4_000, false);
    world.listed(&NEW, 0, 3);
    let after: Vec<_> = world.state.failures().map(|f| world.state.failure_report(f)).collect();
    assert_eq!(before, after);
    assert!(world.failures.is_empty(), "nothing is told twice");
}

#[test]
fn the_time_without_an_agent_is_a_gap_and_only_rollouts_of_that_time_are_lower_bounds() {
    let mut world = complete();
    world.pass(130_000);
    let stopped = world.now;
    world.restart(4_000, false);
    let open = world.state.coverage_report().gaps;
    assert_eq!(open.len(), 1, "the gap is told while it lasts: {open:#?}");
    world.listed(&NEW, 0, 3);
    let gaps: Vec<_> = world.state.coverage().gaps().collect();
    assert_eq!((gaps.len(), gaps[0].reason, gaps[0].from), (1, GapReason::Stopped, stopped));
    assert!(gaps[0].until >= stopped.plus(4 * SECOND));
    let report = world.state.rollout_report(world.rollout());
    assert!(!report.lower_bound, "it was over before: {report:#?}");
}

#[test]
fn a_rollout_that_an_agent_was_not_there_for_is_partly_covered() {
    let mut world = World::rolling();
    world.pass(200);
    world.restart(4_000, false);
    world.listed(&[("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Ready)], 2, 1);
    let report = world.state.rollout_report(world.rollout());
    assert!(report.covered.partial && report.covered.gaps == 1, "{report:#?}");
}

#[test]
fn a_pod_that_went_while_no_agent_ran_is_known_to_have_gone() {
    let mut world = World::rolling();
    world.pass(200);
    world.restart(4_000, false);
    // old-a was leaving, old-b was not: both went meanwhile.
    world.listed(&[("old-c", Is::Ready), ("new-a", Is::Ready)], 1, 2);
    world.timed_out("old-b");
    let failure = world.verdict();
    assert_eq!((failure.cause, &*failure.pod), (Cause::Rollout, "old-b"), "{failure:#?}");
}

#[test]
fn a_workload_in_the_middle_of_a_rollout_is_followed_again() {
    let mut world = World::rolling();
    world.pass(200);
    world.restart(1_000, false);
    let follows = |request: &Request| matches!(request, Request::Follow { workload, .. } if &*workload.name == "api");
    assert_eq!(world.requests.iter().filter(|request| follows(request)).count(), 1);
    let mut settled = complete();
    settled.restart(1_000, false);
    assert!(!settled.requests.iter().any(follows), "{:#?}", settled.requests);
}

#[test]
fn a_pod_that_stayed_over_the_restart_goes_on_and_is_not_gone() {
    let mut world = World::rolling();
    world.restart(1_000, false);
    let rest = [("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Ready)];
    world.listed(&rest, 2, 1);
    for (pod, _) in rest {
        let lives = world.state.endpoints().at(world.backend(pod));
        assert_eq!(lives.len(), 1, "{lives:#?}");
        assert_eq!((lives[0].gone, lives[0].left), (None, None), "{lives:#?}");
    }
    let (serving, leaving, gone) = world.state.endpoints().counts();
    assert_eq!((serving, leaving, gone), (3, 0, 1));
}

#[test]
fn after_a_reboot_what_was_decided_is_told_as_it_was_and_the_reboot_is_a_gap() {
    let mut world = complete();
    let (failures, rollout) = {
        let state = &world.state;
        let failures: Vec<_> = state.failures().map(|f| state.failure_report(f)).collect();
        (failures, state.rollout_report(world.rollout()))
    };
    world.restart(60_000, true);
    world.listed(&NEW, 0, 3);
    let past = world.state.past();
    assert_eq!(past.failures, failures);
    assert_eq!(past.rollouts.len(), 1);
    assert_eq!(
        (&past.rollouts[0].id, &past.rollouts[0].failures),
        (&rollout.id, &rollout.failures)
    );
    assert_eq!(past.rollouts[0].started, rollout.started);
    let gaps = world.state.coverage_report().gaps;
    assert_eq!(gaps.len(), 1, "{gaps:#?}");
    assert_eq!(gaps[0].reason, "stopped");
    assert!(gaps[0].until.duration_since(gaps[0].from).as_secs() >= 59, "{gaps:#?}");
    // And over the next restart too.
    world.restart(1_000, false);
    assert_eq!(world.state.past().failures, failures);
}

#[test]
fn what_is_older_than_a_day_is_not_kept() {
    let mut world = complete();
    world.pass_coarsely(86_400_000 + 60_000);
    world.restart(1_000, false);
    assert_eq!(world.state.failures().count(), 0);
    assert_eq!(world.state.rollouts().all().count(), 0);
}

#[test]
fn a_recording_that_begins_with_a_history_replays_to_the_same() {
    let mut world = complete();
    world.restart(4_000, false);
    world.listed(&NEW, 0, 3);
    let mut attempt = world.attempt("old-c");
    attempt.stale = true;
    world.pass(3_000);
    world.abandon(attempt, 0);
    world.pass(40_000);
    let mut state = rollrace::engine::State::new(rollrace::engine::Config::new("n1"));
    let mut failures = Vec::new();
    for input in &world.inputs {
        let line = serde_json::to_string(input).unwrap();
        let input = serde_json::from_str(&line).unwrap();
        failures.extend(step(&mut state, input).failures);
    }
    assert_eq!(failures, world.failures);
    assert!(matches!(world.inputs[1].what, What::Recalled(_)));
}
