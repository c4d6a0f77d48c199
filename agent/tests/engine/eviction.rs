//! Which conntrack entries are deleted, and what protects the others: a case for each rule.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use rollrace::{
    engine::{ClusterChange, Config, EvictMode, Evicted, What},
    model::{ConntrackEntry, DST_NAT, EvictionResult, SEEN_REPLY, ServiceFacts, Transport},
    stale::{Protected, Tracked, World as Rules, may_evict},
};

use crate::world::{Is, World};

const SECOND: u64 = 1_000_000_000;
const NODE: &str = "172.30.0.11";

fn evicting(evict: EvictMode) -> World {
    let config = Config { evict, ..Config::new("n1") };
    let mut world = World::after_the_first_with(config);
    world.scan(&[world.entry(41_000, "old-a"), world.entry(41_001, "old-b")]);
    world
}

/// What the rules say of an entry at the end of a world.
fn said(world: &World, entry: ConntrackEntry) -> Result<(), Protected> {
    let tracked =
        Tracked { entry, first_seen: world.now, refreshed: None, refreshes: 0, eviction: None };
    let node_addresses = BTreeSet::from([NODE.parse::<IpAddr>().unwrap()]);
    let rules = Rules {
        endpoints: world.state.endpoints(),
        node_addresses: &node_addresses,
        synced: world.state.is_synced(),
        after: 2 * SECOND,
        now: world.now,
    };
    may_evict(&tracked, &rules)
}

/// The old pod has been gone for 5 s, and the Service has others.
fn long_gone() -> World {
    let mut world = World::after_the_first();
    world.pass(5_000);
    world
}

#[test]
fn an_unanswered_syns_entry_to_a_pod_that_is_long_gone_may_be_deleted() {
    let world = long_gone();
    assert_eq!(said(&world, world.entry(41_000, "old-a")), Ok(()));
}

#[test]
fn each_property_of_an_entry_protects_it() {
    type Change = fn(&mut ConntrackEntry);
    let cases: [(Change, Protected); 10] = [
        (|entry| entry.key.protocol = Transport::Udp, Protected::NotTcp),
        (|entry| entry.state = Some(3), Protected::NotSynSent),
        (|entry| entry.state = None, Protected::NotSynSent),
        (|entry| entry.status |= SEEN_REPLY, Protected::Answered),
        (|entry| entry.status &= !DST_NAT, Protected::NotDnat),
        (|entry| entry.backend.set_port(9_999), Protected::UnknownBackend),
        (|entry| entry.key.original.set_port(81), Protected::NoService),
        (|entry| entry.key.original.set_ip([10, 96, 0, 81].into()), Protected::NoService),
        // A node port, but of another node's address.
        (|entry| entry.key.original = "172.30.0.12:30080".parse().unwrap(), Protected::NoService),
        (|entry| entry.key.original = "172.30.0.11:30081".parse().unwrap(), Protected::NoService),
    ];
    let world = with_all_addresses();
    for (index, (change, why)) in cases.into_iter().enumerate() {
        let mut entry = world.entry(41_000, "old-a");
        change(&mut entry);
        assert_eq!(said(&world, entry), Err(why), "case {index}");
    }
}

#[test]
fn a_serving_pods_entry_is_protected() {
    let world = long_gone();
    assert_eq!(said(&world, world.entry(41_000, "old-b")), Err(Protected::CurrentBackend));
}

