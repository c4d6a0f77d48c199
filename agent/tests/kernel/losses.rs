//! Maps and ring buffer made tiny: every loss is counted, and nothing else breaks.

use std::time::Duration;

use rollrace::{engine::Watch, model::Sighting, probe::Options};

use crate::support::{Dial, Ip, Node, Service, Syn, TIMED_OUT, at, is_refusal, now, of};

const TINY: Options = Options {
    attempts: 16,
    flows: 16,
    ring_bytes: 4096,
    tells_outside: false,
    other_entries: None,
};

/// Entries of each other map.
const FEW: u16 = 8;
/// The same for everything but the attempts and the ring buffer.
const SMALL: Options = Options {
    attempts: 1_024,
    flows: 1_024,
    ring_bytes: 1 << 20,
    tells_outside: false,
    other_entries: Some(FEW as u32),
};

#[test]
fn every_event_that_a_full_ring_buffer_loses_is_counted() {
    const REFUSALS: u64 = 120;
    let mut node = Node::with(TINY);
    let (client, _server) = (node.pod(2), node.pod(3));
    let (service, backend) = (Ip::V4.service(), at(Ip::V4.pod(3), 8080));
    node.namespace.program(&Service::new(service, &[backend]));
    // Nobody reads meanwhile.
    for _ in 0..REFUSALS {
        client.try_once(Dial::new(service)).0.unwrap_err();
    }
    let losses = node.watcher.losses();
    assert!(losses.ring_full > 0 && losses.submitted > 0, "{losses:?}");
    assert_eq!(losses.submitted + losses.ring_full, REFUSALS, "{losses:?}");
    assert_eq!(u64::try_from(node.watcher.drain()).unwrap(), losses.submitted);
    assert_eq!(node.watcher.counts(service), (REFUSALS, 0, REFUSALS), "the counters lose nothing");
    // And then it works as before.
    let (_, local) = client.try_once(Dial::new(service));
    let next = node.watcher.wait_for("the next", |seen| seen.attempt().key.client == local);
    assert!(is_refusal(&next));
}

#[test]
fn every_attempt_that_a_full_map_does_not_track_is_counted() {
    const SYNS: u16 = 100;
    let mut node = Node::with(TINY);
    let _silent = node.silent_pod(4);
    let (service, dead) = (Ip::V4.service(), at(Ip::V4.pod(4), 8080));
    node.namespace.program(&Service::new(service, &[dead]));
    let syn = |n| Syn { from: at(Ip::V4.outside(), 20_000 + n), to: service, isn: 7, payload: 0 };
    node.outside.send(&(0..SYNS).map(syn).collect::<Vec<_>>());
    let (losses, sweep) = (node.watcher.losses(), node.watcher.sweep(Duration::ZERO));
    assert_eq!(sweep.unanswered.len(), 16);
    assert_eq!(losses.attempts_full, u64::from(SYNS) - 16, "{losses:?}");
    assert_eq!(losses.ring_full, 0, "{losses:?}");
    let [counts] = &sweep.counts[..] else { panic!("one destination: {sweep:#?}") };
    assert_eq!(counts.attempts, u64::from(SYNS), "those not tracked are counted all the same");
    let fresh = node.watcher.fresh(dead).expect("they were fresh");
    assert_eq!(fresh.by_second.iter().map(|(_, count)| count).sum::<u32>(), u32::from(SYNS));
}

