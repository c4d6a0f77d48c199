//! Ends of answered connections: what is a cut, what a reset, and what is nothing.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use nix::{
    libc,
    sys::socket::{setsockopt, sockopt},
};
use rollrace::{
    engine::Watch,
    model::{Attempt, End, Sighting},
    probe::Options,
};

use crate::support::{Dial, Ip, Namespace, Node, Service, add_pod, at, bare_node, now, patience};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a.test\r\nUser-Agent: kernel-tests\r\n\r\n";
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n0123456789012345678901234567890123456789";

/// A node with a client pod, a server pod that listens, and a Service before it.
struct World {
    node: Node,
    client: Namespace,
    listener: TcpListener,
    service: SocketAddr,
    backend: SocketAddr,
    _server: Namespace,
}

/// Both ends of a connection.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    local: SocketAddr,
}

impl World {
    fn new(ip: Ip) -> Self {
        Self::with(ip, Options::default())
    }

    fn with(ip: Ip, options: Options) -> Self {
        let node = Node::with(options);
        let (client, server) = (node.pod(2), node.pod(3));
        let listener = server.listen(at(ip.any(), 8080));
        let (service, backend) = (ip.service(), at(ip.pod(3), 8080));
        node.namespace.program(&Service::new(service, &[backend]));
        Self { node, client, listener, service, backend, _server: server }
    }

    fn connect(&self) -> Connection {
        self.connect_from(&self.client)
    }

    fn connect_from(&self, client: &Namespace) -> Connection {
        connect(client, Dial::new(self.service), &self.listener)
    }

    /// How the connections of this port have ended.
    fn ends(&mut self, local: SocketAddr) -> Vec<(End, Attempt)> {
        let seen = self.node.watcher.all(&self.node.namespace);
        let ended = |seen: Sighting| match seen {
            Sighting::Ended { attempt, end, .. } if attempt.key.client == local => {
                Some((end, attempt))
            }
            _ => None,
        };
        seen.into_iter().filter_map(ended).collect()
    }

    fn assert_end(&mut self, local: SocketAddr, expected: Option<End>) {
        let ends: Vec<End> = self.ends(local).into_iter().map(|(end, _)| end).collect();
        assert_eq!(ends, Vec::from_iter(expected));
    }
}

fn connect(client: &Namespace, dial: Dial, listener: &TcpListener) -> Connection {
    let dialled = client.dial(dial);
    assert_eq!(dialled.result, Ok(()));
    let (server, _) = listener.accept().expect("accept a connection");
    let client = TcpStream::from(dialled.connection);
    for end in [&client, &server] {
        end.set_nodelay(true).expect("set TCP_NODELAY");
        end.set_read_timeout(Some(patience())).expect("set a timeout");
    }
    Connection { client, server, local: dialled.local }
}

impl Connection {
    /// The client says this, and the server reads it.
    fn ask(&mut self, bytes: &[u8]) {
        self.client.write_all(bytes).expect("send");
        let mut read = vec![0; bytes.len()];
        self.server.read_exact(&mut read).expect("the server reads it");
    }

    /// The server says this, and the client reads it.
    fn answer(&mut self, bytes: &[u8]) {
        self.server.write_all(bytes).expect("answer");
        let mut read = vec![0; bytes.len()];
        self.client.read_exact(&mut read).expect("the client reads it");
    }

    /// The server closes; the client sees the end of the stream or an error, and closes as well.
    fn server_closes(self) {
        let Self { mut client, server, .. } = self;
        drop(server);
        let mut rest = Vec::new();
        drop(client.read_to_end(&mut rest));
    }

    /// The server's next close is a RST.
    fn server_will_reset(&self) {
        abortive(&self.server);
    }
}

fn abortive(stream: &TcpStream) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(stream, sockopt::Linger, &at_once).expect("set SO_LINGER");
}

