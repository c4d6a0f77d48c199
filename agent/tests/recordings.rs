//! The recordings are what their README says they are.

mod support;

use rollrace::engine::ClusterChange;
use support::recording::{ALL, Wire, changes, client_failures, meta, wire};

#[test]
fn every_recording_is_read_without_a_complaint() {
    for name in ALL {
        let changes = changes(name);
        let meta = meta(name);
        assert!(meta.rollout_start < meta.rollout_done);
        assert!(changes.is_sorted_by(|a, b| a.0 <= b.0), "{name} is not in order");
        let gone = changes.iter().filter(|c| matches!(c.1, ClusterChange::PodGone(_))).count();
        assert_eq!(gone, 3, "{name}: the three old pods");
        let deleted = changes.iter().filter_map(|c| match &c.1 {
            ClusterChange::PodGone(facts) => facts.deleted_at(),
            _ => None,
        });
        assert_eq!(deleted.count(), 3, "{name}: each with its deletion");
    }
}

#[test]
fn the_wire_and_the_client_agree() {
    for (name, refused, unanswered, stale) in [
        ("readiness-fresh-wire", 23, 35, 15),
        ("readiness-keepalive-wire", 3, 0, 0),
        ("prestop-drain-keepalive-wire", 0, 0, 0),
    ] {
        let wire = wire(name);
        let sum = |count: fn(&Wire) -> u64| wire.iter().map(count).sum::<u64>();
        let by_backend = sum(|w| match w {
            Wire::Backend { refused, .. } => *refused,
            _ => 0,
        });
        assert_eq!(by_backend, refused, "{name}");
        assert_eq!(sum(|w| u64::from(matches!(w, Wire::Rst(_)))), refused, "{name}");
        let by_backend = sum(|w| match w {
            Wire::Backend { unanswered, .. } => *unanswered,
            _ => 0,
        });
        assert_eq!(by_backend, unanswered, "{name}");
        let stale_keys: std::collections::BTreeSet<_> = wire
            .iter()
            .filter_map(|w| match w {
                Wire::Syn { client, isn, stale: true, .. } => Some((*client, *isn)),
                _ => None,
            })
            .collect();
        assert_eq!(stale_keys.len(), stale, "{name}");
        let connects = client_failures(name).into_iter().filter(|f| f.phase == "connect").count();
        assert_eq!(connects as u64, refused + unanswered, "{name}");
    }
}
