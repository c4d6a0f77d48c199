//! Pods' namespaces that vanish under the probes, with connections in every state.

use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rollrace::{engine::Watch, model::Sighting};

use crate::support::{Dial, Ip, Namespace, Node, Service, Syn, at, is_refusal, of, patience};

/// Waits until the kernel has taken a pod's link away: it cleans a namespace up by a work of its own.
fn await_gone(node: &Node, number: u8) {
    let deadline = Instant::now() + patience();
    let link = format!(" veth{number}@");
    while node.namespace.tool("ip", &["-oneline", "link"], "").contains(&link) {
        assert!(Instant::now() < deadline, "veth{number} is still there");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A process in a pod that connects and waits; it is all that holds the pod's namespace.
fn connecting(pod: &Namespace, to: SocketAddr) -> Child {
    let script = format!("exec 3<>/dev/tcp/{}/{}; sleep 60", to.ip(), to.port());
    let mut command = Command::new("bash");
    command.args(["-c", &script]).stdin(Stdio::null()).stderr(Stdio::null());
    pod.run(|| command.spawn().expect("run bash"))
}

fn end(mut child: Child) {
    child.kill().expect("kill a client");
    child.wait().expect("wait for a client");
}

/// Waits until the probes have counted so many attempts.
fn await_attempts(node: &mut Node, service: SocketAddr, attempts: u64) {
    let deadline = Instant::now() + patience();
    while node.watcher.counts(service).0 < attempts {
        assert!(Instant::now() < deadline, "{:?}", node.watcher.counts(service));
        thread::sleep(Duration::from_millis(5));
    }
}

/// Nothing that the probes read was torn.
fn assert_no_loss(node: &Node) {
    let losses = node.watcher.losses();
    assert_eq!((losses.read_failed, losses.ring_full, losses.attempts_full), (0, 0, 0));
}

#[test]
fn a_backend_that_vanishes_leaves_its_clients_attempts_to_be_decided_and_its_address_to_the_next() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let (client, server) = (node.pod(2), node.pod(3));
        let (service, backend) = (ip.service(), at(ip.pod(3), 8080));
        // Nobody answers there, and nobody refuses.
        let silent = at(ip.pod(3), 9999);
        server.filter(ip, "-A INPUT -p tcp --dport 9999 -j DROP");
        node.watcher.watch(&[Watch::Local(ip.pod(2)), Watch::Endpoint(silent)]);
        node.namespace.program(&Service::new(service, &[backend]));
        let listener = server.listen(backend);
        let open = client.dial(Dial::new(service));
        assert_eq!(open.result, Ok(()));
        let waiting = thread::scope(|scope| {
            let waiting = scope.spawn(|| client.try_once(Dial::for_millis(silent, 2_500)));
            await_attempts(&mut node, silent, 1);
            // Its last process has ended; what its sockets say does not get out.
            server.ip("link set eth0 down");
            drop((listener, server));
            await_gone(&node, 3);
            waiting.join().expect("the waiting client")
        });
        let (result, local) = waiting;
        result.expect_err("nobody answered");
        let abandoned = node.watcher.wait_for("the end of the one that waits", |seen| {
            of(local, silent)(seen) && matches!(seen, Sighting::Abandoned { .. })
        });
        assert!(abandoned.attempt().syns >= 1, "{abandoned:?}");
        assert_eq!(abandoned.attempt().backend, Some(silent));
        // The address passes to another pod.
        let next = node.pod(3);
        let _listener = next.listen(backend);
        assert_eq!(client.try_once(Dial::new(service)).0, Ok(()));
        drop(open);
        assert_eq!(node.watcher.counts(service), (2, 2, 0));
        let others = node.watcher.all(&node.namespace);
        let foreign: Vec<_> = others.iter().filter(|seen| !of(local, silent)(seen)).collect();
        assert!(foreign.is_empty(), "{foreign:#?}");
        assert_no_loss(&node);
    }
}

