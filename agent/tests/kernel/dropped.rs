//! SYNs that no device shows: no neighbour, rejected, dropped before their entry is confirmed.

use std::{thread, time::Duration};

use nix::errno::Errno;
use rollrace::{
    engine::Watch,
    model::{Answer, Sighting},
};

use crate::support::{Dial, Ip, Node, Service, TIMED_OUT, at, bare_node, of};

/// The reason of a drop.
fn reason(seen: &Sighting) -> Option<&str> {
    match seen {
        Sighting::Dropped { drop, .. } => Some(&drop.reason),
        _ => None,
    }
}

fn is_icmp(seen: &Sighting) -> bool {
    matches!(seen, Sighting::Answered { answer: Answer::Icmp { .. }, .. })
}

#[test]
fn a_syn_that_waits_for_a_dead_neighbour_is_told_after_its_client_gave_up() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        node.add_bridge();
        let client = node.pod(2);
        let (service, backend) = (ip.service(), at(ip.bridge_pod(99), 8080));
        node.namespace.program(&Service::new(service, &[backend]));
        node.watcher.watch(&[Watch::Service(service), Watch::Local(ip.pod(2))]);
        let (result, local) = client.try_once(Dial::for_millis(service, 900));
        assert_eq!(result, Err(TIMED_OUT));
        let end = node.watcher.wait_for("the socket's end", of(local, service));
        let Sighting::Abandoned { attempt: unseen, started: Some(started), errno: 0, at: end } =
            end
        else {
            panic!("the socket's end with its start: {end:?}")
        };
        assert_eq!((unseen.syns, unseen.backend), (0, None), "no device showed it");
        // ndisc_error_report names no reason; its ICMPv6 does.
        let named = if ip == Ip::V4 { "NEIGH_FAILED" } else { "NOT_SPECIFIED" };
        let drop = node
            .watcher
            .wait_for("the drop", |seen| of(local, service)(seen) && reason(seen) == Some(named));
        let attempt = drop.attempt();
        assert_eq!(attempt.key, unseen.key, "both are of one attempt");
        assert_eq!((attempt.backend, attempt.dnat), (Some(backend), true));
        // It is dated by its socket, not by the drop, which is seconds late.
        assert!((started..end).contains(&attempt.first_syn), "{started:?} {end:?} {drop:?}");
        assert!(drop.at() > end, "{drop:?}");
        let fresh = node.watcher.fresh(backend).expect("it was a fresh decision");
        assert_eq!(fresh.last, attempt.last_syn);
        let icmp =
            node.watcher.wait_for("the ICMP", |seen| is_icmp(seen) && of(local, service)(seen));
        assert_eq!(icmp.attempt().key, unseen.key);
    }
}

#[test]
fn the_nodes_own_client_of_a_dead_neighbour_learns_ehostunreach() {
    let mut node = Node::new();
    node.add_bridge();
    let (service, backend) = (Ip::V4.service(), at(Ip::V4.bridge_pod(99), 8080));
    node.namespace.program(&Service::new(service, &[backend]));
    node.watcher.watch(&[Watch::Service(service)]);
    let (result, local) = node.namespace.try_once(Dial::new(service));
    assert_eq!(result, Err(Errno::EHOSTUNREACH));
    let drop = node.watcher.wait_for("the drop", |seen| {
        of(local, service)(seen) && reason(seen) == Some("NEIGH_FAILED")
    });
    assert_eq!(drop.attempt().backend, Some(backend));
}

#[test]
fn a_rejected_syn_of_the_nodes_own_client_is_told_by_its_drop_and_by_the_icmp_on_loopback() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let service = ip.service();
        node.namespace.program(&Service::new(service, &[]));
        node.watcher.watch(&[Watch::Service(service)]);
        let (result, local) = node.namespace.try_once(Dial::for_millis(service, 500));
        result.expect_err("it is rejected");
        let icmp =
            node.watcher.wait_for("the ICMP", |seen| is_icmp(seen) && of(local, service)(seen));
        let drop = node.watcher.wait_for("the drop", |seen| {
            of(local, service)(seen) && reason(seen) == Some("NETFILTER_DROP")
        });
        assert_eq!(icmp.attempt().key, drop.attempt().key);
        assert!(!drop.attempt().dnat && !drop.attempt().confirmed);
        let Sighting::Answered { answer: Answer::Icmp { code, v6 }, .. } = icmp else {
            unreachable!("it was looked for by that");
        };
        // Port unreachable: code 3 of ICMP, code 4 of ICMPv6.
        assert_eq!((code, v6), if ip == Ip::V4 { (3, false) } else { (4, true) });
    }
}

