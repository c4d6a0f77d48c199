//! ICMP unreachables of others.

use rollrace::model::{Answer, Sighting};

use crate::support::{Dial, Ip, Node, Service, at, of};

#[test]
fn host_unreachable_from_a_router_beyond_the_node_is_matched_by_the_header_it_carries() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let client = node.pod(2);
        let backend = at(ip.remote_pod(7), 8080);
        node.outside.ip(&format!("route add unreachable {}", backend.ip()));
        let service = ip.service();
        node.namespace.program(&Service::new(service, &[backend]));
        let (result, local) = client.try_once(Dial::for_millis(service, 500));
        result.expect_err("nobody is there");
        let seen = node.watcher.wait_for("the ICMP", |seen| {
            matches!(seen, Sighting::Answered { answer: Answer::Icmp { .. }, .. })
        });
        assert!(of(local, service)(&seen), "{seen:?}");
        let attempt = seen.attempt();
        assert_eq!((attempt.backend, attempt.syns), (Some(backend), 1));
        let Sighting::Answered { answer: Answer::Icmp { code, v6 }, .. } = seen else {
            unreachable!("it was looked for by that");
        };
        // Host unreachable of ICMP; no route to destination of ICMPv6.
        assert_eq!((code, v6), if ip == Ip::V4 { (1, false) } else { (0, true) });
    }
}