#[test]
fn a_leaving_pods_entry_is_protected_until_it_is_gone_and_two_seconds_longer() {
    let mut world = World::rolling();
    world.pass(10_000);
    let entry = world.entry(41_000, "old-a");
    assert_eq!(said(&world, entry), Err(Protected::CurrentBackend));
    world.gone("old-a");
    world.slice(&[("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Ready)]);
    world.pass(1_999);
    assert_eq!(said(&world, entry), Err(Protected::GoneTooShort));
    world.pass(1);
    assert_eq!(said(&world, entry), Ok(()));
}

#[test]
fn an_address_that_another_pod_has_taken_is_protected_be_it_of_any_port() {
    for port in [Some(8080), None] {
        let mut world = long_gone();
        world.pod("new-b", "n2");
        let address = world.facts("old-a").ips.clone();
        world.change("new-b", |pod| pod.ips = address);
        let mut slice = world.slice_facts("other-1", "other", &[("new-b", Is::NotReady)]);
        match port {
            Some(port) => slice.ports[0].port = Some(port),
            None => slice.ports.clear(),
        }
        world.cluster(ClusterChange::Slice(Arc::new(slice)));
        let entry = world.entry(41_000, "old-a");
        assert_eq!(said(&world, entry), Err(Protected::CurrentBackend), "{port:?}");
    }
}

#[test]
fn nothing_is_deleted_where_no_endpoint_would_answer_a_new_attempt() {
    let mut world = long_gone();
    world.slice(&[("old-b", Is::Leaving), ("old-c", Is::NotReady)]);
    let entry = world.entry(41_000, "old-a");
    assert_eq!(said(&world, entry), Err(Protected::NoServingEndpoint));
}

#[test]
fn nothing_is_deleted_while_the_watches_are_out_of_step() {
    let mut world = long_gone();
    world.cluster(ClusterChange::Synced(false));
    assert_eq!(said(&world, world.entry(41_000, "old-a")), Err(Protected::OutOfStep));
}

#[test]
fn a_deleted_service_is_none_though_its_address_is_remembered() {
    let mut world = long_gone();
    let (namespace, name) = ("shop".into(), "api".into());
    world.cluster(ClusterChange::ServiceGone { namespace, name });
    assert_eq!(said(&world, world.entry(41_000, "old-a")), Err(Protected::NoService));
}

fn with_all_addresses() -> World {
    let mut world = long_gone();
    let name = ("shop".into(), "api".into());
    let known = world.state.endpoints().service_facts(&name).unwrap();
    let mut facts = ServiceFacts::clone(known);
    facts.external_ips = vec![[192, 0, 2, 7].into()];
    facts.ports[0].node_port = Some(30_080);
    world.cluster(ClusterChange::Service(Arc::new(facts)));
    world
}

#[test]
fn cluster_external_and_node_port_addresses_are_a_services() {
    let world = with_all_addresses();
    for original in ["10.96.0.80:80", "192.0.2.7:80", "172.30.0.11:30080"] {
        let mut entry = world.entry(41_000, "old-a");
        entry.key.original = original.parse().unwrap();
        assert_eq!(said(&world, entry), Ok(()), "{original}");
    }
}

#[test]
fn eviction_is_off_unless_it_is_asked_for() {
    assert_eq!(Config::new("n1").evict, EvictMode::Off);
    let mut world = evicting(EvictMode::Off);
    world.pass(60_000);
    assert_eq!(world.evictions, []);
}

#[test]
fn a_stale_entry_is_deleted_two_seconds_after_its_pod_is_gone_and_no_other() {
    let mut world = evicting(EvictMode::On);
    world.pass(1_900);
    assert_eq!(world.evictions, []);
    world.pass(400);
    let [eviction] = world.evictions[..] else { panic!("one: {:?}", world.evictions) };
    let entry = world.entry(41_000, "old-a");
    assert_eq!((eviction.key, eviction.id, eviction.dry_run), (entry.key, entry.id, false));
    let (key, id) = (entry.key, entry.id);
    world.input(What::Evicted(Evicted { key, id, result: EvictionResult::Evicted }));
    world.pass(1_000);
    assert_eq!(world.state.stale_report().entries, 0);
    assert_eq!(world.state.evictions()[&EvictionResult::Evicted], 1);
    world.pass(30_000);
    assert_eq!(world.evictions.len(), 1, "it is asked for once");
}

#[test]
fn an_eviction_that_failed_is_counted_and_tried_again_while_the_entry_is_there() {
    let mut world = evicting(EvictMode::On);
    world.pass(2_500);
    let entry = world.entry(41_000, "old-a");
    let (key, id) = (entry.key, entry.id);
    world.input(What::Evicted(Evicted { key, id, result: EvictionResult::Failed }));
    world.pass(2_000);
    assert_eq!(world.evictions.len(), 1);
    world.pass(4_000);
    assert_eq!(world.evictions.len(), 2);
    assert_eq!(world.state.evictions()[&EvictionResult::Failed], 1);
}

#[test]
fn a_dry_run_says_once_what_it_would_delete() {
    let mut world = evicting(EvictMode::DryRun);
    world.pass(60_000);
    let [eviction] = world.evictions[..] else { panic!("one: {:?}", world.evictions) };
    assert!(eviction.dry_run);
    assert_eq!(world.state.stale_report().entries, 1, "it is still there");
}
