//! What holds for any input.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use proptest::{prelude::*, sample::Index};
use rollrace::{
    attempts::MAX_PENDING,
    engine::{ClusterChange, Config, Input, State, What, step},
    model::{Answer, Attempt, Cause, Failure, Mono, Sighting},
};

use crate::{
    recordings::{outputs, written_and_read},
    world::{Is, World, wall},
};

const PODS: [&str; 6] = ["old-a", "old-b", "old-c", "new-a", "new-b", "web-a"];

/// What the watches tell of a rollout in [`rolled`], beside the slices.
const EVENTS: usize = 13;

/// One thing that happens in the world.
#[derive(Clone, Debug)]
enum Happens {
    Pass(u64),
    Slice(Vec<(usize, Is)>),
    OtherSlice(Vec<(usize, Is)>),
    SliceGone,
    Relist(bool),
    Pod(usize),
    Delete(usize),
    Gone(usize),
    Restart(usize),
    TakeAddress(usize, usize),
    Set(bool, i32, i32),
    Workload(u64, i32, [i32; 3], bool),
    Synced(bool),
    Refused(usize),
    Abandoned(usize, u64, bool),
    Unanswered(usize),
    Dropped(usize),
    Again(Index),
    Answered(usize),
    Fresh(usize, bool),
    Dial,
    NodePodsListed,
    Step(i64),
}

fn endpoints() -> impl Strategy<Value = Vec<(usize, Is)>> {
    let is = prop_oneof![Just(Is::Ready), Just(Is::NotReady), Just(Is::Leaving)];
    prop::collection::vec((0..PODS.len(), is), 0..6)
}

fn happens() -> impl Strategy<Value = Happens> {
    let pod = 0..PODS.len();
    prop_oneof![
        6 => (1..20_000_u64).prop_map(Happens::Pass),
        1 => (60_000..4_000_000_u64).prop_map(Happens::Pass),
        6 => endpoints().prop_map(Happens::Slice),
        2 => endpoints().prop_map(Happens::OtherSlice),
        1 => Just(Happens::SliceGone),
        1 => any::<bool>().prop_map(Happens::Relist),
        3 => pod.clone().prop_map(Happens::Pod),
        3 => pod.clone().prop_map(Happens::Delete),
        2 => pod.clone().prop_map(Happens::Gone),
        1 => pod.clone().prop_map(Happens::Restart),
        1 => (pod.clone(), pod.clone()).prop_map(|(to, from)| Happens::TakeAddress(to, from)),
        3 => (any::<bool>(), 0..4, 0..4).prop_map(|(new, w, r)| Happens::Set(new, w, r)),
        2 => (1..4_u64, 1..4, [0..4, 0..4, 0..4], any::<bool>())
            .prop_map(|(revision, w, status, held)| Happens::Workload(revision, w, status, held)),
        1 => any::<bool>().prop_map(Happens::Synced),
        4 => pod.clone().prop_map(Happens::Refused),
        4 => (pod.clone(), 0..5_000_u64, any::<bool>())
            .prop_map(|(pod, after, stale)| Happens::Abandoned(pod, after, stale)),
        1 => pod.clone().prop_map(Happens::Unanswered),
        1 => pod.clone().prop_map(Happens::Dropped),
        2 => any::<Index>().prop_map(Happens::Again),
        1 => pod.clone().prop_map(Happens::Answered),
        2 => (pod, any::<bool>()).prop_map(|(pod, ever)| Happens::Fresh(pod, ever)),
        1 => Just(Happens::Dial),
        1 => Just(Happens::NodePodsListed),
        1 => prop_oneof![Just(-3_600_i64), Just(3_600)].prop_map(Happens::Step),
    ]
}

