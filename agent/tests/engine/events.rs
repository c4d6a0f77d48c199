//! The Kubernetes Event of a rollout that broke connections: one, whatever happens.

use rollrace::{
    engine::{ClusterChange, Config, Request, RolloutEvent, State},
    model::EventResult,
};

use crate::world::World;

/// Longer than any node waits.
const WAITS_AT_MOST_MS: u64 = 30_500;

fn on(node: &str) -> Config {
    Config { events: true, ..Config::new(node) }
}

/// The Events that were asked for, the questions taken.
fn asked(world: &mut World) -> Vec<RolloutEvent> {
    let requests = std::mem::take(&mut world.requests).into_iter();
    let events = requests.filter_map(|request| match request {
        Request::Event(event) => Some(*event),
        _ => None,
    });
    events.collect()
}

/// A rollout has broken this many connections.
fn broken(config: Config, connections: usize) -> World {
    let mut world = World::rolling_with(config);
    world.pass(200);
    for _ in 0..connections {
        world.refused("old-a");
    }
    world.pass(500);
    world
}

fn answer(world: &mut World, event: &RolloutEvent, result: EventResult) {
    let rollout = event.rollout.clone();
    world.cluster(ClusterChange::EventWritten { rollout, result });
}

fn count(state: &State, result: EventResult) -> u64 {
    let counts = state.events();
    counts.by_result().find(|(of, _)| *of == result).map_or(0, |(_, count)| count)
}

#[test]
fn a_rollout_that_broke_connections_is_told_once_with_this_nodes_figures() {
    let mut world = broken(on("n1"), 2);
    world.pass(WAITS_AT_MOST_MS);
    let events = asked(&mut world);
    assert_eq!(events.len(), 1, "{events:#?}");
    let event = &events[0];
    assert_eq!((&*event.workload.kind, &*event.workload.name), ("Deployment", "api"));
    assert_eq!(&*event.api_version, "apps/v1");
    for words in ["revision 2", "2 connections", "on node n1", "2 refused"] {
        assert!(event.note.contains(words), "no {words:?} in {:?}", event.note);
    }
    let command = "kubectl rollrace explain deployment/api -n shop --revision 2";
    assert!(event.note.ends_with(command) && event.note.len() <= 1_024, "{:?}", event.note);
    answer(&mut world, event, EventResult::Created);
    world.refused("old-a");
    world.pass(2 * WAITS_AT_MOST_MS);
    assert_eq!(asked(&mut world), []);
    assert_eq!((count(&world.state, EventResult::Created), world.state.events_open()), (1, 0));
}

#[test]
fn nodes_wait_differently_long_and_name_it_alike() {
    let mut names = Vec::new();
    let mut waits = Vec::new();
    for node in ["n1", "n2", "n3"] {
        let mut world = broken(on(node), 1);
        let mut waited = 0;
        let event = loop {
            if let Some(event) = asked(&mut world).pop() {
                break event;
            }
            world.pass(250);
            waited += 250;
            assert!(waited <= WAITS_AT_MOST_MS, "{node} never says it");
        };
        names.push(event.name);
        waits.push(waited);
    }
    assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    waits.dedup();
    assert!(waits.len() > 1, "all wait {waits:?} ms");
}

#[test]
fn nothing_is_told_where_it_is_off_or_no_connection_failed() {
    for (config, connections) in [(Config::new("n1"), 3), (on("n1"), 0)] {
        let mut world = broken(config, connections);
        world.pass(WAITS_AT_MOST_MS);
        assert_eq!(asked(&mut world), []);
    }
}

#[test]
fn a_failure_that_no_rollout_caused_is_told_of_none() {
    let mut world = World::at_rest_with(on("n1"));
    world.refused("old-a");
    world.pass(2 * WAITS_AT_MOST_MS);
    assert_eq!(world.failures.len(), 1);
    assert_eq!(asked(&mut world), []);
}

#[test]
fn while_the_api_server_is_away_it_waits() {
    let mut world = broken(on("n1"), 1);
    world.cluster(ClusterChange::Synced(false));
    world.pass(WAITS_AT_MOST_MS);
    assert_eq!(asked(&mut world), []);
    world.cluster(ClusterChange::Synced(true));
    world.pass(250);
    assert_eq!(asked(&mut world).len(), 1);
}

#[test]
fn after_a_restart_what_was_answered_is_not_said_again_and_what_was_not_is() {
    for answered in [true, false] {
        let mut world = broken(on("n1"), 1);
        world.pass(WAITS_AT_MOST_MS);
        let first = asked(&mut world).remove(0);
        if answered {
            answer(&mut world, &first, EventResult::Exists);
        }
        world.restart_with(on("n1"), 4_000, false);
        world.cluster(ClusterChange::Synced(true));
        world.pass(WAITS_AT_MOST_MS);
        let again = asked(&mut world);
        assert_eq!(again.len(), usize::from(!answered), "{again:#?}");
        assert!(again.iter().all(|event| event.name == first.name), "it ends as AlreadyExists");
    }
}

#[test]
fn what_was_not_due_before_a_restart_is_said_after_it() {
    let mut world = broken(on("n1"), 1);
    assert_eq!((asked(&mut world), world.state.events_open()), (Vec::new(), 1));
    world.restart_with(on("n1"), 4_000, false);
    world.cluster(ClusterChange::Synced(true));
    world.pass(WAITS_AT_MOST_MS);
    assert_eq!(asked(&mut world).len(), 1);
}

#[test]
fn what_a_reboot_prevented_is_counted() {
    let mut world = broken(on("n1"), 1);
    world.restart_with(on("n1"), 60_000, true);
    world.cluster(ClusterChange::Synced(true));
    world.pass(WAITS_AT_MOST_MS);
    assert_eq!(asked(&mut world), []);
    assert_eq!(world.state.events().lost, 1);
}
