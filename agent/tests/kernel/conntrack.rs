//! The conntrack table over netlink: what a scan finds, and the deletion of single entries.

use std::net::{SocketAddr, UdpSocket};

use rollrace::{
    conntrack::{Conntrack, TableCounts},
    engine::Watch,
    model::{ConntrackEntry, DST_NAT, Mono, SEEN_REPLY, SYN_SENT, Sighting, Transport},
};

use crate::support::{Dial, Ip, Namespace, Node, Service, Syn, add_pod, at, bare_node, now};

fn unanswered(node: &Namespace) -> Vec<ConntrackEntry> {
    node.run(|| {
        let mut table = Conntrack::open().expect("open netlink");
        let mut found = Vec::new();
        table.unanswered(now(), |entry| found.push(entry)).expect("scan the table (as root)");
        found.sort_by_key(|entry| entry.key);
        found
    })
}

fn syn(ip: Ip, port: u16, to: SocketAddr) -> Syn {
    Syn { from: at(ip.outside(), port), to, isn: 100, payload: 0 }
}

#[test]
fn a_scan_finds_unanswered_syns_of_both_families_where_they_were_sent() {
    let (node, outside) = bare_node();
    for ip in [Ip::V4, Ip::V6] {
        let dead = at(ip.pod(4), 8080);
        node.program(&Service::new(ip.service(), &[dead]));
        let before = now();
        outside.send(&[syn(ip, 42_526, ip.service())]);
        let found = unanswered(&node);
        let [entry] = found.iter().filter(|entry| entry.backend == dead).collect::<Vec<_>>()[..]
        else {
            panic!("one entry: {found:#?}")
        };
        assert_eq!(entry.key.protocol, Transport::Tcp);
        assert_eq!(entry.key.client, at(ip.outside(), 42_526));
        assert_eq!((entry.key.original, entry.key.zone), (ip.service(), 0));
        assert_eq!(entry.state, Some(SYN_SENT));
        assert_eq!(entry.status & (DST_NAT | SEEN_REPLY), DST_NAT);
        let lives = entry.expires.since(before);
        assert!((118_000_000_000..=121_000_000_000).contains(&lives), "{lives}");
    }
}

#[test]
fn a_scan_finds_udp_and_leaves_out_what_was_answered_or_not_redirected() {
    let (node, outside) = bare_node();
    let server = add_pod(&node, 3);
    let (service, live) = (Ip::V4.service(), at(Ip::V4.pod(3), 8080));
    let listener = server.listen(at(Ip::V4.any(), 8080));
    node.program(&Service::new(service, &[live]));
    let connection = outside.dial(Dial::new(service));
    assert_eq!(connection.result, Ok(()));
    // Without any rule, towards nobody.
    outside.send(&[syn(Ip::V4, 42_000, at(Ip::V4.pod(9), 8080))]);
    let dead = at(Ip::V4.pod(4), 53);
    let to = dead.to_string();
    let rule = ["-t", "nat", "-I", "PREROUTING", "-p", "udp", "-j", "DNAT", "--to-destination"];
    node.tool("iptables", &[&rule[..], &[&to]].concat(), "");
    let dialled = at(service.ip(), 53);
    outside.run(|| {
        let socket = UdpSocket::bind(at(Ip::V4.any(), 0)).expect("bind a UDP socket");
        socket.send_to(b"a question", dialled).expect("send a datagram");
    });
    let found = unanswered(&node);
    let [entry] = &found[..] else { panic!("only the datagram's: {found:#?}") };
    assert_eq!((entry.key.protocol, entry.key.original), (Transport::Udp, dialled));
    assert_eq!((entry.backend, entry.state), (dead, None));
    drop((connection, listener));
}

