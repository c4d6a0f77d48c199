//! A refusal is matched to what the client dialled, wherever the client and the backend are.

use nix::errno::Errno;
use rollrace::{engine::Watch, model::Sighting};

use crate::support::{Dial, Ip, Namespace, Node, Service, at, is_refusal, of};

/// Dials, is refused, and checks the one sighting of it.
fn assert_refused_once(
    node: &mut Node,
    client: &Namespace,
    dial: Dial,
    backend: std::net::SocketAddr,
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
    let (service, backend) = (ip.service(80), at(ip.pod(3), 8080));
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