#[test]
fn every_destination_that_the_full_counters_leave_out_is_counted() {
    const DESTINATIONS: u16 = 30;
    let mut node = Node::with(SMALL);
    let pod = node.pod(3);
    let _listeners: Vec<_> =
        (0..DESTINATIONS).map(|n| pod.listen(at(Ip::V4.pod(3), 8_000 + n))).collect();
    // Only what is watched is tracked; the fence of the support has one entry of its own.
    let watched: Vec<Watch> =
        (0..DESTINATIONS).map(|n| Watch::Endpoint(at(Ip::V4.pod(3), 8_000 + n))).collect();
    node.watcher.watch_what_fits(&watched);
    let syn = |n| Syn {
        from: at(Ip::V4.outside(), 20_000),
        to: at(Ip::V4.pod(3), 8_000 + n),
        isn: 7,
        payload: 0,
    };
    node.outside.send(&(0..DESTINATIONS).map(syn).collect::<Vec<_>>());
    let unfit = node.watcher.unfit();
    assert_eq!(unfit, usize::from(DESTINATIONS + 1 - FEW), "what is not watched is told");
    // The watch set is as small as the counters: together they leave nothing untold.
    let counted: u64 = node.watcher.sweep(Duration::ZERO).counts.iter().map(|it| it.attempts).sum();
    let losses = node.watcher.losses();
    let tracked = u64::from(FEW - 1);
    assert_eq!(counted + losses.counters_full, tracked, "{losses:?}");
}

#[test]
fn destinations_beyond_the_counters_are_counted_as_lost() {
    const SERVICES: u16 = 30;
    let mut node = Node::with(SMALL);
    let pod = node.silent_pod(3);
    let dead = at(Ip::V4.pod(3), 8080);
    // Every port of the Service's address goes to the dead pod: a DNAT is tracked wherever it goes.
    let vip = Ip::V4.service().ip();
    node.namespace.tool(
        "iptables-restore",
        &[],
        &format!("*nat\n-A PREROUTING -d {vip} -p tcp -j DNAT --to-destination {dead}\nCOMMIT\n"),
    );
    let syn =
        |n| Syn { from: at(Ip::V4.outside(), 20_000), to: at(vip, 1_000 + n), isn: 7, payload: 0 };
    node.outside.send(&(0..SERVICES).map(syn).collect::<Vec<_>>());
    let sweep = node.watcher.sweep(Duration::ZERO);
    let counted: u64 = sweep.counts.iter().map(|it| it.attempts).sum();
    let losses = node.watcher.losses();
    assert_eq!(
        (counted, losses.counters_full),
        (FEW.into(), u64::from(SERVICES - FEW)),
        "{losses:?}"
    );
    assert_eq!(
        sweep.unanswered.len(),
        usize::from(SERVICES),
        "each attempt is tracked all the same"
    );
    drop(pod);
}

#[test]
fn what_does_not_fit_into_the_watch_set_is_told_and_fits_when_there_is_room() {
    let mut node = Node::with(SMALL);
    let server = node.pod(3);
    let endpoint = |n: u16| at(Ip::V4.pod(3), 8_000 + n);
    let _listener = server.listen(endpoint(FEW));
    let watched: Vec<Watch> = (0..=FEW).map(|n| Watch::Endpoint(endpoint(n))).collect();
    node.watcher.watch_what_fits(&watched);
    // One of the entries is the fence's.
    assert_eq!((node.watcher.watch_full(), node.watcher.unfit()), (2, 2));
    node.watcher.watch_what_fits(&[Watch::Forget(endpoint(0)), Watch::Forget(endpoint(1))]);
    assert_eq!(node.watcher.counts(endpoint(FEW)), (0, 0, 0));
    assert_eq!(node.watcher.unfit(), 0);
    assert_eq!(node.outside.try_once(Dial::new(endpoint(FEW))).0, Ok(()));
    assert_eq!(node.watcher.counts(endpoint(FEW)), (1, 1, 0), "it is watched now");
    // The same for the node's pods.
    let pods: Vec<Watch> = (0..20).map(|n| Watch::Local(Ip::V6.remote_pod(n))).collect();
    node.watcher.watch_what_fits(&pods);
    assert_eq!(node.watcher.unfit(), 20 - usize::from(FEW));
    let gone: Vec<Watch> = (0..20).map(|n| Watch::NotLocal(Ip::V6.remote_pod(n))).collect();
    node.watcher.watch_what_fits(&gone);
    assert_eq!(node.watcher.unfit(), 0);
}