#[test]
fn a_rejected_syn_of_a_pod_is_told_by_its_drop_and_by_the_icmp_on_its_way_back() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let (client, service) = (node.pod(2), ip.service());
        node.namespace.program(&Service::new(service, &[]));
        node.watcher.watch(&[Watch::Service(service), Watch::Local(ip.pod(2))]);
        let (result, local) = client.try_once(Dial::for_millis(service, 500));
        result.expect_err("it is rejected");
        let icmp =
            node.watcher.wait_for("the ICMP", |seen| is_icmp(seen) && of(local, service)(seen));
        let drop = node.watcher.wait_for("the drop", |seen| {
            of(local, service)(seen) && reason(seen) == Some("NETFILTER_DROP")
        });
        assert_eq!(icmp.attempt().key, drop.attempt().key);
    }
}

#[test]
fn a_syn_dropped_before_confirmation_may_take_another_backend_and_is_not_stale() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let (client, server, _silent) = (node.pod(2), node.pod(3), node.silent_pod(4));
        let _listener = server.listen(at(ip.any(), 8080));
        let (service, live, dead) = (ip.service(), at(ip.pod(3), 8080), at(ip.pod(4), 8080));
        node.namespace.program(&Service::new(service, &[dead]));
        node.namespace
            .filter(ip, &format!("-A FORWARD -d {} -p tcp -m tcp --dport 8080 -j DROP", dead.ip()));
        node.watcher.watch(&[Watch::Service(service), Watch::Local(ip.pod(2))]);
        let dialling = {
            let client = client.clone();
            thread::spawn(move || client.try_once(Dial::new(service)))
        };
        let drop = node.watcher.wait_for("the drop", |seen| reason(seen).is_some());
        assert_eq!(drop.attempt().backend, Some(dead));
        assert!(!drop.attempt().confirmed);
        node.namespace.program(&Service::new(service, &[live]));
        let (result, local) = dialling.join().expect("the client's thread");
        assert_eq!(result, Ok(()), "the retransmit is a fresh decision");
        let answer = node.watcher.wait_for("the answer", |seen| {
            matches!(seen, Sighting::Answered { answer: Answer::SynAck, .. })
        });
        let attempt = answer.attempt();
        assert!(of(local, service)(&answer));
        assert_eq!(attempt.key, drop.attempt().key);
        assert_eq!((attempt.backend, attempt.syns), (Some(live), 2));
        assert!(!attempt.stale && attempt.confirmed, "{attempt:?}");
        let counted = |backend| {
            let fresh = node.watcher.fresh(backend);
            fresh.map_or(0, |fresh| fresh.by_second.iter().map(|(_, count)| count).sum())
        };
        assert_eq!((counted(dead), counted(live)), (1, 1), "each decision counts for its backend");
        assert_eq!(node.watcher.counts(service), (1, 1, 0));
    }
}

#[test]
fn an_answer_after_a_reported_drop_is_told() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let (client, server) = (node.pod(2), node.pod(3));
        let _listener = server.listen(at(ip.any(), 8080));
        let (service, backend) = (ip.service(), at(ip.pod(3), 8080));
        node.namespace.program(&Service::new(service, &[backend]));
        node.namespace.filter(ip, "-A FORWARD -p tcp -m tcp --dport 8080 -j DROP");
        let dialling = {
            let client = client.clone();
            thread::spawn(move || client.try_once(Dial::new(service)))
        };
        node.watcher.wait_for("the drop", |seen| reason(seen) == Some("NETFILTER_DROP"));
        node.namespace.filter(ip, "");
        assert_eq!(dialling.join().expect("the client's thread").0, Ok(()));
        node.watcher.wait_for("the answer", |seen| {
            matches!(seen, Sighting::Answered { answer: Answer::SynAck, .. })
        });
        assert_eq!(node.watcher.sweep(Duration::ZERO).unanswered, []);
    }
}

#[test]
fn a_syn_dropped_before_it_has_a_device_or_an_entry_belongs_to_its_sockets_namespace() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let (other, _outside) = bare_node();
        let service = ip.service();
        node.watcher.watch(&[Watch::Service(service)]);
        let restore = if ip == Ip::V4 { "iptables-restore" } else { "ip6tables-restore" };
        // Before conntrack, so the namespace is known by the socket alone.
        let rule = format!("*raw\n-A OUTPUT -d {} -p tcp -j DROP\nCOMMIT\n", service.ip());
        for namespace in [&other, &node.namespace] {
            namespace.tool(restore, &[], &rule);
        }
        other.try_once(Dial::for_millis(service, 100)).0.unwrap_err();
        assert_eq!(node.watcher.all(&node.namespace), [], "another node's is not seen");
        let (_, local) = node.namespace.try_once(Dial::for_millis(service, 100));
        let seen = node.watcher.all(&node.namespace);
        let [drop, end] = &seen[..] else { panic!("a drop and an end: {seen:#?}") };
        assert!(of(local, service)(drop) && reason(drop) == Some("NETFILTER_DROP"), "{drop:?}");
        assert!(matches!(end, Sighting::Abandoned { errno: 0, .. }), "{end:?}");
        assert_eq!(end.attempt().key, drop.attempt().key);
    }
}
