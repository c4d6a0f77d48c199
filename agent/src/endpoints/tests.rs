use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use super::{
    Change, Endpoints, Lifetime, MAX_GONE, MAX_RECENT, REMEMBER_NANOS, UNNOTICED_NANOS,
    WATCH_LAG_NANOS,
};
use crate::model::{
    Endpoint, EndpointConditions, Mono, ObjectRef, ServiceFacts, ServicePort, SliceFacts, SlicePort,
};

const SECOND: u64 = 1_000_000_000;
const READY: EndpointConditions =
    EndpointConditions { ready: true, serving: true, terminating: false };
const NOT_READY: EndpointConditions =
    EndpointConditions { ready: false, serving: false, terminating: false };
const LEAVING: EndpointConditions =
    EndpointConditions { ready: false, serving: true, terminating: true };

fn at(second: u64) -> Mono {
    Mono((1_000 + second) * SECOND)
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn endpoint(ip: &str, uid: &str, conditions: EndpointConditions) -> Endpoint {
    let pod =
        ObjectRef { kind: "Pod".into(), api_version: "".into(), name: uid.into(), uid: uid.into() };
    Endpoint {
        addresses: vec![ip.parse().unwrap()],
        conditions,
        node: None,
        pod: (!uid.is_empty()).then_some(pod),
    }
}

fn slice(name: &str, service: &str, endpoints: Vec<Endpoint>) -> SliceFacts {
    SliceFacts {
        namespace: "shop".into(),
        name: name.into(),
        resource_version: "1".into(),
        service: service.into(),
        managed_by: "".into(),
        ports: vec![SlicePort { name: "".into(), protocol: "TCP".into(), port: Some(8080) }],
        endpoints,
    }
}

/// In step, with nothing listed.
fn listed() -> Endpoints {
    let mut endpoints = Endpoints::out_of_step();
    endpoints.slices_listed(&[], at(0));
    endpoints.in_step(true, at(0));
    endpoints
}

fn only(endpoints: &Endpoints) -> &Lifetime {
    let mut all = endpoints.all();
    let life = all.next().expect("a lifetime");
    assert!(all.next().is_none(), "more than one");
    life
}

#[test]
fn an_endpoint_leaves_when_it_is_first_not_ready_terminating_or_absent() {
    for (next, terminating, gone) in [
        (vec![endpoint("10.0.0.1", "a", NOT_READY)], false, false),
        (vec![endpoint("10.0.0.1", "a", LEAVING)], true, false),
        (Vec::new(), false, true),
    ] {
        let mut endpoints = listed();
        endpoints.slice(&slice("s", "api", vec![endpoint("10.0.0.1", "a", READY)]), at(1));
        let changes = endpoints.slice(&slice("s", "api", next), at(2));
        let left = address("10.0.0.1:8080");
        let expected = [Change::Left(left), Change::Gone(left)];
        assert_eq!(changes, expected[..=usize::from(gone)]);
        let life = only(&endpoints);
        assert_eq!(life.left, Some(at(2)));
        assert_eq!((life.terminating.is_some(), life.gone.is_some()), (terminating, gone));
    }
}

#[test]
fn an_endpoint_that_was_never_ready_has_not_left_yet() {
    let mut endpoints = listed();
    endpoints.slice(&slice("s", "api", vec![endpoint("10.0.0.1", "a", NOT_READY)]), at(1));
    assert_eq!(only(&endpoints).left, None);
}

#[test]
fn one_that_becomes_ready_again_has_not_left() {
    let mut endpoints = listed();
    for (second, conditions) in [(1, READY), (2, NOT_READY), (3, READY)] {
        let content = slice("s", "api", vec![endpoint("10.0.0.1", "a", conditions)]);
        endpoints.slice(&content, at(second));
    }
    let life = only(&endpoints);
    assert_eq!((life.ready, life.left, life.left_after), (Some(at(1)), None, None));
}

#[test]
fn a_move_between_two_slices_is_no_departure() {
    let pod = || vec![endpoint("10.0.0.1", "a", READY)];
    let mut endpoints = listed();
    endpoints.slice(&slice("one", "api", pod()), at(1));
    endpoints.slice(&slice("two", "api", pod()), at(2));
    assert!(endpoints.slice(&slice("one", "api", Vec::new()), at(3)).is_empty());
    assert!(endpoints.slice_gone(&("shop".into(), "one".into()), at(4)).is_empty());
    let life = only(&endpoints);
    assert_eq!((life.first_seen, life.left), (at(1), None));
    assert_eq!(endpoints.slice_gone(&("shop".into(), "two".into()), at(5)).len(), 2);
    assert_eq!(only(&endpoints).gone, Some(at(5)));
}

#[test]
fn an_endpoint_is_as_ready_as_the_best_of_its_slices_says() {
    let mut endpoints = listed();
    endpoints.slice(&slice("one", "api", vec![endpoint("10.0.0.1", "a", READY)]), at(1));
    endpoints.slice(&slice("two", "too", vec![endpoint("10.0.0.1", "a", NOT_READY)]), at(2));
    let life = only(&endpoints);
    assert_eq!(life.left, None);
    assert_eq!(life.services, BTreeSet::from(["api".into(), "too".into()]));
}

#[test]
fn an_endpoint_named_twice_by_one_slice_is_one() {
    let twice = vec![endpoint("10.0.0.1", "a", NOT_READY), endpoint("10.0.0.1", "a", READY)];
    let mut endpoints = listed();
    let changes = endpoints.slice(&slice("s", "api", twice), at(1));
    assert_eq!(changes.len(), 1);
    assert_eq!(only(&endpoints).ready, Some(at(1)));
}

#[test]
fn a_relist_that_lacks_a_slice_is_the_departure_of_its_endpoints() {
    let mut endpoints = listed();
    endpoints.slice(&slice("one", "api", vec![endpoint("10.0.0.1", "a", READY)]), at(1));
    endpoints.slice(&slice("two", "api", vec![endpoint("10.0.0.2", "b", READY)]), at(1));
    let changes = endpoints.slices_listed(&[("shop".into(), "two".into())], at(9));
    let gone = address("10.0.0.1:8080");
    assert_eq!(changes, [Change::Left(gone), Change::Gone(gone)]);
    assert_eq!(endpoints.counts(), (1, 0, 1));
}

#[test]
fn a_relist_that_moved_an_endpoint_to_another_slice_is_no_departure() {
    let mut endpoints = listed();
    endpoints.slice(&slice("one", "api", vec![endpoint("10.0.0.1", "a", READY)]), at(1));
    endpoints.slice(&slice("two", "api", vec![endpoint("10.0.0.1", "a", READY)]), at(9));
    assert!(endpoints.slices_listed(&[("shop".into(), "two".into())], at(9)).is_empty());
}

#[test]
fn an_address_taken_over_by_another_pod_is_another_lifetime() {
    let mut endpoints = listed();
    endpoints.slice(&slice("s", "api", vec![endpoint("10.0.0.1", "a", READY)]), at(1));
    endpoints.slice(&slice("s", "api", vec![endpoint("10.0.0.1", "b", READY)]), at(2));
    let lives = endpoints.at(address("10.0.0.1:8080"));
    assert_eq!((lives[0].gone, lives[1].first_seen), (Some(at(2)), at(2)));
    // Back once more, it is not the lifetime that ended before.
    endpoints.slice(&slice("s", "api", vec![endpoint("10.0.0.1", "a", READY)]), at(3));
    assert_eq!(endpoints.at(address("10.0.0.1:8080")).len(), 3);
    assert_eq!(endpoints.counts(), (1, 0, 2));
}

#[test]
fn the_same_pod_back_in_a_slice_goes_on() {
    let mut endpoints = listed();
    endpoints.slice(&slice("s", "api", vec![endpoint("10.0.0.1", "a", READY)]), at(1));
    endpoints.slice(&slice("s", "api", Vec::new()), at(2));
    endpoints.slice(&slice("s", "api", vec![endpoint("10.0.0.1", "a", READY)]), at(3));
    let life = only(&endpoints);
    assert_eq!((life.first_seen, life.left, life.gone), (at(1), None, None));
    assert_eq!(endpoints.counts(), (1, 0, 0));
}

#[test]
fn a_bare_address_claimed_in_two_namespaces_is_two_endpoints() {
    let bare = || vec![endpoint("192.0.2.1", "", READY)];
    let mut other = slice("s", "db", bare());
    other.namespace = "other".into();
    let mut endpoints = listed();
    endpoints.slice(&slice("s", "api", bare()), at(1));
    endpoints.slice(&other, at(1));
    let lives = endpoints.at(address("192.0.2.1:8080"));
    let named: Vec<(&str, usize)> =
        lives.iter().map(|life| (&*life.namespace, life.services.len())).collect();
    assert_eq!(named, [("shop", 1), ("other", 1)]);
}

#[test]
fn what_was_there_before_the_agent_may_have_begun_at_any_time() {
    let mut endpoints = Endpoints::out_of_step();
    endpoints.slice(&slice("s", "api", vec![endpoint("10.0.0.1", "a", READY)]), at(1));
    endpoints.slices_listed(&[("shop".into(), "s".into())], at(1));
    endpoints.in_step(true, at(1));
    assert_eq!((only(&endpoints).baseline, only(&endpoints).begun_after), (true, Mono(0)));
}

#[test]
fn what_is_seen_after_an_outage_may_have_been_since_its_begin() {
    let mut endpoints = listed();
    endpoints.slice(&slice("s", "api", vec![endpoint("10.0.0.1", "a", READY)]), at(1));
    endpoints.in_step(false, at(100));
    endpoints.slice(&slice("s", "api", vec![endpoint("10.0.0.2", "b", READY)]), at(170));
    let [gone, new] = [1, 2].map(|n| endpoints.at(address(&format!("10.0.0.{n}:8080")))[0].clone());
    let since = Mono(at(100).0 - UNNOTICED_NANOS - WATCH_LAG_NANOS);
    assert_eq!((gone.left, gone.left_after), (Some(at(170)), Some(since)));
    assert_eq!((new.first_seen, new.begun_after), (at(170), since));
    endpoints.in_step(true, at(171));
    endpoints.slice(&slice("s", "api", Vec::new()), at(200));
    let left_after = endpoints.at(address("10.0.0.2:8080"))[0].left_after;
    assert_eq!(left_after, Some(Mono(at(200).0 - WATCH_LAG_NANOS)));
}

#[test]
fn a_watch_that_goes_on_where_it_was_brings_the_past_and_one_that_lists_anew_does_not() {
    let ready = |name: &str, last: u8| {
        slice(name, "api", vec![endpoint(&format!("10.0.0.{last}"), name, READY)])
    };
    let mut endpoints = listed();
    for (name, last) in [("a", 1), ("b", 2), ("c", 3)] {
        endpoints.slice(&ready(name, last), at(1));
    }
    let left_after = |name: &str, last: u8, when: u64, endpoints: &mut Endpoints| {
        endpoints.slice_gone(&("shop".into(), name.into()), at(when));
        endpoints.at(address(&format!("10.0.0.{last}:8080")))[0].left_after.unwrap()
    };
    let since = Mono(at(100).0 - UNNOTICED_NANOS - WATCH_LAG_NANOS);
    endpoints.in_step(false, at(100));
    endpoints.in_step(true, at(170));
    assert_eq!(left_after("a", 1, 171, &mut endpoints), since, "it was missed meanwhile");
    endpoints.in_step(false, at(172));
    let names = [("shop".into(), "b".into()), ("shop".into(), "c".into())];
    endpoints.slices_listed(&names, at(173));
    endpoints.in_step(true, at(174));
    let lag = |when: u64| Mono(at(when).0 - WATCH_LAG_NANOS);
    assert_eq!(left_after("b", 2, 175, &mut endpoints), lag(175), "the list was the present");
    assert_eq!(left_after("c", 3, 200, &mut endpoints), lag(200));
}

#[test]
fn the_gone_are_forgotten_after_an_hour_with_all_that_points_at_them() {
    let mut endpoints = listed();
    endpoints.slice(&slice("s", "api", vec![endpoint("10.0.0.1", "a", READY)]), at(1));
    endpoints.slice(&slice("s", "api", vec![endpoint("10.0.0.2", "b", READY)]), at(2));
    let hour = at(2).plus(REMEMBER_NANOS);
    assert!(endpoints.forget(hour).is_empty());
    let changes = endpoints.forget(hour.plus(1));
    assert_eq!(changes, [Change::Forgotten(address("10.0.0.1:8080"))]);
    let name = ("shop".into(), "api".into());
    assert_eq!(endpoints.of_service(&name).count(), 1);
    assert_eq!((endpoints.of_pod("a").count(), endpoints.of_pod("b").count()), (0, 1));
    assert_eq!(endpoints.counts(), (1, 0, 0));
}

#[test]
fn past_the_bound_the_first_gone_are_forgotten_first() {
    let mut endpoints = listed();
    for n in 0..MAX_GONE as u64 + 2 {
        let uid = format!("pod{n}");
        endpoints.slice(&slice("s", "api", vec![endpoint("10.0.0.1", &uid, READY)]), at(n));
    }
    assert!(endpoints.is_overfull());
    endpoints.forget(at(MAX_GONE as u64 + 2));
    assert!(!endpoints.is_overfull());
    assert_eq!((endpoints.of_pod("pod0").count(), endpoints.counts().0), (0, 1));
    assert_eq!(endpoints.all().count(), endpoints.counts().0 + endpoints.counts().2);
    let known = u64::try_from(endpoints.all().count()).unwrap();
    assert_eq!(endpoints.forgotten, MAX_GONE as u64 + 2 - known, "it is counted");
    assert!(endpoints.left_recently(at(MAX_GONE as u64 + 2)).count() <= MAX_RECENT);
    assert_eq!(endpoints.forgotten_departures, (MAX_GONE + 1 - MAX_RECENT) as u64);
}

fn service(name: &str, ip: &str, port: u16) -> Arc<ServiceFacts> {
    Arc::new(ServiceFacts {
        namespace: "shop".into(),
        name: name.into(),
        resource_version: "1".into(),
        cluster_ips: vec![ip.parse().unwrap()],
        external_ips: Vec::new(),
        ports: vec![ServicePort {
            name: "".into(),
            protocol: "TCP".into(),
            port,
            node_port: Some(30_000),
        }],
        has_selector: true,
        publish_not_ready: false,
        external_local: false,
        internal_local: false,
    })
}

#[test]
fn a_deleted_services_address_keeps_its_name_until_another_takes_it_or_an_hour_is_over() {
    let vip = address("10.96.0.80:80");
    let named = |endpoints: &Endpoints| endpoints.service_at(vip).map(|name| name.1.to_string());
    let mut endpoints = listed();
    endpoints.service(service("api", "10.96.0.80", 80), at(1));
    endpoints.service_gone(&("shop".into(), "api".into()), at(2));
    assert_eq!(named(&endpoints).as_deref(), Some("api"));
    let mut reused = endpoints.clone();
    reused.service(service("web", "10.96.0.80", 80), at(3));
    assert_eq!(named(&reused).as_deref(), Some("web"));
    let changes = endpoints.forget(at(3).plus(REMEMBER_NANOS));
    assert_eq!(changes, [Change::Forgotten(vip)]);
    assert_eq!(named(&endpoints), None);
    assert_eq!(endpoints.service_at_node_port(30_000), None);
    assert!(reused.forget(at(3).plus(REMEMBER_NANOS)).is_empty());
}

#[test]
fn a_port_that_a_service_gave_up_is_forgotten_and_one_that_it_kept_is_not() {
    let mut endpoints = listed();
    endpoints.service(service("api", "10.96.0.80", 80), at(1));
    endpoints.service(service("api", "10.96.0.80", 81), at(2));
    endpoints.service(service("api", "10.96.0.80", 81), at(3));
    let changes = endpoints.forget(at(4).plus(REMEMBER_NANOS));
    assert_eq!(changes, [Change::Forgotten(address("10.96.0.80:80"))]);
    assert!(endpoints.service_at(address("10.96.0.80:81")).is_some());
}
