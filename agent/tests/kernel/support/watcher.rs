//! The probes of a node, and waiting for what they see.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::OnceLock,
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};
use rollrace::{
    engine::{FreshSyns, Watch},
    model::{Answer, AttemptKey, Mono, Sighting},
    probe::{Losses, Options, Probe, Sweep, layout},
};
use tokio::runtime::{Builder, Runtime};

use super::{Dial, Ip, Namespace, at};

/// How long an event is waited for: enough for a machine whose cores are busy with other tests, and
/// as many times as much as `ROLLRACE_SLOW` says where a machine is slow by itself (an emulated one).
pub fn patience() -> Duration {
    static SLOW: OnceLock<u32> = OnceLock::new();
    let slow = SLOW.get_or_init(|| {
        let told = std::env::var("ROLLRACE_SLOW").unwrap_or_else(|_| "1".to_owned());
        told.parse().unwrap_or_else(|error| panic!("ROLLRACE_SLOW is {told:?}: {error}"))
    });
    Duration::from_secs(20) * *slow
}

/// A destination that nobody listens on; a refusal by it ends a list of sightings.
fn fence() -> SocketAddr {
    at(Ip::V4.loopback(), 9)
}

/// Probes and everything they have seen.
pub struct Watcher {
    // Before the runtime, which its descriptor is registered with.
    probe: Probe,
    runtime: Runtime,
    seen: Vec<Sighting>,
    counts: HashMap<SocketAddr, (u64, u64, u64)>,
}

impl Watcher {
    /// Attaches probes that call `namespace` their own.
    pub fn start(namespace: &Namespace, options: Options) -> Self {
        static LAYOUT: OnceLock<layout::Layout> = OnceLock::new();
        let layout = LAYOUT.get_or_init(|| {
            let mut layout = layout::Layout::read(&layout::folder())
                .expect("resolve the kernel's struct layout");
            // As on kernels before 6.2.
            if std::env::var_os("ROLLRACE_READS").is_some_and(|reads| reads == "helper") {
                layout.casts = None;
            }
            layout
        });
        let runtime = Builder::new_current_thread().enable_all().build().expect("start a runtime");
        let probe = namespace.run(|| {
            let _guard = runtime.enter();
            // Another object than the one that is built in, to try one out.
            let other = std::env::var_os("ROLLRACE_OBJECT");
            let probe = match other.map(|path| std::fs::read(path).expect("read the object")) {
                Some(object) => Probe::with_object(layout.clone(), options, &object),
                None => Probe::with_layout(layout.clone(), options),
            };
            probe.expect("attach the probes (as root)")
        });
        assert_eq!(probe.plain_loads, layout.casts.is_some(), "the verifier takes the plain loads");
        let mut watcher = Self { probe, runtime, seen: Vec::new(), counts: HashMap::new() };
        watcher.watch(&[Watch::Endpoint(fence())]);
        watcher
    }

    /// Changes the watch set.
    pub fn watch(&mut self, changes: &[Watch]) {
        self.probe.maps.watch(changes);
        assert_eq!(self.probe.maps.watch_full, 0, "the watch set has room");
    }

    /// The same where it need not have.
    pub fn watch_what_fits(&mut self, changes: &[Watch]) {
        self.probe.maps.watch(changes);
    }

    /// Changes of the watch set that do not fit now.
    pub fn unfit(&self) -> usize {
        self.probe.maps.unfit.len()
    }

    /// Changes of the watch set that did not fit when they came.
    pub fn watch_full(&self) -> u64 {
        self.probe.maps.watch_full
    }

    /// The first sighting that fits, of all so far and to come.
    pub fn wait_for(&mut self, what: &str, fits: impl Fn(&Sighting) -> bool) -> Sighting {
        let deadline = Instant::now() + patience();
        loop {
            if let Some(found) = self.seen.iter().find(|seen| fits(seen)) {
                return found.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let read = self.probe.sightings(&mut self.seen);
            let read = self.runtime.block_on(async { tokio::time::timeout(left, read).await });
            let Ok(read) = read else {
                panic!("no sighting of {what} in time; seen: {:#?}", self.seen)
            };
            read.expect("poll the ring buffer");
        }
    }

    /// Everything seen until now, in order: a refusal of our own making ends the list, since the
    /// ring buffer keeps the order.
    pub fn all(&mut self, namespace: &Namespace) -> Vec<Sighting> {
        let (result, local) = namespace.try_once(Dial::new(fence()));
        result.expect_err("nobody listens behind the fence");
        let is_fence = |seen: &Sighting| seen.attempt().key.original == fence();
        self.wait_for("the fence", |seen| is_fence(seen) && seen.attempt().key.client == local);
        self.seen.iter().filter(|seen| !is_fence(seen)).cloned().collect()
    }

    /// Records in the ring buffer that have not been read.
    pub fn drain(&mut self) -> usize {
        let before = self.seen.len();
        let read = self.probe.sightings(&mut self.seen);
        let read = self.runtime.block_on(async { tokio::time::timeout(patience(), read).await });
        read.expect("something is in the ring buffer").expect("poll the ring buffer");
        self.seen.len() - before
    }

    /// The unanswered attempts older than `deadline`, and how many are tracked.
    pub fn sweep(&mut self, deadline: Duration) -> Sweep {
        let deadline = u64::try_from(deadline.as_nanos()).expect("a short deadline");
        let sweep = self.probe.maps.sweep(now(), deadline);
        // A sweep tells only the counts that have changed.
        self.counts.extend(
            sweep.counts.iter().map(|counts| {
                (counts.original, (counts.attempts, counts.answered, counts.refused))
            }),
        );
        sweep
    }

    /// Attempts, answered and refused of one original destination.
    pub fn counts(&mut self, original: SocketAddr) -> (u64, u64, u64) {
        self.sweep(Duration::from_secs(3600));
        self.counts.get(&original).copied().unwrap_or_default()
    }

    /// Fresh SYNs to a backend.
    pub fn fresh(&self, backend: SocketAddr) -> Option<FreshSyns> {
        self.probe.maps.fresh(&[backend].into()).pop()
    }

    /// What the kernel side counted.
    pub fn losses(&self) -> Losses {
        self.probe.maps.losses()
    }
}

/// The kernel's clock of events.
pub fn now() -> Mono {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("read the monotonic clock");
    let part = |value: i64| u64::try_from(value).expect("a time since the start of the machine");
    Mono(part(time.tv_sec()) * 1_000_000_000 + part(time.tv_nsec()))
}

/// The attempts of a client's port to a destination.
pub fn of(client: SocketAddr, original: SocketAddr) -> impl Fn(&Sighting) -> bool + Copy {
    move |seen| {
        let AttemptKey { client: from, original: to, .. } = seen.attempt().key;
        (from, to) == (client, original)
    }
}

/// Whether it is an answer by RST.
pub fn is_refusal(seen: &Sighting) -> bool {
    matches!(seen, Sighting::Answered { answer: Answer::Rst, .. })
}
