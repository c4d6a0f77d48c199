//! `bench engine`: records of the ring buffer through decoding and the engine, on one core.
//!
//! The engine stands in the middle of a rollout, as it does when there is anything to decide: a pod of the
//! old revision leaves. Records come as the kernel writes them. Time is the processor's, of the one
//! thread that does it all, so that a busy machine measures the same.

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use nix::time::{ClockId, clock_gettime};
use rollrace::{
    cluster::{Facts, Workload},
    engine::{AttemptCounts, ClusterChange, Config, Input, State, What, step},
    model::{Clock, Mono},
    probe::{decode, layout::Layout},
};
use rollrace_ebpf::{
    abi::{Address, Attempt, Event, Kind, Socket, Tuple, flag},
    flow,
};
use serde_json::Value;

use crate::{
    agent::NODE,
    figures::{Bar, Figures, Output},
    loss::{
        objects::{Change, Shop},
        world::{SERVICE, backend, client},
    },
};

/// Between two ticks of the engine, in its own time.
const TICK_NANOS: u64 = 250_000_000;
/// Records that pass before what is measured: the engine's bounds are reached by then.
const WARM: u32 = 150_000;
/// The bar.
const BAR: f64 = 1_000_000.0;

/// Options of `engine`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench engine --json before.json
  cargo xtask bench engine --against before.json

Exit code: 0 if every bar is met, 1 if one is missed, 70 if it could not be measured.")]
pub struct Args {
    /// Records of each kind
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=50_000_000))]
    events: u32,
    #[command(flatten)]
    output: Output,
}

/// What a record tells.
#[derive(Clone, Copy, Debug)]
struct Told {
    name: &'static str,
    kind: Kind,
    code: u32,
    backend: u8,
    /// Each is a failure, with a verdict.
    fails: bool,
    /// Between two of them, in the engine's time: what is held back for evidence must find room.
    apart_nanos: u64,
}

const REFUSED: Told = Told {
    name: "refused by a leaving pod, with its verdict",
    kind: Kind::Refused,
    code: 0,
    backend: 0,
    fails: true,
    apart_nanos: 1_000,
};

/// What comes up most: ends of connections to pods that stay, answers after a retransmit, and failures.
const KINDS: [Told; 4] = [
    Told {
        name: "ended by a pod that stays",
        kind: Kind::Ended,
        code: flow::End::Cut as u32,
        backend: 1,
        fails: false,
        apart_nanos: 5_000_000,
    },
    Told {
        name: "answered late",
        kind: Kind::Answered,
        code: 0,
        backend: 1,
        fails: false,
        apart_nanos: 1_000,
    },
    Told {
        name: "ended by a leaving pod, with its verdict",
        kind: Kind::Ended,
        code: flow::End::Cut as u32,
        backend: 0,
        fails: true,
        apart_nanos: 1_000,
    },
    REFUSED,
];

/// Measures.
///
/// # Errors
/// If a record is not understood, or the engine does not decide as it should.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut figures = Figures::default();
    let records: Vec<_> =
        (0..10_000).map(|number| record(REFUSED, number, Mono(1)).to_bytes()).collect();
    let layout = Layout::default();
    let began = processor_time()?;
    for number in 0..args.events as usize {
        let bytes = &records[number % records.len()];
        std::hint::black_box(decode(bytes, &layout)?);
    }
    let took = processor_time()?.saturating_sub(began);
    figures.add("decoding alone", rate(args.events, took), "records/s");
    for told in KINDS {
        let mut engine = Engine::in_a_rollout()?;
        engine.feed(told, 0..WARM.min(args.events), &layout)?;
        let before = engine.failed;
        let began = processor_time()?;
        engine.feed(told, WARM..WARM + args.events, &layout)?;
        let took = processor_time()?.saturating_sub(began);
        let failed = engine.failed - before;
        let expected = if told.fails { u64::from(args.events) } else { 0 };
        ensure!(failed == expected, "{}: {failed} verdicts of {}", told.name, args.events);
        figures.barred(told.name, rate(args.events, took), "records/s", Bar::AtLeast(BAR));
        if told.fails {
            let delay = engine.longest_delay.as_secs_f64() * 1e3;
            figures.add(format!("{}: longest delay", told.name), delay, "ms");
        }
    }
    figures.finish(&args.output)
}

fn rate(events: u32, took: Duration) -> f64 {
    f64::from(events) / took.as_secs_f64()
}

fn processor_time() -> Result<Duration> {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("read the thread's time")?;
    Ok(now.into())
}

/// The engine with its time.
struct Engine {
    state: State,
    now: Mono,
    ticked: Mono,
    failed: u64,
    longest_delay: Duration,
}

