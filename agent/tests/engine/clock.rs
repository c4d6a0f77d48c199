//! The civil clock of the node is stepped by an hour in the middle of a rollout: packets are ordered
//! by the monotonic clock, and nothing is lost, moved or blamed on another.

use rollrace::model::{Cause, Phase, Side};

use crate::world::{Is, World, wall};

/// Seconds.
const HOUR: i64 = 3_600;

/// Steps the clock; the agent's tick tells.
fn step(world: &mut World, seconds: i64) {
    world.stepped += seconds;
    world.pass(250);
}

#[test]
fn a_step_in_the_middle_of_a_rollout_moves_no_failure_and_no_phase() {
    for hour in [HOUR, -HOUR] {
        let mut world = World::rolling();
        let id = world.rollout().id.clone();
        world.refused("old-a");
        step(&mut world, hour);
        world.set("old", 1, 1, 2);
        world.delete("old-b");
        let rest = [("old-c", Is::Ready), ("new-a", Is::Ready)];
        world.slice(&[("old-a", Is::Leaving), ("old-b", Is::Leaving), rest[0], rest[1]]);
        world.set("old", 1, 1, 1);
        world.refused("old-b");
        world.timed_out("old-b");
        step(&mut world, -2 * hour);
        world.refused("old-b");
        world.pass(40_000);
        assert_eq!(world.failures.len(), 4);
        for failure in &world.failures {
            let blamed = (failure.cause, failure.side, failure.phase);
            assert_eq!(blamed, (Cause::Rollout, Some(Side::Old), Phase::During), "{failure:#?}");
            assert_eq!(failure.rollout.as_ref(), Some(&id));
        }
        assert_eq!(world.rollout().failures().values().sum::<u64>(), 4);
    }
}

#[test]
fn times_are_shown_by_the_clock_as_it_stands_now() {
    let mut world = World::rolling();
    world.refused("old-a");
    world.pass(5_000);
    let failure = world.failures[0].clone();
    let before = world.state.failure_report(&failure);
    assert_eq!(before.first_syn, wall(failure.first_syn, 0));
    step(&mut world, HOUR);
    let after = world.state.failure_report(&failure);
    assert_eq!(after.first_syn, wall(failure.first_syn, HOUR));
    let rollout = world.state.rollout_report(world.rollout());
    assert!(rollout.first_failure > Some(rollout.started), "both by one clock: {rollout:#?}");
    assert_eq!(
        after.ended.duration_since(after.first_syn),
        before.ended.duration_since(before.first_syn)
    );
}

#[test]
fn a_deletion_that_the_stepped_clock_cannot_date_is_not_measured_and_a_later_one_is() {
    for hour in [HOUR, -HOUR] {
        let mut world = World::rolling();
        step(&mut world, hour);
        // The API server's clock is right: these two do not agree by an hour.
        world.delete("old-b");
        world.slice(&[("old-b", Is::Leaving), ("old-c", Is::Ready), ("new-a", Is::Ready)]);
        world.set("old", 1, 1, 2);
        world.fresh("old-b", None);
        step(&mut world, -hour);
        world.delete("old-c");
        world.slice(&[("old-c", Is::Leaving), ("new-a", Is::Ready)]);
        world.set("old", 1, 0, 1);
        world.pass(2_500);
        world.fresh("old-c", None);
        let report = world.state.rollout_report(world.rollout());
        let of = |pod: &str| report.convergence.iter().find(|known| &*known.pod == pod);
        assert!(of("old-b").is_none_or(|known| known.seconds.is_none()), "{report:#?}");
        let seconds = of("old-c").and_then(|known| known.seconds).expect("it is measured");
        assert!((2.0..4.0).contains(&seconds), "{seconds}");
    }
}

#[test]
fn a_rollout_first_seen_under_a_stepped_clock_is_found_all_the_same() {
    for hour in [HOUR, -HOUR] {
        let mut world = World::empty();
        step(&mut world, hour);
        world.set("old", 1, 2, 3);
        world.set("new", 2, 1, 1);
        world.workload_in("Deployment", 2, 3, [3, 1, 3], 1, false);
        for pod in ["old-a", "old-b", "new-a"] {
            world.pod(pod, "n2");
        }
        let rest = [("old-b", Is::Ready), ("new-a", Is::Ready)];
        world.slice(&[("old-a", Is::Ready), rest[0], rest[1]]);
        world.delete("old-a");
        world.slice(&[("old-a", Is::Leaving), rest[0], rest[1]]);
        world.refused("old-a");
        let failure = world.verdict();
        assert_eq!(failure.cause, Cause::Rollout, "{failure:#?}");
        assert_eq!(&*failure.rollout.expect("a rollout").target, "new");
    }
}

#[test]
fn a_step_is_no_gap() {
    let mut world = World::rolling();
    step(&mut world, HOUR);
    step(&mut world, -2 * HOUR);
    let report = world.state.rollout_report(world.rollout());
    assert!(!report.covered.partial, "{report:#?} {:#?}", world.state.coverage_report());
}