#[test]
fn a_close_without_a_byte_of_an_answer_is_a_cut() {
    for ip in [Ip::V4, Ip::V6] {
        let mut world = World::new(ip);
        let before = now();
        let mut connection = world.connect();
        let (local, answered) = (connection.local, now());
        for _ in 0..3 {
            connection.ask(REQUEST);
            connection.answer(ANSWER);
        }
        connection.ask(REQUEST);
        connection.server_closes();
        let ends = world.ends(local);
        let [(End::Cut, attempt)] = ends[..] else { panic!("one cut: {ends:#?}") };
        assert_eq!(attempt.key.original, world.service);
        assert_eq!(attempt.backend, Some(world.backend));
        assert!(attempt.dnat && attempt.syns == 1, "{attempt:?}");
        assert!((before..=answered).contains(&attempt.first_syn), "dated by its answer");
    }
}

#[test]
fn the_isn_of_a_cut_connection_is_its_syns() {
    let mut world = World::new(Ip::V4);
    let mut wire = world.client.capture();
    let mut connection = world.connect();
    let local = connection.local;
    connection.ask(REQUEST);
    connection.server_closes();
    let ends = world.ends(local);
    assert_eq!(wire.isns(local.port()), [ends[0].1.key.isn]);
}

#[test]
fn a_reset_without_a_byte_of_an_answer_is_a_cut_and_with_one_a_reset() {
    for ip in [Ip::V4, Ip::V6] {
        let mut world = World::new(ip);
        for (answers, end) in [(false, End::Cut), (true, End::Reset)] {
            let mut connection = world.connect();
            let local = connection.local;
            connection.ask(REQUEST);
            if answers {
                connection.answer(&ANSWER[..30]);
            }
            connection.server_will_reset();
            connection.server_closes();
            world.assert_end(local, Some(end));
        }
    }
}

#[test]
fn a_close_in_order_after_the_answer_is_nothing() {
    for ip in [Ip::V4, Ip::V6] {
        let mut world = World::new(ip);
        let mut connection = world.connect();
        let local = connection.local;
        connection.ask(REQUEST);
        connection.answer(ANSWER);
        connection.server_closes();
        world.assert_end(local, None);
        // Nor is that of a connection that has carried nothing.
        let connection = world.connect();
        let local = connection.local;
        connection.server_closes();
        world.assert_end(local, None);
    }
}

#[test]
fn the_last_bytes_of_an_answer_may_come_with_the_fin() {
    let mut world = World::new(Ip::V4);
    let mut connection = world.connect();
    let local = connection.local;
    connection.ask(REQUEST);
    // Held back until the close.
    setsockopt(&connection.server, sockopt::TcpNoDelay, &false).expect("clear TCP_NODELAY");
    // SAFETY: an integer option of an open socket.
    let corked = unsafe {
        let on: libc::c_int = 1;
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&connection.server),
            libc::IPPROTO_TCP,
            libc::TCP_CORK,
            (&raw const on).cast(),
            4,
        )
    };
    assert_eq!(corked, 0);
    connection.server.write_all(ANSWER).expect("answer");
    connection.server_closes();
    world.assert_end(local, None);
}

#[test]
fn what_the_client_ends_first_is_nothing() {
    let mut world = World::new(Ip::V4);
    // By FIN, while it waits for an answer: a half-close.
    let mut connection = world.connect();
    let local = connection.local;
    connection.ask(REQUEST);
    connection.client.shutdown(Shutdown::Write).expect("close one direction");
    assert_eq!(connection.server.read(&mut [0]).expect("its end"), 0);
    connection.server_closes();
    world.assert_end(local, None);
    // By RST.
    let mut connection = world.connect();
    let local = connection.local;
    connection.ask(REQUEST);
    abortive(&connection.client);
    drop(connection.client);
    connection.server.read(&mut [0]).expect_err("it was reset");
    drop(connection.server);
    world.assert_end(local, None);
}

#[test]
fn a_request_on_a_connection_that_was_closed_in_order_is_cut_by_its_rst() {
    for ip in [Ip::V4, Ip::V6] {
        let mut world = World::new(ip);
        let host = world.node.namespace.clone();
        for from_host in [false, true] {
            let mut connection =
                if from_host { world.connect_from(&host) } else { world.connect() };
            let local = connection.local;
            connection.ask(REQUEST);
            connection.answer(ANSWER);
            let Connection { mut client, server, .. } = connection;
            drop(server);
            let mut end = [0];
            assert_eq!(client.peek(&mut end).expect("the end of the stream"), 0);
            world.assert_end(local, None);
            client.write_all(REQUEST).expect("send");
            drop(client);
            let cut = |seen: &Sighting| matches!(seen, Sighting::Ended { attempt, end: End::Cut, .. } if attempt.key.client == local);
            world.node.watcher.wait_for("the cut", cut);
            world.assert_end(local, Some(End::Cut));
        }
    }
}

