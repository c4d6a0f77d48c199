//! Whose address it was, which Service was meant, and which node accounts for it.

use std::sync::Arc;

use rollrace::{
    engine::{ClusterChange, Config, What},
    model::{Cause, Class, ServiceFacts, SlicePort},
};

use crate::world::{CLIENT, Is, VIP, World};

const OTHERS: [(&str, Is); 3] = [("old-b", Is::Ready), ("old-c", Is::Ready), ("new-a", Is::Ready)];

/// The rollout's first old pod is gone, and another workload's pod has its address.
fn with_address_reused(after_millis: u64) -> World {
    let mut world = World::rolling();
    world.pass(300);
    world.gone("old-a");
    world.slice(&OTHERS);
    world.pass(after_millis);
    world.pod("web-a", "n2");
    let ips = world.facts("old-a").ips;
    world.change("web-a", |pod| pod.ips = ips);
    let slice = world.slice_facts("web-1", "web", &[("web-a", Is::Ready)]);
    world.cluster(ClusterChange::Slice(Arc::new(slice)));
    world
}

#[test]
fn a_syn_sent_before_another_pod_took_the_address_over_is_the_first_ones() {
    let mut world = World::rolling();
    let attempt = world.attempt("old-a");
    world.pass(300);
    world.gone("old-a");
    world.slice(&OTHERS);
    world.pass(1_000);
    world.pod("web-a", "n2");
    let ips = world.facts("old-a").ips;
    world.change("web-a", |pod| pod.ips = ips);
    world.slice(&[("web-a", Is::Ready), OTHERS[0], OTHERS[1], OTHERS[2]]);
    world.pass(1_700);
    world.abandon(attempt, 0);
    let failure = world.verdict();
    assert_eq!((&*failure.pod, failure.cause), ("old-a", Cause::Rollout));
}

#[test]
fn a_syn_sent_after_another_pod_took_the_address_over_is_not_blamed_on_the_rollout() {
    let mut world = with_address_reused(20_000);
    world.pass(20_000);
    world.refused("web-a");
    let failure = world.verdict();
    assert_eq!((&*failure.pod, failure.cause), ("web-a", Cause::Unknown));
}

#[test]
fn a_stale_syn_to_a_reused_address_is_the_first_ones() {
    let mut world = with_address_reused(10_000);
    world.pass(20_000);
    let mut attempt = world.attempt("old-a");
    attempt.stale = true;
    world.pass(3_000);
    attempt.syns = 3;
    attempt.last_syn = world.now;
    world.abandon(attempt, 0);
    let failure = world.verdict();
    assert_eq!((&*failure.pod, failure.cause), ("old-a", Cause::Rollout), "{failure:#?}");
    assert_eq!(failure.class, Class::StaleNat);
}

#[test]
fn a_fresh_syn_while_an_address_passes_from_one_to_another_fits_both_and_is_unknown() {
    let mut world = World::rolling();
    world.pass(300);
    world.slice(&OTHERS);
    world.pass(500);
    let attempt = world.attempt("old-a");
    world.pass(500);
    world.pod("web-a", "n2");
    let ips = world.facts("old-a").ips;
    world.change("web-a", |pod| pod.ips = ips);
    world.slice(&[("web-a", Is::Ready), OTHERS[0], OTHERS[1], OTHERS[2]]);
    world.pass(2_000);
    world.abandon(attempt, 0);
    let failure = world.verdict();
    assert_eq!(failure.cause, Cause::Unknown);
    assert!(failure.evidence.iter().any(|why| why.contains("either fits")), "{failure:#?}");
}

#[test]
fn of_two_pods_that_claimed_an_address_at_once_the_one_still_there_is_meant() {
    let mut world = World::at_rest();
    for pod in ["web-a", "zed-a"] {
        world.unseen_pod(pod);
    }
    let web = world.slice_facts("web-1", "web", &[("web-a", Is::Ready)]);
    let mut zed = world.slice_facts("zed-1", "zed", &[("zed-a", Is::Ready)]);
    zed.endpoints[0].addresses.clone_from(&web.endpoints[0].addresses);
    world.cluster(ClusterChange::Slice(Arc::new(web)));
    world.cluster(ClusterChange::Slice(Arc::new(zed)));
    world.pass(1_000);
    let name = "zed-1".into();
    world.cluster(ClusterChange::SliceGone { namespace: "shop".into(), name });
    world.pass(1_000);
    world.refused("web-a");
    assert_eq!(&*world.verdict().pod, "web-a");
}

