//! Answered connections that their endpoint ended: held until it is known whether it left.

use rollrace::{
    engine::What,
    model::{Attempt, Cause, Class, End, Phase, Side, Sighting},
};

use crate::world::{Is, World};

impl World {
    /// The pod ends a connection now.
    fn end(&mut self, attempt: Attempt, end: End) {
        self.input(What::Saw(Sighting::Ended { attempt, end, at: self.now }));
    }

    /// A connection to the pod that was answered now.
    fn connection(&mut self, pod: &str) -> Attempt {
        self.attempt(pod)
    }
}

#[test]
fn a_cut_by_a_pod_that_a_rollout_removes_is_blamed_on_it_and_dated_by_the_close() {
    for (end, class, word) in [(End::Cut, Class::Cut, "close"), (End::Reset, Class::Reset, "reset")]
    {
        let mut world = World::at_rest();
        let connection = world.connection("old-a");
        world.workload_in("Deployment", 2, 3, [3, 3, 3], 1, false);
        world.set("new", 2, 1, 1);
        world.set("old", 1, 2, 3);
        world.delete("old-a");
        world.slice(&[("old-a", Is::Leaving), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
        world.pass(1_200);
        let closed = world.now;
        world.end(connection, end);
        let failure = world.verdict();
        assert_eq!((failure.class, failure.cause), (class, Cause::Rollout), "{failure:#?}");
        assert_eq!((failure.side, failure.phase), (Some(Side::Old), Phase::During));
        assert_eq!((failure.first_syn, failure.ended), (connection.first_syn, closed));
        assert_eq!(&*failure.pod, "old-a");
        let evidence = failure.evidence.join("; ");
        assert!(evidence.contains(&format!("1200 ms before the {word}")), "{evidence}");
        assert!(!evidence.contains("SYN"), "{evidence}");
        let rollout = world.rollout();
        assert_eq!((rollout.first_failure, rollout.last_failure), (Some(closed), Some(closed)));
    }
}

#[test]
fn a_cut_that_comes_before_the_news_of_the_departure_is_held_for_it() {
    let mut world = World::at_rest();
    let connection = world.connection("old-a");
    world.set("new", 2, 1, 1);
    world.set("old", 1, 2, 3);
    world.mark_deleted("old-a");
    world.end(connection, End::Cut);
    world.pass(3_000);
    assert!(world.failures.is_empty());
    let facts = std::sync::Arc::new(world.facts("old-a"));
    world.cluster(rollrace::engine::ClusterChange::Pod(facts));
    world.slice(&[("old-a", Is::Leaving), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
    assert_eq!(world.verdict().cause, Cause::Rollout);
}

#[test]
fn a_close_by_a_pod_that_does_not_leave_is_no_failure() {
    for end in [End::Cut, End::Reset, End::Closed] {
        let mut world = World::at_rest();
        let connection = world.connection("old-a");
        world.end(connection, end);
        world.no_verdict();
        assert_eq!(world.state.stayed(), 1);
    }
}

#[test]
fn a_close_long_before_the_departure_is_no_failure_of_it() {
    let mut world = World::at_rest();
    let connection = world.connection("old-a");
    world.end(connection, End::Cut);
    world.pass(20_000);
    world.workload_in("Deployment", 2, 3, [3, 3, 3], 1, false);
    world.set("new", 2, 1, 1);
    world.set("old", 1, 2, 3);
    world.delete("old-a");
    world.slice(&[("old-a", Is::Leaving), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
    world.no_verdict();
}

#[test]
fn what_the_wire_cannot_tell_is_counted_and_is_no_failure() {
    let mut world = World::rolling();
    let connection = world.connection("old-a");
    world.end(connection, End::Closed);
    world.no_verdict();
    assert_eq!((world.state.closed(), world.state.stayed()), (1, 0));
    let closed = world.state.closed_by_service().remove(0);
    assert_eq!((&*closed.service, closed.connections), ("api", 1));
}

#[test]
fn one_connection_has_one_verdict() {
    let mut world = World::rolling();
    let connection = world.connection("old-a");
    world.pass(100);
    world.end(connection, End::Cut);
    world.end(connection, End::Reset);
    assert_eq!(world.verdict().class, Class::Cut);
    // An attempt that had failed, and was answered late.
    let late = world.connection("old-a");
    world.refuse(late);
    world.end(late, End::Cut);
    assert_eq!(world.verdict().class, Class::Refused);
}

#[test]
fn an_attempt_answered_late_can_still_be_cut() {
    use rollrace::model::Answer;
    let mut world = World::rolling();
    let connection = world.connection("old-a");
    let (answer, at) = (Answer::SynAck, world.now);
    world.input(What::Saw(Sighting::Answered { attempt: connection, answer, at }));
    world.pass(100);
    world.end(connection, End::Cut);
    assert_eq!(world.verdict().class, Class::Cut);
}

#[test]
fn a_container_that_restarts_cuts_by_restart() {
    let mut world = World::at_rest();
    let connection = world.connection("old-a");
    world.end(connection, End::Cut);
    world.pass(1_000);
    world.change("old-a", |pod| pod.restarts += 1);
    let failure = world.verdict();
    assert_eq!((failure.class, failure.cause), (Class::Cut, Cause::Restart), "{failure:#?}");
}

#[test]
fn a_cut_after_completion_is_of_phase_after_however_old_its_connection_is() {
    let mut world = World::rolling();
    let connection = world.connection("old-a");
    world.pass(500);
    world.set("new", 2, 3, 3);
    world.set("old", 1, 0, 0);
    world.workload_in("Deployment", 2, 3, [3, 3, 3], 2, false);
    world.pass(5_000);
    assert!(world.rollout().completed.is_some());
    world.end(connection, End::Cut);
    let failure = world.verdict();
    assert_eq!((failure.cause, failure.phase), (Cause::Rollout, Phase::After), "{failure:#?}");
}

#[test]
fn without_dnat_only_the_clients_node_accounts_for_a_cut() {
    let mut world = World::rolling();
    let backend = world.backend("old-a");
    let own = world.attempt_to(backend, backend);
    let mut others = world.attempt_to(backend, backend);
    others.key.client = "10.244.9.9:40000".parse().unwrap();
    world.end(others, End::Cut);
    world.end(own, End::Cut);
    assert_eq!(world.verdict().client, own.key.client);
}