#[test]
fn what_is_sent_on_after_a_servers_half_close_is_no_cut() {
    for ip in [Ip::V4, Ip::V6] {
        let mut world = World::new(ip);
        let host = world.node.namespace.clone();
        for from_host in [false, true] {
            let mut connection =
                if from_host { world.connect_from(&host) } else { world.connect() };
            let local = connection.local;
            connection.ask(REQUEST);
            connection.answer(ANSWER);
            connection.server.shutdown(Shutdown::Write).expect("close one direction");
            assert_eq!(connection.client.read(&mut [0]).expect("its end"), 0);
            // Taken in to the client's own end.
            connection.ask(REQUEST);
            connection.ask(REQUEST);
            drop(connection.client);
            assert_eq!(connection.server.read(&mut [0]).expect("its end"), 0);
            drop(connection.server);
            world.assert_end(local, None);
        }
    }
}

#[test]
fn what_nobody_has_accepted_is_reset_when_its_listener_closes() {
    for speaks in [false, true] {
        let mut world = World::new(Ip::V4);
        let dialled = world.client.dial(Dial::new(world.service));
        assert_eq!(dialled.result, Ok(()));
        let local = dialled.local;
        let mut client = TcpStream::from(dialled.connection);
        if speaks {
            client.write_all(REQUEST).expect("send");
        }
        let other = world.node.namespace.listen(at(Ip::V4.loopback(), 0));
        drop(std::mem::replace(&mut world.listener, other));
        client.read(&mut [0]).expect_err("it was reset");
        // Not a byte came, and a request had been made; or none had been.
        world.assert_end(local, Some(if speaks { End::Cut } else { End::Reset }));
    }
}

#[test]
fn a_stream_that_nobody_answers_is_closed() {
    let mut world = World::new(Ip::V4);
    let mut connection = world.connect();
    let local = connection.local;
    for _ in 0..5 {
        connection.ask(
            b"<14>1 2026-11-30T05:00:00Z host app - - - a line for the log, and nobody answers\n",
        );
    }
    connection.server_closes();
    world.assert_end(local, Some(End::Closed));
}

#[test]
fn connections_older_than_the_agent_are_cut_as_well() {
    for ip in [Ip::V4, Ip::V6] {
        let mut world = World::new(ip);
        let mut connection = world.connect();
        let local = connection.local;
        connection.ask(REQUEST);
        connection.answer(ANSWER);
        world.node.restart_watcher();
        let attached = now();
        connection.ask(REQUEST);
        connection.server_closes();
        let ends = world.ends(local);
        let [(End::Cut, attempt)] = ends[..] else { panic!("one cut: {ends:#?}") };
        assert_eq!(attempt.backend, Some(world.backend));
        assert!(attempt.first_syn >= attached, "{attempt:?}");
    }
}

#[test]
fn a_host_network_clients_connection_is_cut_and_reset_by_its_sockets_word() {
    for ip in [Ip::V4, Ip::V6] {
        let mut world = World::new(ip);
        let host = world.node.namespace.clone();
        for (answers, resets, end) in [
            (false, false, Some(End::Cut)),
            (false, true, Some(End::Cut)),
            (true, false, None),
            (true, true, Some(End::Reset)),
        ] {
            let mut connection = world.connect_from(&host);
            let local = connection.local;
            connection.ask(REQUEST);
            connection.answer(ANSWER);
            connection.ask(REQUEST);
            if answers {
                connection.answer(&ANSWER[..30]);
            }
            if resets {
                connection.server_will_reset();
            }
            connection.server_closes();
            let ends = world.ends(local);
            let told: Vec<End> = ends.iter().map(|(end, _)| *end).collect();
            assert_eq!(told, Vec::from_iter(end), "answers {answers}, resets {resets}");
            assert!(ends.iter().all(|(_, it)| it.backend == Some(world.backend) && it.dnat));
        }
    }
}

