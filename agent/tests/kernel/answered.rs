//! SYNs on their way, and what they are counted as once they are answered.

use std::{thread, time::Duration};

use rollrace::{engine::Watch, model::Sighting};

use crate::support::{Dial, Ip, Node, Service, Syn, TIMED_OUT, at, is_refusal, now, of};

#[test]
fn a_syn_seen_on_the_bridge_and_on_its_port_is_one_and_ends_confirmed() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        node.add_bridge();
        let (client, server) = (node.pod(2), node.bridge_pod(3));
        // It answers its neighbours, and drops the SYN where this node does not look.
        server.filter(ip, "-A INPUT -p tcp -m tcp --dport 8080 -j DROP");
        let (service, backend) = (ip.service(), at(ip.bridge_pod(3), 8080));
        node.namespace.program(&Service::new(service, &[backend]));
        let (result, local) = client.try_once(Dial::for_millis(service, 400));
        assert_eq!(result, Err(TIMED_OUT));
        let seen = node.watcher.wait_for("the end", of(local, service));
        let attempt = seen.attempt();
        assert_eq!((attempt.syns, attempt.backend), (1, Some(backend)), "{seen:?}");
        assert!(attempt.confirmed && attempt.dnat, "{attempt:?}");
        let read = node.watcher.losses().matched;
        assert!(read >= 2, "it was seen on both devices: {read}");
    }
}

#[test]
fn an_answer_of_a_host_network_pod_counts_though_no_device_showed_its_syn() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let client = node.pod(2);
        let _listener = node.namespace.listen(at(ip.any(), 8080));
        let (service, backend) = (ip.service(), at(ip.node(), 8080));
        node.namespace.program(&Service::new(service, &[backend]));
        for _ in 0..3 {
            assert_eq!(client.try_once(Dial::new(service)).0, Ok(()));
        }
        assert_eq!(node.watcher.counts(service), (3, 3, 0));
        let fresh = node.watcher.fresh(backend).expect("they were fresh");
        assert_eq!(fresh.by_second.iter().map(|(_, count)| count).sum::<u32>(), 3);
        assert!(fresh.first_answer.is_some());
        assert_eq!(node.watcher.all(&node.namespace), []);
    }
}

#[test]
fn a_half_open_probe_by_the_node_itself_is_answered_though_no_socket_waits_for_it() {
    for ip in [Ip::V4, Ip::V6] {
        for conntrack in [true, false] {
            let mut node = Node::new();
            let server = node.pod(3);
            let _listener = server.listen(at(ip.any(), 8080));
            let backend = at(ip.pod(3), 8080);
            let mut to = backend;
            if conntrack {
                to = ip.service();
                node.namespace.program(&Service::new(to, &[backend]));
            }
            node.watcher.watch(&[Watch::Endpoint(backend)]);
            let from = at(ip.node(), 10_001);
            for isn in [1_000, 900_000] {
                node.namespace.send(&[Syn { from, to, isn, payload: 0 }]);
                assert_eq!(node.watcher.all(&node.namespace), []);
            }
            assert_eq!(node.watcher.counts(to), (2, 2, 0), "conntrack: {conntrack}");
            assert_eq!(node.watcher.sweep(Duration::ZERO).unanswered, []);
        }
    }
}

#[test]
fn counters_and_fresh_syns_are_exact_over_two_hundred_connections() {
    const CONNECTIONS: u64 = 200;
    let ip = Ip::V4;
    let mut node = Node::new();
    let (client, server, _closed) = (node.pod(2), node.pod(3), node.pod(4));
    let listener = server.listen(at(ip.any(), 8080));
    let (service, live, dead) = (ip.service(), at(ip.pod(3), 8080), at(ip.pod(4), 8080));
    node.namespace.program(&Service::new(service, &[live, dead]));
    // It ends with the test's process; nothing waits for it.
    thread::spawn(move || listener.incoming().for_each(drop));
    let (mut answered, mut refused, mut last) = (0, 0, [now(); 2]);
    for _ in 0..CONNECTIONS {
        let before = now();
        if client.try_once(Dial::new(service)).0.is_ok() {
            (answered, last[0]) = (answered + 1, before);
        } else {
            (refused, last[1]) = (refused + 1, before);
        }
    }
    let seen = node.watcher.all(&node.namespace);
    // On a busy machine a SYN may have to be sent again, and then its answer is told as well.
    let (refusals, others): (Vec<_>, Vec<_>) = seen.iter().partition(|seen| is_refusal(seen));
    assert_eq!(u64::try_from(refusals.len()).unwrap(), refused);
    assert!(others.iter().all(|seen| seen.attempt().syns > 1), "{others:#?}");
    assert_eq!(answered + refused, CONNECTIONS);
    assert_eq!(node.watcher.counts(service), (CONNECTIONS, answered, refused));
    for (backend, count, last) in [(live, answered, last[0]), (dead, refused, last[1])] {
        let fresh = node.watcher.fresh(backend).expect("there were fresh SYNs");
        let sum: u64 = fresh.by_second.iter().map(|(_, count)| u64::from(*count)).sum();
        assert_eq!(sum, count, "{fresh:?}");
        assert!((last..=now()).contains(&fresh.last), "{fresh:?} after {last:?}");
        assert_eq!(fresh.first_answer.is_some(), backend == live);
    }
    assert_eq!(node.watcher.sweep(Duration::ZERO).unanswered, []);
}

#[test]
fn without_dnat_a_watched_address_is_tracked_and_an_unwatched_one_is_not() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let (client, _watched, _other) = (node.pod(2), node.pod(3), node.pod(4));
        let (watched, other) = (at(ip.pod(3), 8080), at(ip.pod(4), 8080));
        node.watcher.watch(&[Watch::Endpoint(watched), Watch::Local(ip.pod(2))]);
        // With conntrack and without: the first Service switches it on.
        for conntrack in [false, true] {
            if conntrack {
                node.namespace.program(&Service::new(ip.service(), &[]));
            }
            let (_, local) = client.try_once(Dial::new(watched));
            client.try_once(Dial::new(other)).0.unwrap_err();
            let seen = node.watcher.all(&node.namespace);
            let seen: Vec<&Sighting> =
                seen.iter().filter(|seen| seen.attempt().key.client == local).collect();
            let [refusal] = seen[..] else { panic!("more or less than one: {seen:#?}") };
            assert!(is_refusal(refusal), "{refusal:?}");
            let attempt = refusal.attempt();
            assert!(!attempt.dnat && attempt.backend == Some(watched), "{attempt:?}");
        }
        assert_eq!(node.watcher.counts(watched), (2, 0, 2));
        assert_eq!(node.watcher.counts(other), (0, 0, 0));
    }
}

#[test]
fn an_address_taken_from_the_watch_set_is_not_tracked_any_more() {
    let mut node = Node::new();
    let (client, _server) = (node.pod(2), node.pod(3));
    let backend = at(Ip::V4.pod(3), 8080);
    node.watcher.watch(&[Watch::Endpoint(backend)]);
    node.watcher.watch(&[Watch::Forget(backend)]);
    client.try_once(Dial::new(backend)).0.unwrap_err();
    assert_eq!(node.watcher.all(&node.namespace), []);
}
