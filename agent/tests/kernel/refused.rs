//! A refusal is matched to what the client dialled, wherever the client and the backend are.

use std::{net::SocketAddr, time::Duration};

use nix::errno::Errno;
use rollrace::{engine::Watch, model::Sighting};

use crate::support::{Dial, Ip, Namespace, Node, Service, Syn, at, is_refusal, of};

/// Dials, is refused, and checks the one sighting of it.
pub(crate) fn assert_refused_once(
    node: &mut Node,
    client: &Namespace,
    dial: Dial,
    backend: SocketAddr,
) -> Sighting {
    let (result, local) = client.try_once(dial);
    assert_eq!(result, Err(Errno::ECONNREFUSED));
    let seen = node.watcher.all(&node.namespace);
    let [refusal] = &seen[..] else { panic!("more or less than one refusal: {seen:#?}") };
    assert!(is_refusal(refusal) && of(local, dial.to)(refusal), "{refusal:?} of {local}");
    let attempt = refusal.attempt();
    assert_eq!(attempt.backend, Some(backend));
    assert_eq!(attempt.syns, 1);
    assert!(attempt.dnat && !attempt.stale, "{attempt:?}");
    assert_eq!(node.watcher.counts(dial.to), (1, 0, 1));
    refusal.clone()
}

fn by_a_pod_on_its_own_link(ip: Ip) {
    let mut node = Node::new();
    let (client, _server) = (node.pod(2), node.pod(3));
    let (service, backend) = (ip.service(), at(ip.pod(3), 8080));
    node.namespace.program(&Service::new(service, &[backend]));
    node.watcher.watch(&[Watch::Service(service), Watch::Local(ip.pod(2))]);
    assert_refused_once(&mut node, &client, Dial::new(service), backend);
}

#[test]
fn a_refusal_by_a_pod_on_its_own_link_is_matched_to_the_service_dialled() {
    by_a_pod_on_its_own_link(Ip::V4);
}

#[test]
fn a_refusal_by_a_pod_on_its_own_link_is_matched_to_the_service_dialled_v6() {
    by_a_pod_on_its_own_link(Ip::V6);
}

#[test]
fn a_refusal_by_a_pod_on_the_bridge_is_matched_to_the_service_dialled() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        node.add_bridge();
        let (client, _server) = (node.pod(2), node.bridge_pod(3));
        let (service, backend) = (ip.service(), at(ip.bridge_pod(3), 8080));
        node.namespace.program(&Service::new(service, &[backend]));
        assert_refused_once(&mut node, &client, Dial::new(service), backend);
    }
}

#[test]
fn a_refusal_between_two_pods_of_one_bridge_is_matched_to_the_service_dialled() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        node.add_bridge();
        let (client, _server) = (node.bridge_pod(2), node.bridge_pod(3));
        let (service, backend) = (ip.service(), at(ip.bridge_pod(3), 8080));
        node.namespace.program(&Service::new(service, &[backend]));
        assert_refused_once(&mut node, &client, Dial::new(service), backend);
    }
}

#[test]
fn a_pod_refused_by_itself_through_its_own_service_is_matched_despite_the_snat() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let pod = node.pod(2);
        let (service, backend) = (ip.service(), at(ip.pod(2), 8080));
        node.namespace.program(&Service::new(service, &[backend]));
        node.watcher.watch(&[Watch::Service(service), Watch::Local(ip.pod(2))]);
        let refusal = assert_refused_once(&mut node, &pod, Dial::new(service), backend);
        assert_eq!(refusal.attempt().key.client.ip(), ip.pod(2), "the client's own address");
    }
}

#[test]
fn a_bridge_pod_refused_by_itself_through_its_own_service_is_matched_despite_the_snat() {
    let mut node = Node::new();
    node.add_bridge();
    let pod = node.bridge_pod(2);
    let (service, backend) = (Ip::V4.service(), at(Ip::V4.bridge_pod(2), 8080));
    node.namespace.program(&Service::new(service, &[backend]));
    assert_refused_once(&mut node, &pod, Dial::new(service), backend);
}

#[test]
fn an_outside_client_refused_through_a_node_port_is_matched_despite_the_masquerade() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let _server = node.pod(3);
        let backend = at(ip.pod(3), 8080);
        let service = Service { node_port: Some(30080), ..Service::new(ip.service(), &[backend]) };
        node.namespace.program(&service);
        let (client, dialled) = (node.outside.clone(), Dial::new(at(ip.node(), 30080)));
        let refusal = assert_refused_once(&mut node, &client, dialled, backend);
        assert_eq!(refusal.attempt().key.client.ip(), ip.outside());
    }
}

#[test]
fn a_client_in_the_nodes_own_namespace_learns_of_its_refusal_through_its_socket() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let _server = node.pod(3);
        let (service, backend) = (ip.service(), at(ip.pod(3), 8080));
        node.namespace.program(&Service::new(service, &[backend]));
        let client = node.namespace.clone();
        assert_refused_once(&mut node, &client, Dial::new(service), backend);
    }
}

