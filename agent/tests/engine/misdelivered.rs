//! A SYN follows the conntrack entry of an earlier one to an address that another pod has taken over.

use std::sync::Arc;

use rollrace::{
    engine::{ClusterChange, What},
    model::{Answer, Attempt, Cause, Class, Side, Sighting},
};

use crate::world::{Is, World};

/// A pod takes over the old pod's address, behind a Service.
fn taken_over(by: &str, service: &str) -> World {
    let mut world = World::after_the_first();
    world.pass(5_000);
    takes_over(&mut world, by, service);
    world
}

fn takes_over(world: &mut World, by: &str, service: &str) {
    world.pod(by, "n2");
    let address = world.facts("old-a").ips.clone();
    world.change(by, |pod| pod.ips = address);
    let name = format!("{service}-2");
    let slice = world.slice_facts(&name, service, &[(by, Is::Ready)]);
    world.cluster(ClusterChange::Slice(Arc::new(slice)));
}

fn stale(world: &mut World) -> Attempt {
    Attempt { stale: true, ..world.attempt("old-a") }
}

fn answer(world: &mut World, attempt: Attempt) {
    let sighting = Sighting::Answered { attempt, answer: Answer::SynAck, at: world.now };
    world.input(What::Saw(sighting));
}

#[test]
fn an_answer_by_a_pod_of_another_service_is_misdelivered_and_blamed_on_who_removed_the_first() {
    let mut world = taken_over("web-a", "web");
    world.pass(3_000);
    let attempt = stale(&mut world);
    answer(&mut world, attempt);
    let failure = world.verdict();
    assert_eq!((failure.class, failure.cause), (Class::Misdelivered, Cause::Rollout));
    assert_eq!(failure.side, Some(Side::Old));
    assert_eq!((&*failure.service, &*failure.pod), ("api", "old-a"));
    let who = "pod web-a has the address now and answered; it is not behind the Service";
    assert!(failure.evidence.iter().any(|why| why == who), "{failure:#?}");
}

#[test]
fn a_retransmit_that_another_pod_answers_is_misdelivered_too() {
    let mut world = World::after_the_first();
    let mut attempt = world.attempt("old-a");
    world.pass(700);
    takes_over(&mut world, "web-a", "web");
    world.pass(300);
    (attempt.syns, attempt.last_syn) = (2, world.now);
    answer(&mut world, attempt);
    let failure = world.verdict();
    assert_eq!((failure.class, failure.cause), (Class::Misdelivered, Cause::Rollout));
    assert_eq!(&*failure.pod, "old-a");
}

#[test]
fn an_answer_by_another_pod_of_the_same_service_is_none() {
    let mut world = taken_over("new-b", "api");
    world.pass(3_000);
    let attempt = stale(&mut world);
    answer(&mut world, attempt);
    world.no_verdict();
}

#[test]
fn an_answer_on_an_old_entry_by_the_pod_that_was_always_there_is_none() {
    let mut world = World::rolling();
    world.pass(3_000);
    let attempt = Attempt { stale: true, ..world.attempt("old-b") };
    answer(&mut world, attempt);
    world.no_verdict();
}

#[test]
fn a_fresh_syn_to_whoever_has_the_address_is_none() {
    let mut world = taken_over("web-a", "web");
    world.pass(3_000);
    let attempt = world.attempt("old-a");
    answer(&mut world, attempt);
    world.no_verdict();
}

#[test]
fn it_is_waited_for_the_watch_to_tell_who_has_the_address() {
    let mut world = World::after_the_first();
    world.pass(5_000);
    let attempt = stale(&mut world);
    answer(&mut world, attempt);
    world.pass(2_000);
    assert!(world.failures.is_empty());
    takes_over(&mut world, "web-a", "web");
    assert_eq!(world.verdict().class, Class::Misdelivered);
}

#[test]
fn a_pod_that_is_behind_both_services_answers_rightly() {
    let mut world = taken_over("web-a", "web");
    let slice = world.slice_facts("api-2", "api", &[("web-a", Is::Ready)]);
    world.cluster(ClusterChange::Slice(Arc::new(slice)));
    world.pass(3_000);
    let attempt = stale(&mut world);
    answer(&mut world, attempt);
    world.no_verdict();
}
