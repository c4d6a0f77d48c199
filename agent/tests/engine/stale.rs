//! Stale conntrack entries as a figure: which they are, whose, and until when.

use rollrace::{
    engine::{ConntrackScan, Watch, What},
    model::{Cause, Class, ConntrackEntry, Sighting, Transport},
};

use crate::world::{Is, World, wall};

const SECOND: u64 = 1_000_000_000;

fn later(entry: ConntrackEntry, world: &World) -> ConntrackEntry {
    ConntrackEntry { expires: world.now.plus(120 * SECOND), ..entry }
}

#[test]
fn unanswered_entries_of_a_gone_pod_are_counted_to_the_rollout_that_removed_it() {
    let mut world = World::rolling();
    world.pass(300);
    let entries = [world.entry(41_000, "old-a"), world.entry(41_001, "old-a")];
    world.scan(&[entries[0], entries[1], world.entry(41_002, "old-b")]);
    world.gone("old-a");
    world.slice(&[("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Ready)]);
    world.pass(6_000);
    let report = world.state.rollout_report(world.rollout()).stale.expect("some were stale");
    assert_eq!((report.entries, report.peak, report.refreshed), (2, 2, false));
    assert_eq!(report.expires, Some(wall(entries[0].expires, 0)));
    let [of] = &report.endpoints[..] else { panic!("one endpoint: {report:#?}") };
    assert_eq!((&*of.pod, &*of.service, of.entries), ("old-a", "api", 2));
    assert_eq!((of.cause, of.protocol), (Some(Cause::Rollout), Transport::Tcp));
    assert_eq!(world.state.stale_report().entries, 2, "that of the serving pod is none");
}

#[test]
fn the_figure_falls_to_zero_with_the_timers_and_the_most_at_a_time_is_kept() {
    let mut world = World::after_the_first();
    let entry = world.entry(41_000, "old-a");
    world.scan(&[entry]);
    world.pass(5_000);
    assert_eq!(world.state.stale_report().entries, 1);
    assert!(world.wants_scan, "it is looked at again and again");
    world.pass(120_000);
    let report = world.state.rollout_report(world.rollout()).stale.expect("one was stale");
    assert_eq!((report.entries, report.peak, report.expires), (0, 1, None));
    assert!(!world.wants_scan, "there is nothing left to look at");
}

#[test]
fn the_end_is_predicted_again_once_an_attempts_retransmits_are_over() {
    let mut world = World::after_the_first();
    let entry = world.entry(41_000, "old-a");
    world.scan(&[entry]);
    world.pass(3_000);
    let entry = later(entry, &world);
    world.scan(&[entry]);
    let report = world.state.stale_report();
    assert_eq!((report.expires, report.refreshed), (None, true), "it may move again");
    world.pass(11_000);
    let report = world.state.stale_report();
    assert_eq!((report.expires, report.refreshed), (Some(wall(entry.expires, 0)), false));
}

#[test]
fn a_client_that_keeps_an_entry_alive_for_ever_stays_visible_without_an_end() {
    let mut world = World::after_the_first();
    let mut entry = world.entry(41_000, "old-a");
    world.scan(&[entry]);
    // It tries again every 20 s from the same port.
    for round in 0..30 {
        world.pass(20_000);
        entry = later(entry, &world);
        world.scan(&[entry]);
        let report = world.state.stale_report();
        assert_eq!(report.entries, 1);
        assert_eq!(report.expires, None, "round {round}");
        if round >= 3 {
            world.pass(15_000);
            assert_eq!(world.state.stale_report().expires, None, "more is to be expected");
        }
    }
}

#[test]
fn an_entry_is_not_stale_any_more_once_it_was_answered_or_is_gone() {
    let mut world = World::after_the_first();
    let entries = [world.entry(41_000, "old-a"), world.entry(41_001, "old-a")];
    world.scan(&entries);
    world.pass(1_000);
    assert_eq!(world.state.stale_report().entries, 2);
    world.input(What::Conntrack(ConntrackScan {
        began: world.now,
        whole: false,
        entries: Vec::new(),
        ended: vec![entries[0].key],
        left_out: 0,
    }));
    assert_eq!(world.state.stale_report().entries, 1);
}

#[test]
fn an_entry_made_when_another_pod_has_the_address_is_not_stale_and_an_older_one_is() {
    let mut world = World::after_the_first();
    let old = world.entry(41_000, "old-a");
    world.scan(&[old]);
    world.pass(2_000);
    world.pod("new-b", "n2");
    let address = world.facts("old-a").ips.clone();
    world.change("new-b", |pod| pod.ips = address);
    world.slice(&[("old-b", Is::Ready), ("new-a", Is::Ready), ("new-b", Is::Ready)]);
    world.pass(2_000);
    world.scan(&[old, world.entry(41_001, "new-b")]);
    let report = world.state.stale_report();
    assert_eq!(report.entries, 1, "{report:#?}");
    assert_eq!(&*report.endpoints[0].pod, "old-a");
}

#[test]
fn udp_entries_of_a_gone_pod_are_counted_whatever_their_port() {
    let mut world = World::after_the_first();
    let mut entry = world.entry(41_000, "old-a");
    entry.key.protocol = Transport::Udp;
    entry.backend.set_port(53);
    entry.state = None;
    world.scan(&[entry]);
    world.pass(1_000);
    assert_eq!(world.state.stale_by_protocol()[&Transport::Udp].entries, 1);
    assert_eq!(world.state.stale_by_protocol().get(&Transport::Tcp).map_or(0, |of| of.entries), 0);
}

#[test]
fn the_table_is_scanned_when_an_endpoint_that_is_dialled_here_ends_and_after_a_timeout() {
    let mut world = World::at_rest();
    world.pass(60_000);
    assert!(!world.wants_scan);
    world.slice(&[("old-a", Is::Leaving), ("old-b", Is::Ready), ("old-c", Is::Ready)]);
    world.pass(250);
    assert!(world.wants_scan);
    world.pass(20_000);
    assert!(!world.wants_scan);
    world.timed_out("old-a");
    world.pass(250);
    assert!(world.wants_scan);
}

#[test]
fn what_is_unanswered_when_the_agent_comes_pins_the_next_syn_of_its_tuple() {
    let mut world = World::after_the_first();
    let (entry, mut answered) = (world.entry(41_000, "old-a"), world.entry(41_001, "old-a"));
    answered.state = Some(3);
    world.scan(&[entry, answered]);
    let pinned = |watch: &&Watch| matches!(watch, Watch::Pinned { .. });
    let expected = Watch::Pinned {
        client: entry.key.client,
        original: entry.key.original,
        backend: entry.backend,
        expires: entry.expires,
    };
    assert_eq!(world.watch.iter().filter(pinned).collect::<Vec<_>>(), [&expected]);
    world.watch.clear();
    world.scan(&[entry, world.entry(41_002, "old-a")]);
    assert_eq!(world.watch.iter().filter(pinned).count(), 0, "the probes see what comes later");
}

#[test]
fn an_attempt_older_than_the_probes_did_not_follow_the_entry_that_it_made_itself() {
    for (started, class) in [(false, Class::Timeout), (true, Class::StaleNat)] {
        let mut world = World::after_the_first();
        world.pass(1_000);
        let mut attempt = world.attempt("old-a");
        let entry = world.entry(attempt.key.client.port(), "old-a");
        world.scan(&[entry]);
        // To the kernel side every SYN of the tuple follows an old entry.
        attempt.stale = true;
        world.pass(3_000);
        (attempt.syns, attempt.last_syn) = (3, world.now);
        let started = started.then_some(attempt.first_syn);
        world.input(What::Saw(Sighting::Abandoned { attempt, started, errno: 0, at: world.now }));
        assert_eq!(world.verdict().class, class);
    }
}