#[test]
fn backends_whose_fresh_syns_are_evicted_are_counted_and_then_no_silence_proves_anything() {
    const BACKENDS: u16 = 40;
    let mut node = Node::with(SMALL);
    let _silent = node.silent_pod(3);
    let backend = |n| at(Ip::V4.pod(3), 8_000 + n);
    for n in 0..BACKENDS {
        node.namespace.program(&Service::new(Ip::V4.service(), &[backend(n)]));
        let from = at(Ip::V4.outside(), 20_000 + n);
        node.outside.send(&[Syn { from, to: Ip::V4.service(), isn: 7, payload: 0 }]);
    }
    node.watcher.sweep(Duration::ZERO);
    let kept = (0..BACKENDS).filter_map(|n| node.watcher.fresh(backend(n))).collect::<Vec<_>>();
    let losses = node.watcher.losses();
    assert!(!kept.is_empty() && kept.len() <= usize::from(FEW), "{}", kept.len());
    assert_eq!(losses.fresh_evicted, u64::from(BACKENDS) - kept.len() as u64, "{losses:?}");
    assert!(kept.iter().all(|fresh| fresh.answers_forgotten));
}

#[test]
fn refusals_beyond_the_memory_of_answered_attempts_are_told_once_each() {
    const REFUSALS: usize = 60;
    let mut node = Node::with(SMALL);
    let (client, _server) = (node.pod(2), node.pod(3));
    let (service, backend) = (Ip::V4.service(), at(Ip::V4.pod(3), 8080));
    node.namespace.program(&Service::new(service, &[backend]));
    for _ in 0..REFUSALS {
        client.try_once(Dial::new(service)).0.unwrap_err();
    }
    let seen = node.watcher.all(&node.namespace);
    assert_eq!(seen.len(), REFUSALS, "a refused SYN is dropped as well: that is no news");
    assert!(seen.iter().all(is_refusal));
}

#[test]
fn sockets_beyond_the_memory_of_starts_are_told_all_the_same() {
    const SOCKETS: usize = 30;
    let mut node = Node::with(SMALL);
    let (client, _silent) = (node.pod(2), node.silent_pod(3));
    let service = Ip::V4.service();
    node.namespace.program(&Service::new(service, &[at(Ip::V4.pod(3), 8080)]));
    let locals = std::thread::scope(|scope| {
        let dial = || client.try_once(Dial::for_millis(service, 800));
        let dials: Vec<_> = (0..SOCKETS).map(|_| scope.spawn(dial)).collect();
        let ended = dials.into_iter().map(|dial| dial.join().expect("a client"));
        ended.collect::<Vec<_>>()
    });
    for (result, local) in locals {
        assert_eq!(result, Err(TIMED_OUT));
        let seen = node.watcher.wait_for("its end", of(local, service));
        let Sighting::Abandoned { started, attempt, .. } = &seen else { panic!("{seen:?}") };
        assert!(attempt.first_syn < now() && attempt.syns == 1, "{seen:?}");
        assert!(started.is_none_or(|started| started <= attempt.first_syn), "{seen:?}");
    }
}

#[test]
fn when_an_address_passes_on_its_first_answer_is_the_next_pods() {
    let mut node = Node::new();
    let (client, server) = (node.pod(2), node.pod(3));
    let (service, backend) = (Ip::V4.service(), at(Ip::V4.pod(3), 8080));
    node.watcher.watch(&[Watch::Endpoint(backend)]);
    node.namespace.program(&Service::new(service, &[backend]));
    let _listener = server.listen(backend);
    assert_eq!(client.try_once(Dial::new(service)).0, Ok(()));
    let first = node.watcher.fresh(backend).expect("it was dialled");
    assert!(first.first_answer.is_some());
    let anew = now();
    node.watcher.watch(&[Watch::Anew(backend, anew)]);
    let unanswered = node.watcher.fresh(backend).expect("its SYNs still count");
    assert_eq!((unanswered.first_answer, unanswered.last), (None, first.last));
    for _ in 0..2 {
        assert_eq!(client.try_once(Dial::new(service)).0, Ok(()));
    }
    let again = node.watcher.fresh(backend).expect("it was dialled again");
    let answer = again.first_answer.expect("it answered");
    assert!(anew < answer && answer < again.last.plus(1_000_000_000), "{again:?}");
    assert_eq!(again.by_second.iter().map(|(_, count)| count).sum::<u32>(), 3);
}
