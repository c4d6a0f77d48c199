//! What the client's own socket tells: when it began, with which ISN, and how it ended.

use std::{env, net::IpAddr, path::Path, time::Duration};

use nix::errno::Errno;
use rollrace::{
    engine::Watch,
    model::{Mono, Sighting},
};

use crate::support::{Dial, Ip, Node, Service, TIMED_OUT, at, is_refusal, now, of};

/// The start and the error of an abandoned attempt.
fn abandoned(seen: &Sighting) -> (Option<Mono>, i32) {
    let Sighting::Abandoned { started, errno, .. } = seen else { panic!("abandoned: {seen:?}") };
    (*started, *errno)
}

#[test]
fn a_pods_socket_given_up_tells_its_start_its_isn_and_no_error() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let (client, _silent) = (node.pod(2), node.silent_pod(3));
        let (service, backend) = (ip.service(), at(ip.pod(3), 8080));
        node.namespace.program(&Service::new(service, &[backend]));
        let (mut wire, before) = (client.capture(), now());
        let (result, local) = client.try_once(Dial::for_millis(service, 300));
        assert_eq!(result, Err(TIMED_OUT));
        let seen = node.watcher.wait_for("the end", of(local, service));
        let (started, errno) = abandoned(&seen);
        let (started, attempt) = (started.expect("its start was seen"), seen.attempt());
        assert_eq!(errno, 0);
        // It joined the SYN's attempt, so the ISN of SYN_SENT → CLOSE is the SYN's.
        assert_eq!((attempt.syns, attempt.backend), (1, Some(backend)));
        assert_eq!(wire.isns(local.port()), [attempt.key.isn]);
        assert!(before <= started && started <= attempt.first_syn, "{before:?} {seen:?}");
    }
}

#[test]
fn an_ipv6_socket_that_dials_ipv4_is_the_client_that_the_wire_shows() {
    let mut node = Node::new();
    let (client, _silent) = (node.pod(2), node.silent_pod(3));
    let (service, backend) = (Ip::V4.service(), at(Ip::V4.pod(3), 8080));
    node.namespace.program(&Service::new(service, &[backend]));
    let IpAddr::V4(address) = service.ip() else { panic!("{service} is of IPv4") };
    let mapped = at(address.to_ipv6_mapped().into(), service.port());
    let (result, local) = client.try_once(Dial::for_millis(mapped, 300));
    assert_eq!(result, Err(TIMED_OUT));
    let local = at(local.ip().to_canonical(), local.port());
    let seen = node.watcher.wait_for("the end", of(local, service));
    assert!(abandoned(&seen).0.is_some(), "its start was seen: {seen:?}");
    assert_eq!((seen.attempt().syns, seen.attempt().backend), (1, Some(backend)));
}

#[test]
fn a_pods_socket_that_retransmits_in_vain_tells_etimedout() {
    let mut node = Node::new();
    let (client, _silent) = (node.pod(2), node.silent_pod(3));
    client.sysctl("net/ipv4/tcp_syn_retries", "1");
    let (service, backend) = (Ip::V4.service(), at(Ip::V4.pod(3), 8080));
    node.namespace.program(&Service::new(service, &[backend]));
    let mut wire = client.capture();
    let (result, local) = client.try_once(Dial::new(service));
    assert_eq!(result, Err(Errno::ETIMEDOUT));
    let seen = node.watcher.wait_for("the end", of(local, service));
    assert_eq!(abandoned(&seen).1, Errno::ETIMEDOUT as i32);
    let (sent, attempt) = (wire.isns(local.port()), seen.attempt());
    assert!(sent.len() > 1, "it was retransmitted: {sent:?}");
    assert_eq!(sent, vec![attempt.key.isn; attempt.syns as usize], "every SYN was seen once");
}

#[test]
fn an_established_socket_ends_the_attempt_of_its_own_isn() {
    for ip in [Ip::V4, Ip::V6] {
        // In the node's namespace nothing but the socket tells of the answer.
        let mut node = Node::new();
        let server = node.pod(3);
        let _listener = server.listen(at(ip.any(), 8080));
        let (service, backend) = (ip.service(), at(ip.pod(3), 8080));
        node.namespace.program(&Service::new(service, &[backend]));
        let connection = node.namespace.dial(Dial::new(service));
        assert_eq!(connection.result, Ok(()));
        assert_eq!(node.watcher.counts(service), (1, 1, 0));
        assert_eq!(node.watcher.sweep(Duration::ZERO).tracked, 0);
    }
}

#[test]
fn a_socket_whose_syn_never_reached_the_node_counts_only_if_its_pod_is_local() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let (local_pod, other_pod) = (node.pod(2), node.pod(3));
        let service = ip.service();
        node.watcher.watch(&[Watch::Service(service), Watch::Local(ip.pod(2))]);
        let mut last = None;
        for pod in [&other_pod, &local_pod] {
            pod.filter(ip, "-A OUTPUT -p tcp -m tcp --dport 80 -j DROP");
            last = Some(pod.try_once(Dial::for_millis(service, 200)).1);
        }
        let seen = node.watcher.all(&node.namespace);
        let [only] = &seen[..] else { panic!("more or less than one: {seen:#?}") };
        assert!(of(last.expect("two were tried"), service)(only), "{only:?}");
        assert_eq!((only.attempt().syns, only.attempt().backend), (0, None));
        assert!(abandoned(only).0.is_some());
    }
}

#[test]
fn an_mptcp_socket_is_counted_once() {
    if !Path::new("/proc/sys/net/mptcp/enabled").exists() {
        assert!(env::var_os("CI").is_none(), "CI needs a kernel with CONFIG_MPTCP");
        eprintln!("skipped: this kernel has no MPTCP (CONFIG_MPTCP)");
        return;
    }
    let mut node = Node::new();
    let (client, server, _closed) = (node.pod(2), node.pod(3), node.pod(4));
    let _listener = server.listen(at(Ip::V4.any(), 8080));
    let service = Ip::V4.service();
    node.watcher.watch(&[Watch::Service(service), Watch::Local(Ip::V4.pod(2))]);
    let dial = Dial { mptcp: true, ..Dial::new(service) };
    node.namespace.program(&Service::new(service, &[at(Ip::V4.pod(3), 8080)]));
    assert_eq!(client.try_once(dial).0, Ok(()));
    assert_eq!(node.watcher.counts(service), (1, 1, 0));
    node.namespace.program(&Service::new(service, &[at(Ip::V4.pod(4), 8080)]));
    assert_eq!(client.try_once(dial).0, Err(Errno::ECONNREFUSED));
    let seen = node.watcher.all(&node.namespace);
    assert!(matches!(&seen[..], [refusal] if is_refusal(refusal)), "{seen:#?}");
    assert_eq!(node.watcher.counts(service), (2, 1, 1));
}
