//! Devices upon devices: one packet passes two of them, and is one packet.
//!
//! Not every kernel has them: `cargo xtask vm` runs these on those that do.

use nix::errno::Errno;
use rollrace::{engine::Watch, model::Sighting};

use crate::{
    refused::assert_refused_once,
    support::{Dial, Ip, Node, Service, TIMED_OUT, at, of},
};

/// The way from the node to the pods of another one.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Through a VLAN on the uplink.
    Vlan,
    /// Through a bond of a further link.
    Bond,
    /// Through a tunnel over the uplink, IP in IP.
    Tunnel,
}

/// A node that reaches the pods of another one on this way. The neighbour outside stands for all of
/// them.
fn node_with(way: Way, ip: Ip, pods: &[u8]) -> Node {
    let node = Node::new();
    let (own, other) = (ip.node(), ip.outside());
    let (near, far) = match way {
        Way::Vlan => ("link add link up0 name way0 type vlan id 7".to_owned(), {
            "link add link eth0 name way0 type vlan id 7".to_owned()
        }),
        Way::Bond => {
            let path = node.outside.path();
            let near = format!(
                "link add way0 type bond mode active-backup miimon 100\n\
                 link add port0 type veth peer name way0 netns {path}\n\
                 link set port0 master way0"
            );
            (near, "link show dev way0".to_owned())
        }
        Way::Tunnel => {
            let kind = if ip == Ip::V4 { "ipip" } else { "ip6tnl mode ip6ip6" };
            let of = |local, remote| {
                format!("link add way0 type {kind} local {local} remote {remote} ttl 64")
            };
            (of(own, other), of(other, own))
        }
    };
    node.namespace.ip(&near);
    node.outside.ip(&far);
    // The bond's port is up with it.
    node.namespace.ip("link set way0 up");
    node.outside.ip("link set way0 up");
    let (gateway, host) = (ip.remote_pod(1), if ip == Ip::V4 { 32 } else { 128 });
    let nodad = if ip == Ip::V4 { "" } else { " nodad" };
    // On the device itself: IPv6 tells no neighbour of addresses on another one.
    node.outside.ip(&format!("address add {gateway}/{host} dev way0{nodad}"));
    for pod in pods {
        let pod = ip.remote_pod(*pod);
        node.outside.ip(&format!("address add {pod}/{host} dev lo{nodad}"));
        let hop = match way {
            Way::Tunnel => String::new(),
            Way::Vlan | Way::Bond => format!("via {gateway} "),
        };
        node.namespace.ip(&format!(
            "route replace {gateway}/{host} dev way0\nroute add {pod}/{host} {hop}dev way0"
        ));
    }
    let pods_of_node = ip.pod(0);
    let prefix = if ip == Ip::V4 { 24 } else { 64 };
    let (back, hop) = match way {
        Way::Tunnel => (String::new(), String::new()),
        Way::Vlan | Way::Bond => {
            let gateway = ip.remote_pod(254);
            node.namespace.ip(&format!("address add {gateway}/{host} dev way0{nodad}"));
            (format!("route add {gateway}/{host} dev way0\n"), format!("via {gateway} "))
        }
    };
    node.outside.ip(&format!("{back}route add {pods_of_node}/{prefix} {hop}dev way0"));
    if !matches!(way, Way::Tunnel) {
        node.namespace.await_link("way0");
        node.outside.await_link("way0");
    }
    if ip == Ip::V6 {
        for pod in pods {
            node.outside.await_v6(ip.remote_pod(*pod));
        }
    }
    node
}

fn refused_and_silent(way: Way) {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = node_with(way, ip, &[7, 8]);
        let client = node.pod(2);
        let service = ip.service();
        node.watcher.watch(&[Watch::Service(service), Watch::Local(ip.pod(2))]);

        // One that refuses.
        let backend = at(ip.remote_pod(7), 8080);
        node.namespace.program(&Service::new(service, &[backend]));
        assert_refused_once(&mut node, &client, Dial::new(service), backend);

        // One that is silent: the SYN has passed two devices, and is one.
        let silent = at(ip.remote_pod(8), 8080);
        node.outside.filter(ip, &format!("-A INPUT -d {} -p tcp -j DROP", silent.ip()));
        node.namespace.program(&Service::new(service, &[silent]));
        let (result, local) = client.try_once(Dial::for_millis(service, 300));
        assert_eq!(result, Err(TIMED_OUT));
        let end = node.watcher.wait_for("the end of the silent one", of(local, service));
        assert!(matches!(end, Sighting::Abandoned { .. }), "{end:?}");
        let attempt = end.attempt();
        assert_eq!((attempt.backend, attempt.stale), (Some(silent), false), "{attempt:?}");
        let fresh = node.watcher.fresh(silent).expect("it was a fresh decision");
        assert_eq!(fresh.by_second.iter().map(|(_, count)| count).sum::<u32>(), attempt.syns);

        // Its port again: the rules are right by now, and the entry pins.
        let listener = node.outside.listen(at(ip.remote_pod(7), 8081));
        let live = at(ip.remote_pod(7), 8081);
        node.namespace.program(&Service::new(service, &[live]));
        let again = Dial::for_millis(service, 300).port(local.port());
        assert_eq!(client.try_once(again).0, Err(TIMED_OUT));
        let stale = node.watcher.wait_for("the stale one", |seen| {
            of(local, service)(seen) && seen.attempt().key.isn != attempt.key.isn
        });
        assert_eq!((stale.attempt().backend, stale.attempt().stale), (Some(silent), true));

        // And another connects.
        let before = node.watcher.counts(service).1;
        assert_eq!(client.try_once(Dial::new(service)).0, Ok::<(), Errno>(()));
        assert_eq!(node.watcher.counts(service).1, before + 1);
        drop(listener);
    }
}

#[test]
#[ignore = "needs VLAN devices: cargo xtask vm"]
fn behind_a_vlan_each_syn_is_one_and_each_failure_is_told_once() {
    refused_and_silent(Way::Vlan);
}

#[test]
#[ignore = "needs bonds: cargo xtask vm"]
fn behind_a_bond_each_syn_is_one_and_each_failure_is_told_once() {
    refused_and_silent(Way::Bond);
}

#[test]
#[ignore = "needs tunnels: cargo xtask vm"]
fn behind_a_tunnel_each_syn_is_one_and_each_failure_is_told_once() {
    refused_and_silent(Way::Tunnel);
}