#[test]
fn a_pod_that_cannot_have_existed_yet_is_not_blamed() {
    let mut world = World::at_rest();
    world.unseen_pod("new-a");
    let attempt = world.attempt("new-a");
    world.pass(20_000);
    world.set("new", 2, 1, 1);
    world.slice(&[("new-a", Is::Ready)]);
    world.slice(&[("new-a", Is::Leaving)]);
    world.abandon(attempt, 0);
    let failure = world.verdict();
    assert_eq!((failure.cause, &*failure.pod), (Cause::Unknown, ""));
}

#[test]
fn a_new_pod_dialled_by_a_proxy_that_heard_of_it_before_the_agent_is_found() {
    let mut world = World::at_rest();
    world.set("new", 2, 1, 1);
    world.unseen_pod("new-a");
    world.refused("new-a");
    world.pass(3_000);
    let facts = Arc::new(world.facts("new-a"));
    world.cluster(ClusterChange::Pod(facts));
    world.slice(&[("new-a", Is::Ready)]);
    world.answered("new-a");
    let failure = world.verdict();
    assert_eq!((failure.cause, &*failure.pod), (Cause::Rollout, "new-a"));
}

#[test]
fn a_pod_behind_two_services_is_told_apart_by_the_address_dialled() {
    let mut world = World::rolling();
    world.service("api-too", "10.96.0.81");
    let slice = world.slice_facts("too-1", "api-too", &[("old-a", Is::Leaving)]);
    world.cluster(ClusterChange::Slice(Arc::new(slice)));
    let backend = world.backend("old-a");
    for original in ["10.96.0.81:80".parse().unwrap(), backend] {
        let attempt = world.attempt_to(original, backend);
        world.refuse(attempt);
    }
    world.refused("old-a");
    world.pass(10_000);
    let services: Vec<&str> = world.failures.iter().map(|failure| &*failure.service).collect();
    // Dialled directly, it could be either.
    assert_eq!(services, ["api-too", "", "api"]);
}

#[test]
fn a_headless_services_pod_dialled_by_a_local_pod_is_accounted_for_here() {
    let mut world = World::rolling();
    let backend = world.backend("old-a");
    let attempt = world.attempt_to(backend, backend);
    world.refuse(attempt);
    let failure = world.verdict();
    assert_eq!((failure.cause, &*failure.service), (Cause::Rollout, "api"));
}

#[test]
fn a_direct_dial_by_a_pod_of_another_node_is_that_nodes_to_account_for() {
    let mut world = World::rolling();
    let backend = world.backend("old-a");
    let mut attempt = world.attempt_to(backend, backend);
    attempt.key.client.set_ip("10.244.9.9".parse().unwrap());
    world.refuse(attempt);
    world.no_verdict();
}

#[test]
fn a_direct_dial_by_a_local_pod_that_the_agent_hears_of_late_is_accounted_for_here() {
    let mut world = World::rolling();
    let backend = world.backend("old-a");
    let mut attempt = world.attempt_to(backend, backend);
    attempt.key.client.set_ip("10.244.1.77".parse().unwrap());
    world.refuse(attempt);
    world.pass(3_000);
    world.client("late", "10.244.1.77");
    assert_eq!(world.verdict().cause, Cause::Rollout);
}

/// A refusal by a pod of the node n2, as the agent of a node sees it that was told the cluster's addresses.
fn refused_directly(node: &str, client: &str) -> World {
    let cluster_cidrs = ["10.244.0.0/16", "172.30.0.0/24"].map(|range| range.parse().unwrap());
    let config = Config { cluster_cidrs: cluster_cidrs.into(), ..Config::new(node) };
    let mut world = World::rolling_with(config);
    let backend = world.backend("old-a");
    let mut attempt = world.attempt_to(backend, backend);
    attempt.key.client.set_ip(client.parse().unwrap());
    world.refuse(attempt);
    world
}