fn happen(world: &mut World, what: Happens) {
    let named = |endpoints: Vec<(usize, Is)>| -> Vec<(&'static str, Is)> {
        endpoints.into_iter().map(|(pod, is)| (PODS[pod], is)).collect()
    };
    match what {
        Happens::Pass(millis) => world.pass_coarsely(millis),
        Happens::Slice(endpoints) => world.slice(&named(endpoints)),
        Happens::OtherSlice(endpoints) => {
            let slice = world.slice_facts("api-2", "api", &named(endpoints));
            world.cluster(ClusterChange::Slice(Arc::new(slice)));
        }
        Happens::SliceGone => world
            .cluster(ClusterChange::SliceGone { namespace: "shop".into(), name: "api-1".into() }),
        Happens::Relist(full) => {
            let name: (Arc<str>, Arc<str>) = ("shop".into(), "api-1".into());
            world.cluster(ClusterChange::SlicesListed(full.then_some(name).into_iter().collect()));
        }
        Happens::Pod(pod) => world.change(PODS[pod], |_| {}),
        Happens::Delete(pod) => world.delete(PODS[pod]),
        Happens::Gone(pod) => world.gone(PODS[pod]),
        Happens::Restart(pod) => world.change(PODS[pod], |pod| pod.restarts += 1),
        Happens::TakeAddress(to, from) => {
            let ips = world.facts(PODS[from]).ips;
            world.change(PODS[to], |pod| pod.ips = ips);
        }
        Happens::Set(new, wanted, replicas) => {
            let (name, revision) = if new { ("new", 2) } else { ("old", 1) };
            world.set(name, revision, wanted, replicas);
        }
        Happens::Workload(revision, wanted, status, held) => {
            world.workload_in("Deployment", revision, wanted, status, revision, held);
        }
        Happens::Synced(synced) => world.cluster(ClusterChange::Synced(synced)),
        Happens::Refused(pod) => world.refused(PODS[pod]),
        Happens::Abandoned(pod, after, stale) => {
            let mut attempt = world.attempt(PODS[pod]);
            attempt.stale = stale;
            world.pass(after);
            world.abandon(attempt, 0);
        }
        Happens::Unanswered(pod) => {
            let mut attempt = world.attempt(PODS[pod]);
            attempt.key.client.set_ip("203.0.113.7".parse().unwrap());
            world.pass(10_000);
            world.input(What::Saw(Sighting::Unanswered { attempt, at: world.now }));
        }
        Happens::Dropped(pod) => {
            let attempt = world.attempt(PODS[pod]);
            world.dropped(attempt, "NEIGH_FAILED");
        }
        Happens::Again(index) => {
            let again = index.get(&world.inputs).what.clone();
            // Time passes, and the clock is compared, only once; the kernel forgets.
            let possible = match &again {
                What::Tick(_) => false,
                What::Saw(sighting) => world.now.since(sighting.at()) < 250_000_000_000,
                _ => true,
            };
            if possible {
                world.input(again);
            }
        }
        Happens::Answered(pod) => {
            let attempt = world.attempt(PODS[pod]);
            let answer = Answer::SynAck;
            world.input(What::Saw(Sighting::Answered { attempt, answer, at: world.now }));
        }
        Happens::Fresh(pod, ever) => world.fresh(PODS[pod], ever.then_some(world.now)),
        Happens::Dial => world.dial(),
        Happens::NodePodsListed => world.cluster(ClusterChange::NodePodsListed(Vec::new())),
        Happens::Step(seconds) => world.stepped += seconds,
    }
}

/// A world in which all that has happened.
fn lived(history: Vec<Happens>) -> World {
    let mut world = World::empty();
    world.set("old", 1, 3, 3);
    world.workload(1, 3, [3, 3, 3]);
    for pod in PODS {
        world.unseen_pod(pod);
    }
    for what in history {
        happen(&mut world, what);
    }
    world.cluster(ClusterChange::Synced(true));
    world.pass_coarsely(400_000);
    world
}

/// What a failure was decided to be, apart from when and how it is told.
type Verdict = (Cause, Option<String>, String, String, String);