#[test]
fn a_connection_without_dnat_is_cut_for_clients_of_this_node_only() {
    for ip in [Ip::V4, Ip::V6] {
        for conntrack in [false, true] {
            let mut node = Node::new();
            let (client, server) = (node.pod(2), node.pod(3));
            let listener = server.listen(at(ip.any(), 8080));
            let backend = at(ip.pod(3), 8080);
            if conntrack {
                node.namespace.program(&Service::new(ip.service(), &[]));
            }
            node.watcher.watch(&[Watch::Endpoint(backend), Watch::Local(ip.pod(2))]);
            let mut locals = Vec::new();
            for from in [&client, &node.outside.clone()] {
                let mut connection = connect(from, Dial::new(backend), &listener);
                locals.push(connection.local);
                connection.ask(REQUEST);
                connection.answer(ANSWER);
                connection.ask(REQUEST);
                connection.server_closes();
            }
            let seen = node.watcher.all(&node.namespace);
            let cut: Vec<SocketAddr> = seen
                .iter()
                .filter(|seen| matches!(seen, Sighting::Ended { end: End::Cut, .. }))
                .map(|seen| seen.attempt().key.client)
                .collect();
            assert_eq!(cut, [locals[0]], "with conntrack: {conntrack}");
        }
    }
}

#[test]
fn a_port_used_again_after_a_good_connection_is_another_connection() {
    let mut world = World::new(Ip::V4);
    for round in 0..3 {
        let mut connection =
            connect(&world.client, Dial::new(world.service).port(40_123), &world.listener);
        let local = connection.local;
        connection.ask(REQUEST);
        if round < 2 {
            connection.answer(ANSWER);
        }
        // So that the port is free at once.
        abortive(&connection.client);
        if round < 2 {
            drop(connection.client);
            connection.server.read(&mut [0]).expect_err("it was reset");
            world.assert_end(local, None);
        } else {
            connection.server_closes();
            world.assert_end(local, Some(End::Cut));
        }
    }
}

#[test]
fn evicted_connections_are_counted() {
    const CONNECTIONS: usize = 200;
    let mut world = World::with(Ip::V4, Options { flows: 64, ..Options::default() });
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = world.connect();
        connection.ask(REQUEST);
        connection.answer(ANSWER);
        open.push(connection);
    }
    world.node.watcher.sweep(Duration::from_secs(3600));
    let evicted = world.node.watcher.losses().flows_evicted;
    let fits = u64::try_from(CONNECTIONS).unwrap() - 64;
    assert!((fits..200).contains(&evicted), "{evicted}");
    // Those that end are no losses.
    for connection in open {
        connection.server_closes();
    }
    world.node.watcher.sweep(Duration::from_secs(3600));
    assert_eq!(world.node.watcher.losses().flows_evicted, evicted);
    // And one that says something is there again.
    let mut connection = world.connect();
    let local = connection.local;
    connection.ask(REQUEST);
    connection.server_closes();
    world.assert_end(local, Some(End::Cut));
}

#[test]
fn a_client_from_outside_that_passes_through_a_node_port_is_cut_there() {
    for ip in [Ip::V4, Ip::V6] {
        let mut world = World::new(ip);
        let service =
            Service { node_port: Some(30_080), ..Service::new(world.service, &[world.backend]) };
        world.node.namespace.program(&service);
        let outside = world.node.outside.clone();
        let port = at(ip.node(), 30_080);
        let mut connection = connect(&outside, Dial::new(port), &world.listener);
        let local = connection.local;
        connection.ask(REQUEST);
        connection.server_closes();
        let ends = world.ends(local);
        let [(End::Cut, attempt)] = ends[..] else { panic!("one cut: {ends:#?}") };
        assert_eq!((attempt.key.original, attempt.backend), (port, Some(world.backend)));
    }
}

