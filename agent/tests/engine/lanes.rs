//! Each pod's life in a rollout, as the page draws it.

use rollrace::{
    engine::LaneReport,
    model::{Mono, RolloutId, Side, Wall},
};

use crate::world::{Is, World, wall};

fn id(world: &World) -> RolloutId {
    world.rollout().id.clone()
}

fn lanes(world: &World) -> Vec<LaneReport> {
    world.state.lanes(&id(world)).expect("a rollout").lanes
}

fn lane(world: &World, pod: &str) -> LaneReport {
    lanes(world).into_iter().find(|lane| &*lane.pod == pod).expect("a lane")
}

fn at(time: Mono) -> Wall {
    wall(time, 0)
}

#[test]
fn old_pods_come_first_in_the_order_in_which_they_left_then_new_ones() {
    let mut world = World::rolling();
    world.pass(1_000);
    world.slice(&[("old-b", Is::Ready), ("old-c", Is::Leaving), ("new-a", Is::Ready)]);
    let shown = lanes(&world);
    let shown: Vec<(&str, Side)> = shown.iter().map(|lane| (&*lane.pod, lane.side)).collect();
    let expected =
        [("old-a", Side::Old), ("old-c", Side::Old), ("old-b", Side::Old), ("new-a", Side::New)];
    assert_eq!(shown, expected);
}

#[test]
fn a_lane_has_each_step_of_an_old_pod_at_the_time_at_which_this_node_saw_it() {
    let mut world = World::rolling();
    let left = world.now;
    world.pass(300);
    world.refused("old-a");
    let closed = world.now;
    world.pass(200);
    world.refused("old-a");
    world.pass(500);
    world.slice(&[("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Ready)]);
    let gone = world.now;
    world.pass(200);
    world.gone("old-a");
    let removed = world.now;
    world.pass(40_000);
    let lane = lane(&world, "old-a");
    assert_eq!(lane.leaving, Some(at(left)));
    assert_eq!(lane.listener_closed, Some(at(closed)));
    assert_eq!(lane.gone, Some(at(gone)));
    assert_eq!(lane.removed, Some(at(removed)));
    assert_eq!(lane.node.as_deref(), Some("n2"));
    assert_eq!(lane.endpoints, [world.backend("old-a").into()]);
}

#[test]
fn a_new_pod_that_refuses_before_it_listens_has_not_closed_its_listener() {
    let mut world = World::rolling();
    world.pod("new-b", "n2");
    world.set("new", 2, 2, 1);
    let others = [("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Ready)];
    world.slice(&[others[0], others[1], others[2], ("new-b", Is::Ready)]);
    let ready = world.now;
    world.refused("new-b");
    world.pass(40_000);
    let lane = lane(&world, "new-b");
    assert_eq!((lane.ready, lane.listener_closed, lane.gone), (Some(at(ready)), None, None));
}

#[test]
fn pods_of_a_later_revision_or_of_another_workload_are_in_no_lane() {
    let mut world = World::rolling();
    let first = id(&world);
    world.pass(1_000);
    world.workload_in("Deployment", 3, 3, [4, 1, 4], 2, false);
    world.set("newer", 3, 1, 0);
    world.pod("newer-a", "n2");
    let others = [("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Ready)];
    world.slice(&[others[0], others[1], others[2], ("newer-a", Is::Ready)]);
    let shown = world.state.lanes(&first).expect("the first rollout").lanes;
    assert!(shown.iter().all(|lane| !lane.pod.starts_with("newer") && &*lane.pod != "client"));
    assert_eq!(shown.len(), 4);
}

#[test]
fn a_pod_of_two_addresses_is_one_lane() {
    let mut world = World::at_rest();
    world.change("old-a", |facts| facts.ips.push("fd00::a".parse().unwrap()));
    world.slice(&[("old-a", Is::Ready), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
    world.workload_in("Deployment", 2, 3, [3, 3, 3], 1, false);
    world.set("new", 2, 1, 0);
    let lane = lane(&world, "old-a");
    assert_eq!(lane.endpoints.len(), 2);
    assert_eq!(lanes(&world).len(), 3);
}

#[test]
fn of_a_rollout_that_is_not_known_there_are_no_lanes() {
    let world = World::rolling();
    let unknown = RolloutId { ordinal: 7, ..id(&world) };
    assert!(world.state.lanes(&unknown).is_none());
}
