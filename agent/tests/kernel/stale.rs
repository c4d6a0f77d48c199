//! A new ISN on a tuple whose earlier SYN was never answered.

use std::time::Duration;

use rollrace::{engine::Watch, model::Sighting};

use crate::support::{Dial, Ip, Node, Service, Syn, TIMED_OUT, at, of};

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
        node.outside.send(&[Syn { from, to: service, isn: 100 }, Syn { from, to: service, isn: 900 }]);
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
