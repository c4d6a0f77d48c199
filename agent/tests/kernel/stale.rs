//! A new ISN on a tuple whose earlier SYN was never answered.

use std::{thread, time::Duration};

use rollrace::{engine::Watch, model::Sighting, probe::Options};

use crate::support::{Dial, Ip, Node, Service, Syn, TIMED_OUT, at, now, of};

#[test]
fn a_port_used_again_on_an_unanswered_tuple_is_stale_and_follows_the_old_nat() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let (client, server, _silent) = (node.pod(2), node.pod(3), node.silent_pod(4));
        let _listener = server.listen(at(ip.any(), 8080));
        let (service, live, dead) = (ip.service(), at(ip.pod(3), 8080), at(ip.pod(4), 8080));
        node.namespace.program(&Service::new(service, &[dead]));
        node.watcher.watch(&[Watch::Service(service), Watch::Local(ip.pod(2))]);
        let dial = Dial::for_millis(service, 200).port(42_526);
        assert_eq!(client.try_once(dial).0, Err(TIMED_OUT));
        // The rules are right now, yet the entry pins.
        node.namespace.program(&Service::new(service, &[live]));
        assert_eq!(client.try_once(dial).0, Err(TIMED_OUT));
        assert_eq!(client.try_once(Dial::new(service)).0, Ok(()), "another port connects");
        let seen = node.watcher.all(&node.namespace);
        let [first, second] = &seen[..] else { panic!("two ends: {seen:#?}") };
        for (end, stale) in [(first, false), (second, true)] {
            assert!(matches!(end, Sighting::Abandoned { .. }), "{end:?}");
            assert_eq!((end.attempt().stale, end.attempt().backend), (stale, Some(dead)));
        }
        assert_ne!(first.attempt().key.isn, second.attempt().key.isn);
        let fresh = node.watcher.fresh(dead).expect("the first SYN was fresh");
        assert_eq!(fresh.by_second.iter().map(|(_, count)| count).sum::<u32>(), 1);
        assert_eq!(fresh.last, first.attempt().first_syn, "the stale one is not fresh");
    }
}

#[test]
fn a_new_isn_of_a_client_elsewhere_supersedes_the_unanswered_one() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let _silent = node.silent_pod(4);
        let (service, dead) = (ip.service(), at(ip.pod(4), 8080));
        node.namespace.program(&Service::new(service, &[dead]));
        let from = at(ip.outside(), 42_526);
        // No socket of this kernel sent them, so nothing but the SYNs tells.
        let syn = |isn| Syn { from, to: service, isn, payload: 0 };
        node.outside.send(&[syn(100), syn(900)]);
        let seen = node.watcher.wait_for("the first attempt's end", of(from, service));
        assert!(matches!(seen, Sighting::Superseded { .. }), "{seen:?}");
        assert_eq!((seen.attempt().key.isn, seen.attempt().stale), (100, false));
        let sweep = node.watcher.sweep(Duration::ZERO);
        let [Sighting::Unanswered { attempt, .. }] = &sweep.unanswered[..] else {
            panic!("the second is unanswered: {sweep:#?}")
        };
        assert_eq!((attempt.key.isn, attempt.stale, attempt.backend), (900, true, Some(dead)));
        assert_eq!(node.watcher.counts(service), (2, 0, 0));
    }
}

#[test]
fn a_port_used_again_after_its_entry_expired_is_a_fresh_decision() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let ip = Ip::V4;
    let mut node = Node::prepared(Options::default(), |namespace| {
        namespace.sysctl("net/netfilter/nf_conntrack_tcp_timeout_syn_sent", "1");
    });
    let (_silent, _other) = (node.silent_pod(4), node.silent_pod(5));
    let (service, old, new) = (ip.service(), at(ip.pod(4), 8080), at(ip.pod(5), 8080));
    let from = at(ip.outside(), 42_526);
    let syn = |isn| Syn { from, to: service, isn, payload: 0 };
    node.namespace.program(&Service::new(service, &[old]));
    node.outside.send(&[syn(100)]);
    let sent = now();
    node.namespace.program(&Service::new(service, &[new]));
    // Conntrack's clock counts in jiffies, of 10 ms at the longest.
    while now().since(sent) < 1_020_000_000 {
        thread::sleep(TIMEOUT / 50);
    }
    node.outside.send(&[syn(900)]);
    let sweep = node.watcher.sweep(Duration::ZERO);
    let [Sighting::Unanswered { attempt, .. }] = &sweep.unanswered[..] else {
        panic!("the second is unanswered: {sweep:#?}")
    };
    assert_eq!((attempt.key.isn, attempt.stale, attempt.backend), (900, false, Some(new)));
}

