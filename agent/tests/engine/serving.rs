//! Failures on endpoints that did not leave.

use rollrace::{
    engine::{FreshSyns, Watch, What},
    model::{Cause, Phase, Side},
};

use crate::world::{Is, World};

const READY: [(&str, Is); 3] = [("old-a", Is::Ready), ("old-b", Is::Ready), ("old-c", Is::Ready)];

/// A new pod is marked ready; nobody has answered there.
fn with_a_new_pod() -> World {
    begin_with_a_new_pod(World::at_rest())
}

fn begin_with_a_new_pod(mut world: World) -> World {
    world.workload_in("Deployment", 2, 3, [3, 3, 3], 1, false);
    world.set("new", 2, 1, 0);
    world.pod("new-a", "n2");
    world.slice(&[READY[0], READY[1], READY[2], ("new-a", Is::Ready)]);
    world
}

#[test]
fn a_new_pod_that_answers_only_later_is_the_rollouts_new_side() {
    let mut world = with_a_new_pod();
    world.refused("new-a");
    world.pass(1_500);
    world.answered("new-a");
    world.pass(250);
    let failure = &world.failures[0];
    assert_eq!((failure.cause, failure.side), (Cause::Rollout, Some(Side::New)));
    assert_eq!(failure.phase, Phase::During);
}

#[test]
fn a_new_pod_that_never_answers_is_the_rollouts_new_side() {
    let mut world = with_a_new_pod();
    world.refused("new-a");
    world.pass(500);
    world.fresh("new-a", None);
    assert_eq!(world.verdict().side, Some(Side::New));
}

#[test]
fn a_new_pod_did_not_close_a_port_that_never_was_open() {
    let mut world = World::at_rest();
    let original = "10.96.0.80:81".parse().unwrap();
    world.dial_in_vain(original);
    world.pass(60_000);
    let mut world = begin_with_a_new_pod(world);
    let attempt = world.attempt_to(original, world.backend("new-a"));
    world.refuse(attempt);
    world.fresh("new-a", None);
    assert_eq!(world.verdict().cause, Cause::Unknown);
}

#[test]
fn a_new_pod_of_whose_answers_nothing_is_known_is_not_blamed() {
    let mut world = with_a_new_pod();
    world.refused("new-a");
    assert_eq!(world.verdict().cause, Cause::Unknown);
}

#[test]
fn a_new_pod_that_had_answered_is_not_blamed_for_not_listening() {
    let mut world = with_a_new_pod();
    world.answered("new-a");
    world.pass(5_000);
    world.refused("new-a");
    assert_eq!(world.verdict().cause, Cause::Unknown);
}

#[test]
fn the_answers_of_the_addresss_last_owner_say_nothing_of_the_new_pods() {
    let mut world = with_a_new_pod();
    let long_ago = rollrace::model::Mono(world.now.0 - 50_000_000_000);
    world.fresh("new-a", Some(long_ago));
    world.refused("new-a");
    // Its own are hidden: it may have answered.
    assert_eq!(world.verdict().cause, Cause::Unknown);
}

/// A new pod of the rollout has the address of an old one, which had answered and is gone since then.
fn with_a_new_pod_at_an_old_address(after_millis: u64) -> World {
    let mut world = with_a_new_pod();
    world.answered("old-a");
    world.delete("old-a");
    world.slice(&[("old-a", Is::Leaving), READY[1], READY[2], ("new-a", Is::Ready)]);
    world.gone("old-a");
    world.slice(&[READY[1], READY[2], ("new-a", Is::Ready)]);
    world.pass(after_millis);
    world.pod("new-b", "n2");
    let ips = world.facts("old-a").ips;
    world.change("new-b", |pod| pod.ips = ips);
    world.slice(&[READY[1], READY[2], ("new-a", Is::Ready), ("new-b", Is::Ready)]);
    world
}

#[test]
fn when_an_address_passes_on_the_kernel_is_told_to_count_answers_anew() {
    let mut world = with_a_new_pod();
    world.slice(&[READY[1], READY[2], ("new-a", Is::Ready)]);
    let old = world.backend("old-a");
    let anew = world.watch.iter().filter(|watch| matches!(watch, Watch::Anew(..)));
    assert_eq!(anew.collect::<Vec<_>>(), [&Watch::Anew(old, world.now)]);
}

#[test]
fn a_new_pod_at_an_old_address_is_blamed_by_its_own_answers() {
    let mut world = with_a_new_pod_at_an_old_address(15_000);
    world.refused("new-b");
    world.pass(1_500);
    world.answered("new-b");
    let failure = world.verdict();
    assert_eq!((failure.cause, failure.side), (Cause::Rollout, Some(Side::New)), "{failure:#?}");
    assert_eq!(&*failure.pod, "new-b");
}

#[test]
fn one_that_took_the_address_over_at_once_may_have_answered_before_and_is_not_blamed() {
    let mut world = with_a_new_pod_at_an_old_address(2_000);
    world.refused("new-b");
    world.pass(1_500);
    world.answered("new-b");
    assert_eq!(world.verdict().cause, Cause::Unknown);
}

