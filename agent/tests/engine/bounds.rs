//! At its bound nothing grows, nothing crashes, and what is left out is counted and told.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use rollrace::{
    attempts::MAX_PENDING,
    engine::{AttemptCounts, ClusterChange, Config, GapReason, What},
    model::{Answer, Attempt, Drop, NodeFacts, ObjectRef, Sighting, WorkloadFacts},
    owners::{MAX_OWNERS, MAX_PODS},
    rollouts::MAX_ROLLOUTS,
};

use crate::world::{World, object, wall};

fn size(world: &World, what: &str) -> usize {
    world.state.sizes()[what]
}

fn forgotten(world: &World, what: &str) -> u64 {
    BTreeMap::from(world.state.forgotten())[what]
}

/// So many attempts, each of a number of its own.
fn attempts(world: &mut World, pod: &str, count: usize) -> impl Iterator<Item = Attempt> + use<> {
    let first = world.attempt(pod);
    (0..u32::try_from(count).unwrap()).map(move |isn| {
        let key = rollrace::model::AttemptKey { isn, ..first.key };
        Attempt { key, ..first }
    })
}

/// What is lost is counted, is a gap, and makes the rollout of that time a lower bound.
fn assert_told(world: &World, lost: u64) {
    assert_eq!(world.state.overflowed(), lost);
    let reasons: Vec<GapReason> = world.state.coverage().gaps().map(|gap| gap.reason).collect();
    assert!(reasons.contains(&GapReason::Overflow), "{reasons:?}");
    let rollout = world.state.rollout_report(world.rollout());
    assert!(rollout.lower_bound && rollout.covered.partial, "{rollout:#?}");
}

#[test]
fn attempts_in_trouble_beyond_the_bound() {
    let mut world = World::rolling();
    let at = world.now;
    for attempt in attempts(&mut world, "old-a", MAX_PENDING + 3) {
        let drop = Drop { reason: "NEIGH_FAILED".into() };
        world.input(What::Saw(Sighting::Dropped { attempt, drop, at }));
    }
    assert_eq!(world.state.pending_attempts(), MAX_PENDING);
    assert_told(&world, 3);
}

#[test]
fn decided_attempts_beyond_the_bound() {
    let mut world = World::rolling();
    let at = world.now;
    for attempt in attempts(&mut world, "old-a", 131_072 + 3) {
        let answer = Answer::SynAck;
        world.input(What::Saw(Sighting::Answered { attempt, answer, at }));
    }
    assert_eq!(size(&world, "attempts_decided"), 131_072);
    assert_told(&world, 3);
}

#[test]
fn failures_that_nobody_claims_beyond_the_bound() {
    let mut world = World::rolling();
    for attempt in attempts(&mut world, "old-a", 1_003) {
        let mut direct = Attempt { dnat: false, ..attempt };
        direct.key.original = attempt.backend.unwrap();
        direct.key.client.set_ip("203.0.113.7".parse().unwrap());
        world.refuse(direct);
    }
    assert_eq!(size(&world, "failures_unclaimed"), 1_000);
    assert_told(&world, 3);
}

#[test]
fn failures_that_wait_beyond_the_bound_are_unknown_and_those_listed_are_the_last() {
    let config = Config { max_held: 10, max_failures: 5, ..Config::new("n1") };
    let mut world = World::rolling_with(config);
    let at = world.now;
    for attempt in attempts(&mut world, "old-b", 20) {
        world.input(What::Saw(Sighting::Answered { attempt, answer: Answer::Rst, at }));
    }
    assert_eq!((size(&world, "failures_held"), size(&world, "failures")), (10, 5));
    assert_eq!((world.failures.len(), forgotten(&world, "failures")), (10, 5));
    assert_told(&world, 10);
}

#[test]
fn dialled_addresses_beyond_the_bound() {
    const MAX: u32 = 65_536;
    let mut world = World::rolling();
    // One was there before.
    for number in 0..MAX + 2 {
        let ip = std::net::Ipv4Addr::from(0x0A80_0000 + number);
        let original = SocketAddr::new(ip.into(), 80);
        let counts = AttemptCounts { original, attempts: 1, answered: 1, refused: 0 };
        world.input(What::Attempts(counts));
    }
    assert_eq!(size(&world, "counts"), usize::try_from(MAX).unwrap());
    assert_told(&world, 3);
}