#[test]
fn a_direct_dial_from_outside_the_cluster_is_the_endpoints_node_to_account_for() {
    let failure = refused_directly("n2", "203.0.113.7").verdict();
    assert_eq!((failure.cause, &*failure.client_workload), (Cause::Rollout, "outside"));
    assert_eq!(&*failure.service, "api");
}

#[test]
fn neither_another_node_nor_one_that_knows_no_cluster_accounts_for_it() {
    refused_directly("n1", "203.0.113.7").no_verdict();
    for within in ["10.244.9.9", "172.30.0.12"] {
        refused_directly("n2", within).no_verdict();
    }
    let mut world = World::rolling_with(Config::new("n2"));
    let backend = world.backend("old-a");
    let mut attempt = world.attempt_to(backend, backend);
    attempt.key.client.set_ip("203.0.113.7".parse().unwrap());
    world.refuse(attempt);
    world.no_verdict();
}

#[test]
fn an_address_that_passed_to_another_pod_of_the_node_stays_local() {
    let mut world = World::rolling();
    world.pod("first-a", "n1");
    let ip = "10.244.1.78".parse().unwrap();
    world.change("first-a", |pod| pod.ips = vec![ip]);
    world.client("second", "10.244.1.78");
    // The end of the first comes late.
    world.gone("first-a");
    let backend = world.backend("old-a");
    let mut attempt = world.attempt_to(backend, backend);
    attempt.key.client.set_ip(ip);
    world.refuse(attempt);
    assert_eq!(world.verdict().cause, Cause::Rollout);
}

#[test]
fn a_pod_that_a_relist_lacks_is_local_no_longer() {
    let mut world = World::rolling();
    world.cluster(ClusterChange::NodePodsListed(Vec::new()));
    let backend = world.backend("old-a");
    let attempt = world.attempt_to(backend, backend);
    assert_eq!(attempt.key.client.ip().to_string(), CLIENT);
    world.refuse(attempt);
    world.no_verdict();
}

#[test]
fn pods_that_share_the_nodes_address_are_told_apart_by_the_port() {
    let mut world = World::rolling();
    world.pod("web-a", "n2");
    let ips = world.facts("old-a").ips;
    world.change("web-a", |pod| {
        pod.ips = ips;
        pod.host_network = true;
    });
    let mut slice = world.slice_facts("web-1", "web", &[("web-a", Is::Ready)]);
    slice.ports[0].port = Some(9090);
    world.cluster(ClusterChange::Slice(Arc::new(slice)));
    let mut other = world.backend("web-a");
    other.set_port(9090);
    let attempt = world.attempt_to(other, other);
    world.refuse(attempt);
    world.refused("old-a");
    world.pass(40_000);
    let by_pod: Vec<(&str, Cause)> =
        world.failures.iter().map(|failure| (&*failure.pod, failure.cause)).collect();
    assert_eq!(by_pod, [("old-a", Cause::Rollout), ("web-a", Cause::Unknown)]);
}

#[test]
fn an_endpoint_without_a_target_has_a_service_and_no_workload() {
    let mut world = World::at_rest();
    let mut slice = world.slice_facts("api-1", "api", &[("old-a", Is::Ready)]);
    slice.endpoints[0].pod = None;
    world.cluster(ClusterChange::Slice(Arc::new(slice)));
    world.refused("old-a");
    let failure = world.verdict();
    assert_eq!(failure.cause, Cause::Unknown);
    assert_eq!((&*failure.service, failure.workload), ("api", None));
}

#[test]
fn a_slice_without_ports_matches_by_the_address() {
    for ports in
        [Vec::new(), vec![SlicePort { name: "".into(), protocol: "TCP".into(), port: None }]]
    {
        let mut world = World::rolling();
        world.slice(&OTHERS);
        world.unseen_pod("old-z");
        let mut slice = world.slice_facts("any-1", "any", &[("old-z", Is::Ready)]);
        slice.ports = ports;
        world.cluster(ClusterChange::Slice(Arc::new(slice)));
        world.refused("old-z");
        assert_eq!(&*world.verdict().pod, "old-z");
    }
}

