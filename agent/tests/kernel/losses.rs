//! Maps and ring buffer made tiny: every loss is counted, and nothing else breaks.

use std::time::Duration;

use rollrace::probe::Options;

use crate::support::{Dial, Ip, Node, Service, Syn, at, is_refusal};

const TINY: Options = Options { attempts: 16, ring_bytes: 4096 };

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