#[test]
fn delays_beyond_the_bound_are_missing_in_the_histogram_only() {
    const MAX: usize = 65_536;
    let config = Config { max_held: 0, max_failures: 0, ..Config::new("n1") };
    let mut world = World::rolling_with(config);
    let at = world.now;
    for attempt in attempts(&mut world, "old-b", MAX + 3) {
        world.input(What::Saw(Sighting::Answered { attempt, answer: Answer::Rst, at }));
        world.inputs.clear();
    }
    assert_eq!((size(&world, "delays"), forgotten(&world, "delays")), (MAX, 3));
    assert_eq!(world.failures.len(), MAX + 3, "every failure is decided and counted");
}

#[test]
fn what_the_api_server_said_is_bounded_each_kind_by_itself() {
    let mut world = World::at_rest();
    world.client("web-0", "10.244.1.6");
    let told = world.inputs.iter().rev().find_map(|input| match &input.what {
        What::Cluster(ClusterChange::Pod(pod)) if &*pod.name == "web-0" => Some(pod.clone()),
        _ => None,
    });
    let pod = told.expect("it was told just now");
    let uid = |kind: &str, number: usize| -> Arc<str> { format!("{kind}-{number}").into() };
    let more = 5;
    for number in 0..MAX_PODS + more {
        let mut facts = (*pod).clone();
        (facts.uid, facts.ips) = (uid("pod", number), Vec::new());
        world.cluster(ClusterChange::Pod(Arc::new(facts)));
        world.cluster(ClusterChange::Owner {
            namespace: "shop".into(),
            pod: "web".into(),
            uid: uid("pod", number),
            owner: None,
            how: "it is gone".into(),
        });
        world.inputs.clear();
    }
    for number in 0..MAX_OWNERS + more {
        let uid = uid("workload", number);
        let facts = WorkloadFacts {
            namespace: "shop".into(),
            object: ObjectRef { uid, ..object("Deployment", "web") },
            resource_version: "1".into(),
            generation: 1,
            wanted: 1,
            held: false,
            outage_by_design: false,
            images: Vec::new(),
            template: None,
            strategy: None,
            status: rollrace::model::WorkloadStatus::default(),
        };
        world.cluster(ClusterChange::Workload(Arc::new(facts)));
        world.inputs.clear();
    }
    for number in 0..10_000 + more {
        let name: Arc<str> = format!("node-{number}").into();
        let facts = NodeFacts { name: name.clone(), ready: "True".into(), since: None };
        world.cluster(ClusterChange::Node { name, facts: Some(Arc::new(facts)) });
    }
    for (what, bound) in [("pods", MAX_PODS), ("looked_up", MAX_PODS), ("workloads", MAX_OWNERS)] {
        assert_eq!(size(&world, what), bound, "{what}");
        assert!(forgotten(&world, what) >= 5, "{what}");
    }
    assert_eq!(forgotten(&world, "nodes"), 5);
    assert_eq!(world.state.lost() + world.state.overflowed(), 0, "evidence is missing, no count");
}

#[test]
fn rollouts_and_their_sets_beyond_the_bound_leave_the_newest() {
    let mut world = World::at_rest();
    let more = 5;
    for number in 0..MAX_ROLLOUTS + more {
        for (revision, name) in [(1, "before"), (2, "after")] {
            let set = rollrace::model::ReplicaSetFacts {
                namespace: "shop".into(),
                name: format!("{number}-{name}").into(),
                uid: format!("set-{number}-{name}").into(),
                resource_version: "1".into(),
                owner: Some(ObjectRef {
                    uid: format!("workload-{number}").into(),
                    ..object("Deployment", "web")
                }),
                template_hash: name.into(),
                revision: Some(revision),
                created: Some(wall(world.now, 0)),
                wanted: 1,
                replicas: 1,
                images: Vec::new(),
                template: None,
            };
            world.cluster(ClusterChange::ReplicaSet(Arc::new(set)));
        }
    }
    assert_eq!(size(&world, "rollouts"), MAX_ROLLOUTS);
    assert_eq!(forgotten(&world, "rollouts"), 5);
    let newest = world.state.rollouts().all().next_back().unwrap();
    assert_eq!(&*newest.workload.uid, "workload-1004");
}

#[test]
fn targets_of_one_workload_beyond_the_bound() {
    let mut world = World::at_rest();
    for revision in 2..=70 {
        world.set(&format!("set{revision}"), revision, 1, 1);
    }
    // The first one and 69 more, 64 are remembered.
    assert_eq!(forgotten(&world, "rollout_targets"), 6);
    assert_eq!(size(&world, "rollouts"), 69);
}