#[test]
fn where_the_kernel_has_forgotten_answers_silence_proves_nothing() {
    let mut world = with_a_new_pod();
    world.refused("new-a");
    world.pass(500);
    let fresh = FreshSyns {
        endpoint: world.backend("new-a"),
        last: world.now,
        first_answer: None,
        answers_forgotten: true,
        by_second: Vec::new(),
    };
    world.input(What::Fresh(fresh));
    assert_eq!(world.verdict().cause, Cause::Unknown);
}

#[test]
fn the_new_side_of_a_rollout_is_blamed_though_the_next_one_has_begun() {
    let mut world = with_a_new_pod();
    world.refused("new-a");
    world.pass(1_000);
    world.set("newer", 3, 1, 0);
    world.fresh("new-a", None);
    let failure = world.verdict();
    assert_eq!((failure.cause, failure.side), (Cause::Rollout, Some(Side::New)));
    assert_eq!(&*failure.rollout.unwrap().target, "new");
}

#[test]
fn a_restart_around_the_failure_is_the_cause() {
    let mut world = World::at_rest();
    world.refused("old-a");
    world.pass(2_000);
    world.change("old-a", |pod| pod.restarts = 1);
    assert_eq!(world.verdict().cause, Cause::Restart);
}

#[test]
fn a_restart_of_an_hour_ago_is_not_the_cause() {
    let mut world = World::at_rest();
    world.change("old-a", |pod| pod.restarts = 1);
    world.pass(3_600_000);
    world.refused("old-a");
    assert_eq!(world.verdict().cause, Cause::Unknown);
}

#[test]
fn a_failure_on_a_pod_that_serves_on_is_unknown_after_thirty_seconds_and_not_before() {
    let mut world = World::at_rest();
    world.refused("old-a");
    world.pass(29_500);
    assert!(world.failures.is_empty());
    world.pass(1_000);
    assert_eq!(world.failures[0].cause, Cause::Unknown);
    assert!(world.failures[0].evidence.iter().any(|why| why.contains("was serving")));
}

#[test]
fn an_attempt_cancelled_early_on_a_serving_pod_is_no_failure() {
    let mut world = World::at_rest();
    let attempt = world.attempt("old-a");
    world.pass(9);
    world.abandon(attempt, 0);
    world.no_verdict();
    assert_eq!(world.state.cancelled(), 1);
}

#[test]
fn an_attempt_cancelled_early_on_a_pod_that_had_left_is_a_failure() {
    let mut world = World::rolling();
    world.pass(400);
    let attempt = world.attempt("old-a");
    world.pass(500);
    world.abandon(attempt, 0);
    assert_eq!(world.verdict().cause, Cause::Rollout);
}

#[test]
fn a_pod_that_was_deleted_only_after_the_syn_is_not_blamed_on_the_rollout() {
    let mut world = World::at_rest();
    let mut attempt = world.attempt("old-b");
    attempt.syns = 1;
    world.pass(2_900);
    world.set("old", 1, 2, 3);
    world.set("new", 2, 1, 1);
    world.delete("old-b");
    world.slice(&[READY[0], ("old-b", Is::Leaving), READY[2]]);
    world.pass(100);
    world.abandon(attempt, 0);
    let failure = world.verdict();
    assert_eq!(failure.cause, Cause::Unknown, "{failure:#?}");
}

#[test]
fn a_syn_answered_by_a_leaving_pod_is_no_failure() {
    use rollrace::{
        engine::What,
        model::{Answer, Sighting},
    };
    let mut world = World::rolling();
    let attempt = world.attempt("old-a");
    let sighting = Sighting::Answered { attempt, answer: Answer::SynAck, at: world.now };
    world.input(What::Saw(sighting));
    world.no_verdict();
}

#[test]
fn kubelets_probes_of_this_nodes_pods_are_left_out() {
    use rollrace::engine::What;
    let mut world = World::at_rest();
    world.pod("near-a", "n1");
    world.slice(&[("near-a", Is::Ready)]);
    let node = "192.0.2.1".parse().unwrap();
    world.input(What::NodeAddresses(vec![node]));
    let backend = world.backend("near-a");
    let mut attempt = world.attempt_to(backend, backend);
    attempt.key.client.set_ip(node);
    world.refuse(attempt);
    world.no_verdict();
    assert_eq!(world.state.undirected(), 1);
}

#[test]
fn a_direct_dial_of_a_pod_that_was_never_ready_is_left_out() {
    let mut world = World::at_rest();
    world.pod("new-a", "n2");
    world.slice(&[READY[0], READY[1], READY[2], ("new-a", Is::NotReady)]);
    let backend = world.backend("new-a");
    let attempt = world.attempt_to(backend, backend);
    world.refuse(attempt);
    world.no_verdict();
    assert_eq!(world.state.undirected(), 1);
}
