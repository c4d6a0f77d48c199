//! The kernel side: drains the ring buffer, sweeps, applies the watch set. Nothing may block it.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::now;
use crate::{
    engine::{Lost, Watch, What},
    feature::Lacking,
    model::Mono,
    probe::{Losses, Options, Probe},
};

/// How often unanswered attempts are looked over: an attempt's verdict is at most this much late.
const SWEEP: Duration = Duration::from_millis(500);
/// How often it is looked whether conntrack has come.
const LOOK_FOR_CONNTRACK: Duration = Duration::from_secs(5);

/// What the engine tells the kernel side, and what it may read of it.
pub struct Kernel {
    /// Changes of the watch set.
    pub watch: mpsc::UnboundedSender<Vec<Watch>>,
    /// Backends whose fresh SYNs matter now.
    pub wanted: watch::Sender<BTreeSet<SocketAddr>>,
    /// What the kernel side counted.
    pub report: watch::Receiver<KernelReport>,
}

/// The kernel side's ends of those channels.
pub struct Orders {
    watch: mpsc::UnboundedReceiver<Vec<Watch>>,
    wanted: watch::Receiver<BTreeSet<SocketAddr>>,
    report: watch::Sender<KernelReport>,
}

/// What the kernel side counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelReport {
    /// In the kernel.
    pub losses: Losses,
    /// Program runs skipped by the kernel.
    pub recursion_misses: u64,
    /// Events that the engine's queue had no room for.
    pub queue_full: u64,
    /// Records not understood.
    pub undecodable: u64,
    /// Watch-set entries that did not fit.
    pub watch_full: u64,
    /// Unanswered attempts in the kernel's map.
    pub tracked: usize,
    /// Memory of the map of answered connections, in bytes.
    pub flows_bytes: u64,
    /// Whether conntrack is there.
    pub conntrack: bool,
    /// What the kernel side does without.
    pub lacks: Vec<Lacking>,
}