#[test]
fn an_unanswered_attempt_is_told_once_and_forgotten_with_its_entry() {
    let mut node = Node::prepared(Options::default(), |namespace| {
        namespace.sysctl("net/netfilter/nf_conntrack_tcp_timeout_syn_sent", "1");
    });
    let _silent = node.silent_pod(4);
    let service = Ip::V4.service();
    node.namespace.program(&Service::new(service, &[at(Ip::V4.pod(4), 8080)]));
    let from = at(Ip::V4.outside(), 42_526);
    node.outside.send(&[Syn { from, to: service, isn: 100, payload: 0 }]);
    assert_eq!(node.watcher.sweep(Duration::from_secs(60)).unanswered, [], "it is not due");
    let due = node.watcher.sweep(Duration::ZERO);
    assert_eq!((due.unanswered.len(), due.tracked), (1, 1));
    let again = node.watcher.sweep(Duration::ZERO);
    assert_eq!((again.unanswered, again.tracked), (vec![], 1), "kept, since its entry pins");
    let sent = due.unanswered[0].attempt().last_syn;
    while now().since(sent) <= 1_000_000_000 {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(node.watcher.sweep(Duration::ZERO).unanswered.len(), 1, "told when forgotten");
    let gone = node.watcher.sweep(Duration::ZERO);
    assert_eq!((gone.unanswered, gone.tracked), (vec![], 0));
}

#[test]
fn a_syn_on_the_entry_of_an_answered_connection_is_stale() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let (client, server, _silent) = (node.pod(2), node.pod(3), node.pod(4));
        let listener = server.listen(at(ip.any(), 8080));
        let (service, old, new) = (ip.service(), at(ip.pod(3), 8080), at(ip.pod(4), 8080));
        node.namespace.program(&Service::new(service, &[old]));
        node.watcher.watch(&[Watch::Service(service), Watch::Local(ip.pod(2))]);
        let connection = client.dial(Dial::new(service).port(42_526));
        assert_eq!(connection.result, Ok(()));
        // The backend dies without a word, and so does the client's end of the connection: the node
        // sees no FIN and no RST, and keeps an ESTABLISHED entry.
        server.filter(ip, "-P INPUT DROP\n-P OUTPUT DROP");
        client.filter(ip, "-A OUTPUT -p tcp -m tcp ! --tcp-flags SYN,ACK SYN -j DROP");
        connection.abort();
        drop(listener);
        node.namespace.program(&Service::new(service, &[new]));
        let (result, local) = client.try_once(Dial::for_millis(service, 200).port(42_526));
        assert_eq!(result, Err(TIMED_OUT));
        let end = node.watcher.wait_for("the second attempt's end", of(local, service));
        assert_eq!((end.attempt().stale, end.attempt().backend), (true, Some(old)), "{end:?}");
        let fresh = node.watcher.fresh(old).expect("the first SYN was fresh");
        assert_eq!(fresh.by_second.iter().map(|(_, count)| count).sum::<u32>(), 1);
    }
}

#[test]
fn an_answer_on_an_old_entry_is_told_and_one_on_a_new_entry_is_not() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let (client, other) = (node.pod(2), node.pod(3));
        let service = ip.service();
        // Nobody listens there yet, and nothing says so.
        other.filter(ip, "-P INPUT DROP");
        let (old, port) = (at(ip.pod(3), 8080), 42_526);
        node.namespace.program(&Service::new(service, &[old]));
        node.watcher.watch(&[Watch::Service(service), Watch::Local(ip.pod(2))]);
        assert_eq!(client.try_once(Dial::for_millis(service, 200).port(port)).0, Err(TIMED_OUT));
        // Another has the address now, and answers.
        let _listener = other.listen(at(ip.any(), 8080));
        other.filter(ip, "-P INPUT ACCEPT");
        let (answered, local) = client.try_once(Dial::new(service).port(port));
        assert_eq!(answered, Ok(()));
        assert_eq!(client.try_once(Dial::new(service)).0, Ok(()), "a new entry");
        let seen = node.watcher.all(&node.namespace);
        let answers: Vec<_> =
            seen.iter().filter(|seen| matches!(seen, Sighting::Answered { .. })).collect();
        let [answer] = answers[..] else { panic!("one answer: {seen:#?}") };
        assert!(of(local, service)(answer) && answer.attempt().stale, "{answer:?}");
        assert_eq!(answer.attempt().backend, Some(old));
    }
}