#[test]
fn an_entry_is_deleted_by_its_id_and_no_other() {
    for ip in [Ip::V4, Ip::V6] {
        let (node, outside) = bare_node();
        node.program(&Service::new(ip.service(), &[at(ip.pod(4), 8080)]));
        outside.send(&[syn(ip, 42_526, ip.service()), syn(ip, 42_527, ip.service())]);
        let [first, second] = unanswered(&node)[..] else { panic!("two entries") };
        node.run(|| {
            let mut table = Conntrack::open().expect("open netlink");
            let shown = table.get(&first.key, Mono(0)).expect("show an entry");
            assert_eq!(
                shown.map(|entry| (entry.id, entry.backend)),
                Some((first.id, first.backend))
            );
            let wrong = table.delete(&first.key, first.id ^ 1).expect("ask for a deletion");
            assert!(!wrong, "there is none of that id");
            assert!(table.delete(&first.key, first.id).expect("delete an entry"));
            assert_eq!(table.get(&first.key, Mono(0)).expect("show an entry"), None);
            assert!(!table.delete(&first.key, first.id).expect("ask again"), "it is gone");
        });
        let left = unanswered(&node);
        assert_eq!(left.iter().map(|entry| entry.key).collect::<Vec<_>>(), [second.key]);
    }
}

#[test]
fn the_tables_own_counts_are_of_the_readers_namespace() {
    let (node, outside) = bare_node();
    node.program(&Service::new(Ip::V4.service(), &[at(Ip::V4.pod(4), 8080)]));
    outside.send(&[syn(Ip::V4, 42_526, Ip::V4.service())]);
    let counts = node.run(TableCounts::read);
    assert_eq!(counts.entries, Some(1));
    assert!(counts.limit.is_some_and(|limit| limit > 0));
    assert_eq!((counts.dropped, counts.insert_failed), (Some(0), Some(0)));
}

#[test]
fn a_syn_that_finds_no_source_port_is_no_drop_for_want_of_room() {
    let (node, _outside) = bare_node();
    let link = "link add crowd type veth peer name crowd-end\n\
                link set crowd arp off up\n\
                link set crowd-end up\n\
                route add 203.0.113.0/24 dev crowd\n";
    node.tool("ip", &["-batch", "-"], link);
    let one_port = "add table ip crowd\n\
                    add chain ip crowd out { type nat hook postrouting priority srcnat - 5 ; }\n\
                    add rule ip crowd out ip daddr 203.0.113.9 tcp dport 9 \
                    snat to 192.0.2.1:40000\n";
    node.tool("nft", &["-f", "-"], one_port);
    let counts = node.run(|| {
        for _ in 0..3 {
            let nobody = "203.0.113.9:9".parse().expect("an address");
            let shortly = std::time::Duration::from_millis(20);
            std::net::TcpStream::connect_timeout(&nobody, shortly).expect_err("nobody answers");
        }
        TableCounts::read()
    });
    assert!(counts.insert_failed.is_some_and(|failed| failed >= 2), "{counts:?}");
    assert_eq!(counts.dropped, Some(0), "{counts:?}");
}

#[test]
fn a_syn_on_an_entry_older_than_the_probes_is_stale() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let _silent = node.silent_pod(4);
        let (service, dead) = (ip.service(), at(ip.pod(4), 8080));
        node.namespace.program(&Service::new(service, &[dead]));
        let client = at(ip.outside(), 42_526);
        // As a scan at the start found it; the probes did not see its SYN.
        let expires = now().plus(100_000_000_000);
        node.watcher.watch(&[Watch::Pinned { client, original: service, backend: dead, expires }]);
        node.outside.send(&[syn(ip, 42_526, service), syn(ip, 42_527, service)]);
        let sweep = node.watcher.sweep(std::time::Duration::ZERO);
        let stale = sweep.unanswered.iter().map(|seen| {
            assert!(matches!(seen, Sighting::Unanswered { .. }), "{seen:?}");
            (seen.attempt().key.client.port(), seen.attempt().stale)
        });
        let mut stale: Vec<_> = stale.collect();
        stale.sort_unstable();
        assert_eq!(stale, [(42_526, true), (42_527, false)]);
    }
}