#[test]
fn clients_that_vanish_while_they_connect_are_seen_to_give_up_each_once() {
    const CLIENTS: usize = 12;
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let (pod, _silent, server) = (node.pod(2), node.silent_pod(3), node.pod(4));
        let (service, dead, live) = (ip.service(), at(ip.pod(3), 8080), at(ip.pod(4), 8080));
        node.watcher.watch(&[Watch::Local(ip.pod(2)), Watch::Endpoint(live)]);
        node.namespace.program(&Service::new(service, &[dead]));
        let _listener = server.listen(live);
        let attempts = u64::try_from(CLIENTS).expect("a few");
        let connected = connecting(&pod, live);
        let waiting: Vec<Child> = (0..CLIENTS).map(|_| connecting(&pod, service)).collect();
        await_attempts(&mut node, service, attempts);
        await_attempts(&mut node, live, 1);
        // The kernel's out-of-memory killer, say: all at once, and the namespace with the last.
        drop(pod);
        waiting.into_iter().for_each(end);
        end(connected);
        await_gone(&node, 2);
        let seen = node.watcher.all(&node.namespace);
        let mut given_up = Vec::new();
        for sighting in &seen {
            let key = sighting.attempt().key;
            assert_eq!((key.client.ip(), key.original), (ip.pod(2), service), "{sighting:?}");
            if matches!(sighting, Sighting::Abandoned { .. }) {
                given_up.push(key.client);
            }
        }
        given_up.sort_unstable();
        given_up.dedup();
        assert_eq!((given_up.len(), seen.len()), (CLIENTS, CLIENTS), "{seen:#?}");
        assert_eq!(node.watcher.counts(service), (attempts, 0, 0));
        // A pod that gets the address: a port that is used again is another attempt.
        let next = node.pod(2);
        let again = Dial::for_millis(service, 300).port(given_up[0].port());
        next.try_once(again).0.expect_err("nobody answers");
        assert_eq!(node.watcher.counts(service), (attempts + 1, 0, 0));
        assert_no_loss(&node);
    }
}

#[test]
fn while_namespaces_come_and_go_what_others_do_is_counted_exactly() {
    const ROUNDS: u8 = 8;
    let ip = Ip::V4;
    let mut node = Node::new();
    let (client, server) = (node.pod(2), node.pod(3));
    let (service, backend) = (ip.service(), at(ip.pod(3), 8080));
    node.namespace.program(&Service::new(service, &[backend]));
    let listener = server.listen(backend);
    let dialled = thread::scope(|scope| {
        let comings = scope.spawn(|| {
            for _ in 0..ROUNDS {
                let pod = node.pod(9);
                // One that is refused, one that connects, one that hangs, and then they are gone.
                pod.try_once(Dial::new(at(ip.pod(3), 9))).0.expect_err("nobody listens");
                let open = pod.dial(Dial::new(service));
                assert_eq!(open.result, Ok(()));
                drop((pod, open));
                await_gone(&node, 9);
            }
        });
        let mut dialled = 0_u64;
        while !comings.is_finished() {
            assert_eq!(client.try_once(Dial::new(service)).0, Ok(()));
            // Room for the next in the listener's queue.
            listener.accept().expect("take a connection");
            dialled += 1;
        }
        comings.join().expect("the pods that come and go");
        dialled
    });
    let expected = dialled + u64::from(ROUNDS);
    assert_eq!(node.watcher.counts(service), (expected, expected, 0));
    assert_eq!(node.watcher.all(&node.namespace), []);
    assert_no_loss(&node);
}

#[test]
fn a_syn_for_a_namespace_that_has_vanished_is_told_and_the_next_pods_refusal_is_its_own() {
    let ip = Ip::V4;
    let mut node = Node::new();
    let (service, backend) = (ip.service(), at(ip.pod(3), 8080));
    let server = node.pod(3);
    node.namespace.program(&Service::new(service, &[backend]));
    drop(server);
    await_gone(&node, 3);
    // No way there: told by the kernel, not by silence.
    node.namespace.ip(&format!("route add unreachable {}/32", ip.pod(3)));
    let syn = Syn { from: at(ip.outside(), 20_000), to: service, isn: 7, payload: 0 };
    node.outside.send(&[syn]);
    let gone = node.watcher.wait_for("the first", of(syn.from, service));
    assert!(!is_refusal(&gone), "{gone:?}");
    node.namespace.ip(&format!("route delete unreachable {}/32", ip.pod(3)));
    let _next = node.pod(3);
    let next = Syn { from: at(ip.outside(), 20_001), isn: 8, ..syn };
    node.outside.send(&[next]);
    let refused = node.watcher.wait_for("the second", of(next.from, service));
    assert!(is_refusal(&refused), "{refused:?}");
    assert_eq!(refused.attempt().backend, Some(backend));
    assert_no_loss(&node);
}
