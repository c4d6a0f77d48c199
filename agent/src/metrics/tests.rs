//! What is scraped.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use nix::time::{ClockId, clock_gettime};

use super::{rollouts::ROLLOUT_CAP, *};
use crate::{
    engine::{AttemptCounts, ClusterChange, Config, Input, What, step},
    model::{Clock, Mono, ObjectRef, ReplicaSetFacts, ServiceFacts, ServicePort},
};

/// A Service of its own for each number, dialled so often.
fn dialled(state: &mut State, number: u32, attempts: u64) {
    let ip = std::net::Ipv4Addr::from(0x0A60_0000 + number);
    let service = ServiceFacts {
        namespace: "shop".into(),
        name: format!("api-{number}").into(),
        resource_version: "1".into(),
        cluster_ips: vec![ip.into()],
        external_ips: Vec::new(),
        ports: vec![ServicePort {
            name: "http".into(),
            protocol: "TCP".into(),
            port: 80,
            node_port: None,
        }],
        has_selector: true,
        publish_not_ready: false,
        external_local: false,
        internal_local: false,
    };
    let original = SocketAddr::new(ip.into(), 80);
    let counts = AttemptCounts { original, attempts, answered: attempts, refused: 0 };
    for what in [What::Cluster(ClusterChange::Service(Arc::new(service))), What::Attempts(counts)] {
        step(state, Input { at: Mono(1), what });
    }
}

fn value(metrics: &Metrics, series: &str) -> Option<u64> {
    let text = String::from_utf8(metrics.scrape().encode().unwrap()).unwrap();
    let mut values = text.lines().filter_map(|line| line.strip_prefix(series));
    values.next().map(|value| value.trim().parse().unwrap())
}

/// A Deployment of its own for each number, that went from one revision to the next.
fn rolled_out(state: &mut State, number: usize) {
    let at = state.clock().mono;
    for (revision, hash) in [(1, "old"), (2, "new")] {
        let owner = ObjectRef {
            kind: "Deployment".into(),
            api_version: "apps/v1".into(),
            name: format!("api-{number}").into(),
            uid: format!("uid-{number}").into(),
        };
        let set = ReplicaSetFacts {
            namespace: "shop".into(),
            name: format!("api-{number}-{hash}").into(),
            uid: format!("uid-{number}-{hash}").into(),
            resource_version: "1".into(),
            owner: Some(owner),
            template_hash: hash.into(),
            revision: Some(revision),
            created: Some(state.clock().wall),
            wanted: 1,
            replicas: 1,
            images: Vec::new(),
            template: None,
        };
        let what = What::Cluster(ClusterChange::ReplicaSet(Arc::new(set)));
        step(state, Input { at, what });
    }
}

/// A state whose clock goes.
fn begun() -> State {
    let mut state = State::new(Config::new("n1"));
    let wall = jiff::Timestamp::from_second(1_000).unwrap();
    let clock = Clock { mono: Mono(1_000_000_000), wall };
    step(&mut state, Input { at: clock.mono, what: What::Tick(clock) });
    state
}

/// Processor time that this thread takes for something: however busy the machine is, it is the same.
fn processor_time<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let clock = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let began = clock();
    let result = work();
    (result, clock().saturating_sub(began))
}

#[test]
fn rollouts_past_the_cap_have_no_gauges_and_the_newest_have() {
    let mut state = begun();
    for number in 0..ROLLOUT_CAP + 5 {
        rolled_out(&mut state, number);
    }
    let mut metrics = Metrics::new();
    metrics.observe(&mut state, &[], &ClusterSnapshot::default());
    let text = String::from_utf8(metrics.scrape().encode().unwrap()).unwrap();
    let gauge = "rollrace_rollout_start_timestamp_seconds{";
    assert_eq!(text.matches(gauge).count(), ROLLOUT_CAP);
    assert!(text.contains("workload=\"api-204\"") && !text.contains("workload=\"api-4\""));
}

/// The whole of a scrape: the engine brings the metrics up to date, another thread encodes them. The
/// bars hold for this unoptimised build, too.
#[test]
fn two_thousand_services_that_all_roll_out_and_fail_fit_into_a_scrape() {
    let mut state = begun();
    for number in 0..2_000 {
        dialled(&mut state, number, 10);
        rolled_out(&mut state, number as usize);
    }
    let mut metrics = Metrics::new();
    metrics.observe(&mut state, &[], &ClusterSnapshot::default());
    // Each of its failures in a class and phase of its own, as far as there is room; and all gauges
    // that rollouts may have.
    for number in 0..2_000 {
        let (service, workload) = (format!("service-{number:04}"), format!("api-{number:04}"));
        for class in Class::ALL {
            for phase in [Phase::During, Phase::After] {
                let (class, phase) = (class.name(), phase.name());
                let labels = ["shop", &service, "Deployment", &workload, class, "rollout", phase];
                let labels = metrics.capped("connection_failures_total", &labels, 4);
                metrics.failures.with_label_values(&labels).inc();
            }
        }
    }
    for number in 0..2_000 {
        dialled(&mut state, number, 20);
    }
    let ((), by_engine) =
        processor_time(|| metrics.observe(&mut state, &[], &ClusterSnapshot::default()));
    metrics.rollouts.fill("shop", "Deployment", "1000");
    let scrape = metrics.scrape();
    let (text, encoding) = processor_time(|| scrape.encode().unwrap());
    let series = text.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#")).count();
    println!("{series} series, {} bytes, engine {by_engine:?}, encoding {encoding:?}", text.len());
    assert!((9_000..20_000).contains(&series), "{series} series");
    assert!(text.len() < 3_000_000, "{} bytes", text.len());
    assert!(by_engine < Duration::from_millis(50), "the engine stands still for {by_engine:?}");
    assert!(by_engine + encoding < Duration::from_millis(200), "{by_engine:?} + {encoding:?}");
}

#[test]
fn services_past_the_cap_share_one_counter_that_is_their_sum_however_often_it_is_looked_at() {
    let mut state = State::new(Config::new("n1"));
    let cap = u32::try_from(SERIES_CAP).unwrap();
    for number in 0..cap + 3 {
        dialled(&mut state, number, 10);
    }
    let mut metrics = Metrics::new();
    let other = "rollrace_connection_attempts_total{namespace=\"_other\",service=\"_other\"}";
    for _ in 0..3 {
        metrics.observe(&mut state, &[], &ClusterSnapshot::default());
        assert_eq!(value(&metrics, other), Some(30));
        assert_eq!(value(&metrics, "rollrace_series_capped_total"), Some(3));
    }
    let text = String::from_utf8(metrics.scrape().encode().unwrap()).unwrap();
    let series = text.matches("rollrace_connection_attempts_total{").count();
    assert_eq!(series, SERIES_CAP + 1);
}