impl Engine {
    /// Watches in step, the Service dialled, the first old pod leaving.
    fn in_a_rollout() -> Result<Self> {
        let begin = Mono(1_000_000_000_000);
        let mut engine = Self {
            state: State::new(Config::new(NODE)),
            now: begin,
            ticked: begin,
            failed: 0,
            longest_delay: Duration::ZERO,
        };
        let shop = Shop::new();
        engine.tick();
        engine.input(What::Attached);
        let mut version = 0;
        for change in shop.before() {
            version += 1;
            engine.input(What::Cluster(cluster(change, version)?));
        }
        let slices = vec![("shop".into(), "api-1".into())];
        engine.input(What::Cluster(ClusterChange::SlicesListed(slices)));
        engine.input(What::Cluster(ClusterChange::Synced(true)));
        let original = SERVICE.into();
        let counts = AttemptCounts { original, attempts: 10, answered: 10, refused: 0 };
        engine.input(What::Attempts(counts));
        engine.pass(Duration::from_secs(60));
        for change in shop.leaving() {
            version += 1;
            engine.input(What::Cluster(cluster(change, version)?));
        }
        engine.pass(Duration::from_secs(1));
        Ok(engine)
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now.plus(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        while self.now < end {
            self.now = self.now.plus(TICK_NANOS);
            self.tick();
        }
    }

    fn tick(&mut self) {
        let wall = jiff::Timestamp::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let clock = Clock { mono: self.now, wall: wall + Duration::from_nanos(self.now.0) };
        self.ticked = self.now;
        self.input(What::Tick(clock));
    }

    fn input(&mut self, what: What) {
        let outputs = step(&mut self.state, Input { at: self.now, what });
        for failure in &outputs.failures {
            self.failed += 1;
            let delay = Duration::from_nanos(failure.decided.since(failure.ended));
            self.longest_delay = self.longest_delay.max(delay);
        }
    }

    /// Records of one kind, each of a connection of its own.
    fn feed(&mut self, told: Told, numbers: std::ops::Range<u32>, layout: &Layout) -> Result<()> {
        for number in numbers {
            self.now = self.now.plus(told.apart_nanos);
            if self.now.since(self.ticked) >= TICK_NANOS {
                self.tick();
            }
            let bytes = record(told, number, self.now).to_bytes();
            let sighting = decode(&bytes, layout)?;
            self.input(What::Saw(sighting));
        }
        // What waits for evidence is decided by a tick.
        self.pass(Duration::from_millis(250));
        Ok(())
    }
}

/// The record of a connection: another client port or ISN for each number.
fn record(told: Told, number: u32, now: Mono) -> Event {
    let address = |ip: std::net::Ipv4Addr| Address::v4(u32::from_ne_bytes(ip.octets()));
    let client = client(u8::try_from(number % 4).unwrap_or(0));
    let sport = u16::try_from(20_000 + number / 4 % 40_000).unwrap_or(u16::MAX);
    let to = backend(told.backend);
    Event {
        ns: now.0,
        attempt: Attempt {
            first_ns: now.0.saturating_sub(100_000),
            last_ns: now.0.saturating_sub(100_000),
            backend: Socket { address: address(*to.ip()), port: to.port(), pad: 0 },
            isn: number,
            syns: 1,
            flags: flag::DNAT | flag::CONFIRMED | flag::SENT,
            ..Attempt::default()
        },
        tuple: Tuple {
            src: address(client),
            dst: address(*SERVICE.ip()),
            sport,
            dport: SERVICE.port(),
        },
        kind: told.kind as u32,
        code: told.code,
        family: 4,
        ..Event::default()
    }
}

/// A change of an object, as the watches tell the engine.
fn cluster(change: Change, version: u64) -> Result<ClusterChange> {
    let mut object = change.object;
    object["metadata"]["resourceVersion"] = version.to_string().into();
    Ok(match change.resource {
        "services" => ClusterChange::Service(facts(object)?),
        "deployments" => {
            let workload: Arc<Workload<Deployment>> = facts(object)?;
            ClusterChange::Workload(Arc::new(workload.facts.clone()))
        }
        "replicasets" => ClusterChange::ReplicaSet(facts(object)?),
        "pods" => ClusterChange::Pod(facts(object)?),
        "endpointslices" => ClusterChange::Slice(facts(object)?),
        other => anyhow::bail!("{other} are not told to the engine"),
    })
}

fn facts<T: Facts>(object: Value) -> Result<Arc<T>> {
    T::trim(object, &mut Vec::new()).map(Arc::new).context("trim an object")
}