impl KernelReport {
    /// Losses by reason: any of them makes counts lower bounds.
    pub fn lost(&self) -> [(&'static str, u64); 9] {
        [
            ("ring_full", self.losses.ring_full),
            ("attempts_full", self.losses.attempts_full),
            ("counters_full", self.losses.counters_full),
            ("fresh_evicted", self.losses.fresh_evicted),
            ("flows_evicted", self.losses.flows_evicted),
            ("read_failed", self.losses.read_failed),
            ("recursion", self.recursion_misses),
            ("queue_full", self.queue_full),
            ("watch_set_full", self.watch_full),
        ]
    }
}

/// Both ends. The watch set's channel is unbounded: what passes it is bounded by the endpoints
/// themselves, and losing a change would blind the probes.
pub fn channel() -> (Kernel, Orders) {
    let (watch_out, watch_in) = mpsc::unbounded_channel();
    let (wanted_out, wanted_in) = watch::channel(BTreeSet::new());
    let (report_out, report_in) = watch::channel(KernelReport::default());
    (
        Kernel { watch: watch_out, wanted: wanted_out, report: report_in },
        Orders { watch: watch_in, wanted: wanted_in, report: report_out },
    )
}

/// Runs until `shutdown`.
///
/// # Errors
/// If the ring buffer cannot be polled any more.
pub async fn run(
    mut probe: Probe,
    options: Options,
    deadline_ns: u64,
    out: mpsc::Sender<(Mono, What)>,
    mut orders: Orders,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut sweep = tokio::time::interval(SWEEP);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look = tokio::time::interval(LOOK_FOR_CONNTRACK);
    let mut applied: BTreeSet<Watch> = BTreeSet::new();
    let mut report = KernelReport::default();
    let mut told = 0;
    // Losses are noticed by a sweep: they came after the one before.
    let mut told_until = now();
    send(&out, What::Attached, &mut report);
    let mut sightings = Vec::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            polled = probe.sightings(&mut sightings) => {
                polled?;
                for sighting in sightings.drain(..) {
                    send(&out, What::Saw(sighting), &mut report);
                }
            }
            Some(changes) = orders.watch.recv() => {
                remember(&mut applied, &changes);
                probe.maps.watch(&changes);
            }
            _ = sweep.tick() => {
                let found = probe.maps.sweep(now(), deadline_ns);
                for sighting in found.unanswered {
                    send(&out, What::Saw(sighting), &mut report);
                }
                for counts in found.counts {
                    send(&out, What::Attempts(counts), &mut report);
                }
                let wanted = orders.wanted.borrow().clone();
                for fresh in probe.maps.fresh(&wanted) {
                    send(&out, What::Fresh(fresh), &mut report);
                }
                report.losses = probe.maps.losses();
                report.recursion_misses = probe.recursion_misses();
                report.undecodable = probe.undecodable;
                report.watch_full = probe.maps.watch_full;
                report.tracked = found.tracked;
                report.flows_bytes = probe.maps.flows_bytes;
                report.conntrack = probe.has_conntrack();
                report.lacks = probe.lacks();
                let lost: u64 = report.lost().iter().map(|(_, count)| count).sum();
                let swept = now();
                let unfit = !probe.maps.unfit.is_empty();
                if lost > told {
                    warn!(lost = lost - told, losses = ?report.lost(),
                        "kernel events were lost: counts are lower bounds (raise --ring-buffer, --max-attempts or --max-flows)");
                    let news = Lost { count: lost - told, since: told_until };
                    // What finds no room now is told after the next sweep, with what came before it.
                    if send(&out, What::Lost(news), &mut report) {
                        (told, told_until) = (lost, swept);
                    }
                } else {
                    // What is not watched is not seen, for as long as that lasts.
                    let news = Lost { count: 0, since: told_until };
                    if !unfit || send(&out, What::Lost(news), &mut report) {
                        told_until = swept;
                    }
                }
                orders.report.send_replace(report.clone());
            }
            _ = look.tick(), if !probe.has_conntrack() => {
                if conntrack_has_come() {
                    match Probe::start(options) {
                        Ok(again) => {
                            probe = again;
                            // The kernel side counts from 0 again.
                            told = report.queue_full;
                            let all: Vec<Watch> = applied.iter().copied().collect();
                            probe.maps.watch(&all);
                            info!("conntrack has come: probes attached anew");
                            send(&out, What::Attached, &mut report);
                        }
                        Err(error) => warn!("conntrack has come, but attaching anew failed: {error}"),
                    }
                }
            }
        }
    }
}

/// Hands something to the engine; a full queue is counted, never waited for.
fn send(out: &mpsc::Sender<(Mono, What)>, what: What, report: &mut KernelReport) -> bool {
    let is_sent = out.try_send((now(), what)).is_ok();
    if !is_sent {
        report.queue_full += 1;
    }
    is_sent
}

/// Keeps what the watch set is, to apply it again to a new map.
fn remember(applied: &mut BTreeSet<Watch>, changes: &[Watch]) {
    for change in changes {
        match *change {
            Watch::Forget(address) => {
                applied.remove(&Watch::Endpoint(address));
                applied.remove(&Watch::Service(address));
            }
            Watch::NotLocal(address) => {
                applied.remove(&Watch::Local(address));
            }
            // New maps know of no answers, and old entries are scanned once.
            Watch::Anew(..) | Watch::Pinned { .. } => {}
            added => {
                applied.insert(added);
            }
        }
    }
}

fn conntrack_has_come() -> bool {
    crate::probe::layout::folder().join("nf_conntrack").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_in_the_engines_queue_is_counted_as_lost() {
        let (out, mut engine) = mpsc::channel(2);
        let mut report = KernelReport::default();
        let sent: Vec<bool> = (0..5).map(|_| send(&out, What::Attached, &mut report)).collect();
        assert_eq!(sent, [true, true, false, false, false]);
        assert!(report.lost().contains(&("queue_full", 3)));
        assert!(engine.try_recv().is_ok());
        assert!(send(&out, What::Attached, &mut report), "there is room again");
    }
}