#[test]
fn a_client_in_the_nodes_own_namespace_learns_of_its_answer_through_its_socket() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let server = node.pod(3);
        let _listener = server.listen(at(ip.any(), 8080));
        let (service, backend) = (ip.service(), at(ip.pod(3), 8080));
        node.namespace.program(&Service::new(service, &[backend]));
        let (result, _) = node.namespace.try_once(Dial::new(service));
        assert_eq!(result, Ok(()));
        assert_eq!(node.watcher.all(&node.namespace), []);
        assert_eq!(node.watcher.counts(service), (1, 1, 0));
        assert_eq!(node.watcher.sweep(Duration::ZERO).unanswered, []);
    }
}

#[test]
fn a_refusal_by_a_host_network_pod_of_the_node_is_told_once_though_its_syn_is_dropped_as_well() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let client = node.pod(2);
        let (service, backend) = (ip.service(), at(ip.node(), 8080));
        node.namespace.program(&Service::new(service, &[backend]));
        node.watcher.watch(&[Watch::Service(service), Watch::Local(ip.pod(2))]);
        assert_refused_once(&mut node, &client, Dial::new(service), backend);
    }
}

#[test]
fn a_refusal_of_a_client_elsewhere_by_a_host_network_pod_needs_no_socket_to_be_told() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let backend = at(ip.node(), 8080);
        let service = Service { node_port: Some(30080), ..Service::new(ip.service(), &[backend]) };
        node.namespace.program(&service);
        let (from, to) = (at(ip.outside(), 42_526), at(ip.node(), 30080));
        node.outside.send(&[Syn { from, to, isn: 100, payload: 0 }]);
        let refusal = node.watcher.wait_for("the refusal", of(from, to));
        assert!(is_refusal(&refusal), "{refusal:?}");
        let attempt = refusal.attempt();
        assert_eq!((attempt.key.isn, attempt.backend), (100, Some(backend)));
        assert_eq!(node.watcher.counts(to), (1, 0, 1));
    }
}

#[test]
fn a_rst_that_acknowledges_a_fast_open_payload_refuses_its_syn() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let _server = node.pod(3);
        let backend = at(ip.pod(3), 8080);
        let service = Service { node_port: Some(30080), ..Service::new(ip.service(), &[backend]) };
        node.namespace.program(&service);
        let (from, to) = (at(ip.outside(), 42_526), at(ip.node(), 30080));
        node.outside.send(&[Syn { from, to, isn: 100, payload: 32 }]);
        let refusal = node.watcher.wait_for("the refusal", of(from, to));
        assert!(is_refusal(&refusal), "{refusal:?}");
        assert_eq!((refusal.attempt().key.isn, refusal.attempt().backend), (100, Some(backend)));
    }
}

#[test]
fn a_refusal_through_nftables_rules_is_matched_to_the_service_dialled() {
    let mut node = Node::new();
    let (client, _server) = (node.pod(2), node.pod(3));
    let (service, backend) = (Ip::V4.service(), at(Ip::V4.pod(3), 8080));
    // The shape of kube-proxy's nftables mode: a map from address and port to a verdict.
    let rules = format!(
        "table ip kube-proxy {{\n\
         map service-ips {{ type ipv4_addr . inet_proto . inet_service : verdict; }}\n\
         chain endpoint {{ meta l4proto tcp dnat to {backend}; }}\n\
         chain services {{ ip daddr . meta l4proto . th dport vmap @service-ips; }}\n\
         chain nat-prerouting {{ type nat hook prerouting priority dstnat; jump services; }}\n\
         chain nat-output {{ type nat hook output priority -100; jump services; }}\n\
         }}\n\
         add element ip kube-proxy service-ips {{ {} . tcp . {} : goto endpoint }}\n",
        service.ip(),
        service.port()
    );
    node.namespace.tool("nft", &["-f", "-"], &rules);
    assert_refused_once(&mut node, &client, Dial::new(service), backend);
}

#[test]
fn a_refusal_over_loopback_is_told_once_though_its_syn_is_dropped_as_well() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let (service, backend) = (ip.service(), at(ip.node(), 8080));
        node.namespace.program(&Service::new(service, &[backend]));
        node.watcher.watch(&[Watch::Service(service)]);
        let client = node.namespace.clone();
        assert_refused_once(&mut node, &client, Dial::new(service), backend);
    }
}

#[test]
fn a_drop_after_the_answer_is_ignored() {
    let mut node = Node::new();
    let (service, backend) = (Ip::V4.service(), at(Ip::V4.node(), 8080));
    node.namespace.program(&Service::new(service, &[backend]));
    node.watcher.watch(&[Watch::Service(service)]);
    // The RST leaves first, then the SYN is dropped, for another reason than NO_SOCKET.
    node.namespace
        .filter(Ip::V4, "-A INPUT -p tcp -m tcp --dport 8080 -j REJECT --reject-with tcp-reset");
    let client = node.namespace.clone();
    assert_refused_once(&mut node, &client, Dial::new(service), backend);
}