fn verdicts(failures: &[Failure]) -> BTreeMap<SocketAddr, Verdict> {
    let verdict = |failure: &Failure| {
        let rollout = failure.rollout.as_ref().map(ToString::to_string);
        let text = |text: &str| text.to_owned();
        let side = failure.side.map_or("", |side| side.name());
        (failure.cause, rollout, text(side), text(&failure.pod), text(&failure.service))
    };
    failures.iter().map(|failure| (failure.client, verdict(failure))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_gives_the_same_to_the_byte_also_when_written_and_read(
        history in prop::collection::vec(happens(), 0..40),
    ) {
        let world = lived(history);
        let told = outputs(&world.inputs);
        prop_assert_eq!(&told, &outputs(&world.inputs));
        let recording = written_and_read(&world.inputs, "property");
        prop_assert_eq!(recording.cut_off_at, None);
        prop_assert_eq!(&recording.inputs, &world.inputs);
        prop_assert_eq!(&told, &outputs(&recording.inputs));
    }

    #[test]
    fn every_failed_attempt_has_one_verdict_at_most_and_none_waits_for_ever(
        history in prop::collection::vec(happens(), 0..60),
    ) {
        let world = lived(history);
        let mut attempts: Vec<(SocketAddr, u32)> =
            world.failures.iter().map(|failure| (failure.client, failure.isn)).collect();
        attempts.sort_unstable();
        let all = attempts.len();
        attempts.dedup();
        prop_assert_eq!(attempts.len(), all);
        prop_assert_eq!(world.state.undecided_failures(), 0);
        prop_assert_eq!(world.state.pending_attempts(), 0);
    }

    #[test]
    fn nobody_is_blamed_outside_the_time_that_was_theirs(
        history in prop::collection::vec(happens(), 0..60),
    ) {
        let mut world = lived(Vec::new());
        for what in history {
            happen(&mut world, what);
            blamed_in_their_time(&mut world)?;
        }
        world.cluster(ClusterChange::Synced(true));
        for _ in 0..50 {
            world.pass(1_000);
            blamed_in_their_time(&mut world)?;
        }
    }

    #[test]
    fn the_state_stays_bounded(history in prop::collection::vec(happens(), 0..60)) {
        let world = lived(history);
        let sizes = world.state.sizes();
        for (what, bound) in [
            ("lifetimes_present", PODS.len() * PODS.len()),
            ("pods", PODS.len() + 1),
            ("attempts_pending", MAX_PENDING),
            ("attempts_decided", 131_072),
            ("failures_held", 0),
            ("failures_unclaimed", 0),
            ("failures", 10_000),
            ("rollouts", 1_000),
            ("followed", 64),
            ("replica_sets", 2),
            ("workloads", 1),
            ("counts", 1),
        ] {
            prop_assert!(sizes[what] <= bound, "{what}: {} > {bound}", sizes[what]);
        }
        let (serving, leaving, gone) = world.state.endpoints().counts();
        prop_assert_eq!(serving + leaving + gone, world.state.endpoints().all().count());
    }

    /// Each pod of a rollout leaves and is dialled meanwhile; whatever order the watches deliver in
    /// within the wait, and however often.
    #[test]
    fn reordered_and_repeated_cluster_events_do_not_change_the_verdicts(
        order in Just((0..EVENTS).collect::<Vec<_>>()).prop_shuffle(),
        delays in prop::collection::vec(0..400_u64, EVENTS),
        repeat in prop::collection::vec(any::<Index>(), 0..6),
    ) {
        let straight: Vec<usize> = (0..EVENTS).collect();
        let expected = rolled(&straight, &[0; EVENTS], &[], &[0; 5]);
        prop_assert_eq!(expected.len(), 4);
        prop_assert!(expected.values().all(|verdict| verdict.0 == Cause::Rollout), "{expected:?}");
        prop_assert_eq!(rolled(&order, &delays, &repeat, &[0; 5]), expected);
    }

    #[test]
    fn steps_of_the_civil_clock_by_an_hour_do_not_change_the_verdicts(
        steps in prop::array::uniform5(prop_oneof![
            3 => Just(0_i64), 1 => Just(3_600), 1 => Just(-3_600),
        ]),
    ) {
        let straight: Vec<usize> = (0..EVENTS).collect();
        let expected = rolled(&straight, &[0; EVENTS], &[], &[0; 5]);
        prop_assert_eq!(rolled(&straight, &[0; EVENTS], &[], &steps), expected);
    }
}

fn blamed_in_their_time(world: &mut World) -> Result<(), TestCaseError> {
    for failure in std::mem::take(&mut world.failures) {
        let Some(backend) = failure.backend.filter(|_| !failure.pod.is_empty()) else { continue };
        let lives = world.state.endpoints().at(backend);
        let own: Vec<_> = lives
            .iter()
            .filter(|life| life.pod.as_ref().is_some_and(|pod| pod.name == failure.pod))
            .collect();
        // It may have existed when the client gave up.
        let fits = own.iter().any(|life| life.begun_after <= failure.ended);
        // What has been gone for an hour is forgotten, and may have come back since.
        let remembered = world.now.since(world.inputs[0].at) < 3_600_000_000_000;
        prop_assert!(fits || !remembered, "{failure:#?}");
        if !fits {
            continue;
        }
        // What had ended before another took the address over pins old entries only.
        let taken_over = |life: &&&rollrace::endpoints::Lifetime| {
            let gone = life.gone.unwrap_or(failure.ended);
            lives.iter().any(|other| {
                other.pod != life.pod
                    && other.first_seen >= gone
                    // Two that came and went in one instant took nothing over.
                    && other.gone.is_none_or(|others| others > gone)
                    && other.first_seen.plus(300_000_000_000) < failure.first_syn
            })
        };
        if failure.cause == Cause::Rollout {
            let some_time = own.iter().any(|life| !taken_over(&life));
            prop_assert!(some_time, "{failure:#?} {lives:#?}");
        }
    }
    Ok(())
}

/// A rollout of which the engine is told in some order, with clients that dial leaving pods.
fn rolled(
    order: &[usize],
    delays: &[u64],
    repeat: &[Index],
    steps: &[i64; 5],
) -> BTreeMap<SocketAddr, Verdict> {
    let mut source = World::at_rest();
    let told = source.inputs.len();
    source.workload_in("Deployment", 2, 3, [3, 3, 3], 1, false);
    source.set("new", 2, 1, 0);
    source.pod("new-a", "n2");
    source.set("old", 1, 2, 3);
    source.delete("old-a");
    source.set("old", 1, 1, 2);
    source.set("new", 2, 2, 2);
    source.delete("old-b");
    source.set("old", 1, 0, 1);
    source.delete("old-c");
    source.gone("old-a");
    source.gone("old-b");
    source.gone("old-c");
    let events: Vec<What> = source.inputs[told..]
        .iter()
        .filter(|input| matches!(input.what, What::Cluster(_)))
        .map(|input| input.what.clone())
        .collect();
    assert_eq!(events.len(), EVENTS);
    let mut world = World::at_rest();
    let attempts: Vec<Attempt> =
        ["old-a", "old-a", "old-b", "old-c"].iter().map(|pod| world.attempt(pod)).collect();
    // All watches are behind: what was sent to a pod fails before anything is told.
    for (attempt, step) in attempts.into_iter().zip(steps) {
        world.stepped = *step;
        world.pass(250);
        world.refuse(attempt);
    }
    // One watch's own order is kept.
    let slices = [
        vec![("old-a", Is::Leaving), ("old-b", Is::Ready), ("old-c", Is::Ready)],
        vec![("old-b", Is::Leaving), ("old-c", Is::Ready)],
        vec![("old-c", Is::Leaving)],
        Vec::new(),
    ];
    let mut slices = slices.iter();
    for (count, index) in order.iter().enumerate() {
        world.input(events[*index].clone());
        world.pass(delays[*index]);
        if count % 3 == 2
            && let Some(slice) = slices.next()
        {
            world.slice(slice);
        }
    }
    world.stepped = steps[4];
    for again in repeat {
        world.input(again.get(&events).clone());
    }
    world.pass(40_000);
    verdicts(&world.failures)
}

#[test]
fn the_bound_of_held_failures_and_of_kept_ones_is_kept_under_a_storm() {
    let config = Config { max_held: 50, max_failures: 20, ..Config::new("n1") };
    let mut state = State::new(config);
    let mut world = World::at_rest();
    let mut inputs = std::mem::take(&mut world.inputs);
    for _ in 0..3_000 {
        world.refused("old-a");
    }
    inputs.append(&mut world.inputs);
    let told: usize = inputs.into_iter().map(|input| step(&mut state, input).failures.len()).sum();
    let sizes = state.sizes();
    assert_eq!((sizes["failures_held"], sizes["failures"]), (50, 20));
    assert_eq!((told, state.overflowed()), (2_950, 2_950));
}

#[test]
fn time_that_goes_back_among_the_sources_does_not_go_back_in_the_engine() {
    let mut world = World::rolling();
    world.refused("old-a");
    let clock = rollrace::model::Clock { mono: Mono(1), wall: wall(Mono(1), 0) };
    let early = Input { at: Mono(1), what: What::Tick(clock) };
    let out = step(&mut world.state, early);
    assert!(out.failures.is_empty());
    world.pass(60_000);
    assert_eq!(world.failures.len(), 1);
}