#[test]
fn a_bridge_that_shows_each_packet_twice_tells_one_end() {
    let mut node = Node::new();
    node.add_bridge();
    let (client, server) = (node.pod(2), node.bridge_pod(3));
    let listener = server.listen(at(Ip::V4.any(), 8080));
    let (service, backend) = (Ip::V4.service(), at(Ip::V4.bridge_pod(3), 8080));
    node.namespace.program(&Service::new(service, &[backend]));
    let mut locals = Vec::new();
    for resets in [false, true] {
        let mut connection = connect(&client, Dial::new(service), &listener);
        locals.push(connection.local);
        connection.ask(REQUEST);
        if resets {
            connection.server_will_reset();
        }
        connection.server_closes();
    }
    let seen = node.watcher.all(&node.namespace);
    let told: Vec<SocketAddr> = seen.iter().map(|seen| seen.attempt().key.client).collect();
    assert_eq!(told, locals, "{seen:#?}");
}

#[test]
fn a_connection_of_another_node_is_not_followed_here() {
    let mut node = Node::new();
    let other = bare_node().0;
    let (client, server) = (add_pod(&other, 2), add_pod(&other, 3));
    let listener = server.listen(at(Ip::V4.any(), 8080));
    let backend = at(Ip::V4.pod(3), 8080);
    let service = Ip::V4.service();
    other.program(&Service::new(service, &[backend]));
    let mut connection = connect(&client, Dial::new(service), &listener);
    connection.ask(REQUEST);
    connection.server_closes();
    assert_eq!(node.watcher.all(&node.namespace), []);
}

/// A TLS record of this type and so many bytes, its header included.
fn record(kind: u8, length: u16) -> Vec<u8> {
    let [high, low] = (length - 5).to_be_bytes();
    let mut bytes = vec![kind, 3, 3, high, low];
    bytes.resize(length.into(), 0xaa);
    bytes
}

const HANDSHAKE: u8 = 0x16;
const ALERT: u8 = 0x15;
const DATA: u8 = 0x17;

#[test]
fn under_tls_a_servers_close_notify_hides_no_unanswered_request_and_a_clients_is_none() {
    // Under TLS 1.2 an alert is seen to be one, under 1.3 by its length only.
    for alert in [record(ALERT, 31), record(DATA, 24)] {
        for (answers, end) in [(false, Some(End::Cut)), (true, None)] {
            let mut world = World::new(Ip::V4);
            let mut connection = world.connect();
            let local = connection.local;
            connection.ask(&record(HANDSHAKE, 250));
            connection.answer(&record(HANDSHAKE, 1_200));
            connection.ask(&record(DATA, 180));
            connection.answer(&record(DATA, 600));
            connection.ask(&record(DATA, 180));
            if answers {
                connection.answer(&record(DATA, 600));
            }
            connection.answer(&alert);
            // The client answers in kind before it sees the FIN.
            connection.ask(&alert);
            connection.server_closes();
            world.assert_end(local, end);
        }
    }
}

#[test]
fn what_may_go_without_an_answer_is_no_failure() {
    let http2 = |kind: u8, payload: u8| {
        let mut frame = vec![0, 0, payload, kind, 0, 0, 0, 0, 0];
        frame.resize(9 + usize::from(payload), 0);
        frame
    };
    for (what, last, end) in [
        ("a short record of TLS", record(DATA, 39), Some(End::Closed)),
        ("HTTP/2's PING", http2(6, 8), Some(End::Closed)),
        ("HTTP/2's WINDOW_UPDATE", http2(8, 4), Some(End::Closed)),
        ("MySQL's quit", vec![1, 0, 0, 0, 1], None),
        ("a WebSocket's close", vec![0x88, 0x82, 1, 2, 3, 4, 5, 6], None),
        ("a short request", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), Some(End::Cut)),
    ] {
        let mut world = World::new(Ip::V4);
        let mut connection = world.connect();
        let local = connection.local;
        connection.ask(REQUEST);
        connection.answer(ANSWER);
        connection.ask(&last);
        connection.server_closes();
        let ends: Vec<End> = world.ends(local).into_iter().map(|(end, _)| end).collect();
        assert_eq!(ends, Vec::from_iter(end), "{what}");
    }
}