#[test]
fn a_service_without_any_endpoint_rejects_and_the_one_that_emptied_it_is_blamed() {
    use rollrace::model::{Answer, Sighting};
    let mut world = World::rolling();
    world.slice(&[("old-a", Is::Leaving)]);
    world.slice(&[]);
    world.pass(100);
    let vip = crate::world::VIP.parse().unwrap();
    let mut attempt = world.attempt_to(vip, vip);
    attempt.syns = 0;
    attempt.backend = None;
    let answer = Answer::Icmp { code: 3, v6: false };
    world.input(What::Saw(Sighting::Answered { attempt, answer, at: world.now }));
    world.abandon(attempt, 111);
    let failure = world.verdict();
    assert_eq!(failure.class, Class::Rejected, "{failure:#?}");
    assert_eq!((&*failure.namespace, &*failure.service), ("shop", "api"));
}

#[test]
fn what_concerns_no_service_at_all_is_not_told() {
    let mut world = World::at_rest();
    let foreign = "198.51.100.1:443".parse().unwrap();
    let attempt = world.attempt_to(foreign, foreign);
    world.refuse(attempt);
    let attempt = world.attempt_to(foreign, "198.51.100.2:443".parse().unwrap());
    world.refuse(attempt);
    world.no_verdict();
}

#[test]
fn a_retransmit_is_of_whoever_had_the_address_when_its_entry_was_made() {
    let mut world = World::after_the_first();
    let mut attempt = world.attempt("old-a");
    // Longer than a watch may lag: that pod cannot have been there when the first SYN was sent.
    world.pass(11_000);
    world.pod("web-a", "n2");
    let address = world.facts("old-a").ips.clone();
    world.change("web-a", |pod| pod.ips = address);
    let slice = world.slice_facts("web-1", "web", &[("web-a", Is::NotReady)]);
    world.cluster(ClusterChange::Slice(Arc::new(slice)));
    world.pass(4_000);
    // The pod that has the address by now does not listen.
    (attempt.syns, attempt.last_syn) = (2, world.now);
    world.refuse(attempt);
    let failure = world.verdict();
    assert_eq!((&*failure.pod, failure.cause), ("old-a", Cause::Rollout), "{failure:#?}");
}

/// The Service sends to endpoints of the client's node only; the one there has left.
fn without_a_local_endpoint(local: bool) -> World {
    let mut world = World::at_rest();
    let name = ("shop".into(), "api".into());
    let known = world.state.endpoints().service_facts(&name).unwrap();
    let mut facts = ServiceFacts::clone(known);
    facts.internal_local = local;
    world.cluster(ClusterChange::Service(Arc::new(facts)));
    world.pod("old-d", "n1");
    let others = [("old-a", Is::Ready), ("old-b", Is::Ready), ("old-c", Is::Ready)];
    world.slice(&[others[0], others[1], others[2], ("old-d", Is::Ready)]);
    world.pass(10_000);
    world.delete("old-d");
    world.change("old-d", |pod| pod.disruption = Some("EvictionByEvictionAPI".into()));
    world.slice(&[others[0], others[1], others[2], ("old-d", Is::Leaving)]);
    world.pass(500);
    world
}

/// A SYN to the Service's address is dropped before any rule chose a backend.
fn dropped_undirected(world: &mut World, reason: &str) {
    let vip = VIP.parse().unwrap();
    let mut attempt = world.attempt_to(vip, vip);
    attempt.confirmed = false;
    world.dropped(attempt, reason);
    world.pass(3_000);
    attempt.syns = 3;
    world.abandon(attempt, 0);
}

#[test]
fn a_drop_for_want_of_a_local_endpoint_is_rejected_and_due_to_the_one_that_left() {
    let mut world = without_a_local_endpoint(true);
    dropped_undirected(&mut world, "NETFILTER_DROP");
    let failure = world.verdict();
    assert_eq!((failure.class, failure.cause), (Class::Rejected, Cause::Eviction), "{failure:#?}");
    assert_eq!((&*failure.service, &*failure.pod), ("api", "old-d"));
}

#[test]
fn a_drop_by_another_reason_or_without_a_local_policy_is_no_rejection() {
    for (local, reason) in [(true, "NO_SOCKET"), (false, "NETFILTER_DROP")] {
        let mut world = without_a_local_endpoint(local);
        dropped_undirected(&mut world, reason);
        assert_eq!(world.verdict().class, Class::Timeout, "{local} {reason}");
    }
}
