//! The one owner of the state: takes inputs from every side, answers queries, writes the recording.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    clocks, conntrack_task::ConntrackOrders, failure_log::FailureLog, keeper::Keeper, now,
    outbox::Outbox, probe_task::Kernel,
};
use crate::{
    cluster::ClusterStats,
    engine::{ClusterChange, Config, GapReason, Input, Request, State, What, step},
    http::{self, Query, ScanStatus, StatusAnswer},
    metrics::Metrics,
    model::Mono,
    probe::HOOKS,
    record::Recorder,
};

/// How often time is told to the engine.
const TICK: Duration = Duration::from_millis(250);
/// How many ticks between two looks at the node's own addresses.
const ADDRESSES_EVERY: u64 = 40;
/// How many ticks at most until the metrics take over what is counted elsewhere. A scrape has them do
/// so first; where nobody scrapes, what waits for it would grow.
const OBSERVED_EVERY: u64 = 40;
/// Inputs taken from one side before the others get their turn.
const BATCH: usize = 256;

/// The engine with everything that is its alone.
pub struct EngineTask {
    state: State,
    recorder: Option<Recorder>,
    keeper: Option<Keeper>,
    metrics: Metrics,
    log: FailureLog,
    stats: Arc<ClusterStats>,
    kernel: Kernel,
    conntrack: ConntrackOrders,
    requests: Outbox,
    node: Arc<str>,
    started: Mono,
    ticks: u64,
    decided: u64,
    covers: bool,
    gaps_said: u64,
}

impl EngineTask {
    /// An engine with an empty state.
    pub fn new(
        config: Config,
        recorder: Option<Recorder>,
        keeper: Option<Keeper>,
        stats: Arc<ClusterStats>,
        kernel: Kernel,
        conntrack: ConntrackOrders,
        requests: mpsc::Sender<Request>,
    ) -> Self {
        Self {
            node: config.node.clone(),
            state: State::new(config),
            recorder,
            keeper,
            metrics: Metrics::new(),
            log: FailureLog::new(now()),
            stats,
            kernel,
            conntrack,
            requests: Outbox::new(requests),
            started: now(),
            ticks: 0,
            decided: 0,
            covers: false,
            gaps_said: 0,
        }
    }

    /// Runs until `shutdown`, then takes what is still queued.
    ///
    /// # Errors
    /// If the probes or the watches hang up.
    pub async fn run(
        mut self,
        mut sightings: mpsc::Receiver<(Mono, What)>,
        mut changes: mpsc::Receiver<ClusterChange>,
        mut queries: mpsc::Receiver<Query>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.tick();
        if let Some(left) = self.keeper.as_mut().and_then(Keeper::left) {
            self.input(now(), What::Recalled(left));
            self.metrics.recalled(&self.state);
        }
        let mut batch = Vec::new();
        let mut change_batch = Vec::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                _ = tick.tick() => self.tick(),
                count = sightings.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        break;
                    }
                    for (at, what) in batch.drain(..) {
                        self.input(at, what);
                    }
                }
                count = changes.recv_many(&mut change_batch, BATCH) => {
                    if count == 0 {
                        break;
                    }
                    // Their times are civil ones.
                    let at = self.look_at_clock();
                    for change in change_batch.drain(..) {
                        self.input(at, What::Cluster(change));
                    }
                }
                Some(query) = queries.recv() => self.answer(query),
            }
        }
        while let Ok((at, what)) = sightings.try_recv() {
            self.input(at, what);
        }
        self.tick();
        self.flush();
        let events_open = self.state.events_open();
        if events_open > 0 {
            let next = if self.keeper.is_some() {
                "the next agent on this node writes them"
            } else {
                "they are lost: --state-dir keeps them for the next agent"
            };
            warn!(events = events_open, "Events of rollouts are not written yet; {next}");
        }
        if let Some(keeper) = self.keeper.take() {
            keeper.finish(&self.state).await;
        }
        info!(
            failures = self.decided,
            undecided = self.state.undecided_failures(),
            pending = self.state.pending_attempts(),
            "stopped"
        );
        Ok(())
    }

    fn input(&mut self, at: Mono, what: What) {
        let input = Input { at, what };
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = recorder.input(&input)
        {
            warn!("the recording ends here: {error:#}", error = anyhow::Error::from(error));
            self.recorder = None;
        }
        let outputs = step(&mut self.state, input);
        if !outputs.watch.is_empty() && self.kernel.watch.send(outputs.watch).is_err() {
            warn!("the probe task is gone: the watch set is not updated");
        }
        self.requests.send(outputs.requests);
        if outputs.scan {
            self.conntrack.scan();
        }
        if !outputs.evictions.is_empty() {
            self.conntrack.evict(outputs.evictions);
        }
        for failure in &outputs.failures {
            self.decided += 1;
            self.metrics.failure(failure);
            let report = self.state.failure_report(failure);
            self.log.write(&report, self.state.clock().mono.max(at));
        }
    }

    /// The time; tells the engine at once if the civil clock was stepped.
    fn look_at_clock(&mut self) -> Mono {
        let clock = clocks::read();
        if clocks::is_stepped(self.state.clock(), clock) {
            self.input(clock.mono, What::Tick(clock));
        }
        clock.mono
    }

    /// Says what changed in what this agent is there for.
    fn say_coverage(&mut self) {
        let coverage = self.state.coverage();
        let clock = self.state.clock();
        if let Some(since) = coverage.since().filter(|_| !self.covers) {
            self.covers = true;
            info!(since = %clock.wall(since), "probes attached and watches in step: covered from now on");
        }
        let gaps: u64 = coverage.counts().map(|(_, count)| count).sum();
        if gaps > self.gaps_said {
            // The probe task has said what was lost.
            let others = coverage.gaps().filter(|gap| gap.reason != GapReason::Lost);
            if let Some(gap) = others.last() {
                warn!(
                    gaps = gaps - self.gaps_said,
                    from = %clock.wall(gap.from),
                    until = %clock.wall(gap.until),
                    reason = gap.reason.name(),
                    "a gap: {}; rollouts of that time are reported as partly covered",
                    gap.reason.why()
                );
            }
            self.gaps_said = gaps;
        }
    }

    fn tick(&mut self) {
        let clock = clocks::read();
        let at = clock.mono;
        self.input(at, What::Tick(clock));
        if self.ticks.is_multiple_of(ADDRESSES_EVERY) {
            match own_addresses() {
                Ok(addresses) => self.input(at, What::NodeAddresses(addresses)),
                Err(error) => warn!("cannot list the node's own addresses: {error}"),
            }
        }
        self.ticks += 1;
        let wanted = self.state.fresh_wanted();
        self.kernel.wanted.send_if_modified(|known| {
            let changed = *known != wanted;
            *known = wanted;
            changed
        });
        self.log.tick(at);
        if let Some(keeper) = &mut self.keeper {
            keeper.tick(&self.state, at);
        }
        self.say_coverage();
        if self.ticks.is_multiple_of(OBSERVED_EVERY) {
            self.observe();
        }
        self.flush();
    }

    /// Brings the metrics up to date.
    fn observe(&mut self) {
        let probes = HOOKS.map(|name| (name, true));
        self.metrics.observe(&mut self.state, &probes, &self.stats.snapshot());
        let report = self.kernel.report.borrow().clone();
        let events = [
            ("read", report.losses.read),
            ("matched", report.losses.matched),
            ("submitted", report.losses.submitted),
        ];
        self.metrics.kernel(&events, &report.lost());
        self.metrics.flows(&self.state, report.flows_bytes);
        self.metrics.conntrack(&self.state, &self.conntrack.report.borrow());
        if let Some(keeper) = &self.keeper {
            let status = keeper.status();
            self.metrics.history(status.written, status.failed);
        }
    }

    fn flush(&mut self) {
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = recorder.flush()
        {
            warn!("the recording ends here: {error:#}", error = anyhow::Error::from(error));
            self.recorder = None;
        }
    }

    /// A client that has hung up needs no answer: its receiver is gone, and that is all.
    fn answer(&mut self, query: Query) {
        match query {
            Query::Metrics(reply) => {
                self.observe();
                let scrape = self.metrics.scrape();
                let encode = move || scrape.encode().map_err(|error| error.to_string());
                drop(reply.send(Ok(Box::new(encode))));
            }
            Query::Status(reply) => drop(reply.send(Ok(self.status()))),
            Query::Rollouts(wanted, reply) => {
                drop(reply.send(Ok(http::rollouts(&self.state, &wanted))));
            }
            Query::Failures(wanted, reply) => {
                drop(reply.send(Ok(http::failures(&self.state, &wanted))));
            }
            Query::Lanes(id, reply) => drop(reply.send(Ok(http::lanes(&self.state, &id)))),
        }
    }

    fn scan_status(&self) -> ScanStatus {
        let report = self.conntrack.report.borrow();
        ScanStatus {
            scans: report.scans,
            failed: report.failed,
            error: report.error.clone(),
            last_cost_seconds: report.cost.as_secs_f64(),
            table_entries: report.table.entries,
            table_limit: report.table.limit,
            table_drops: report
                .table
                .dropped
                .map(|dropped| dropped + report.table.dropped_early.unwrap_or(0)),
            insert_failed: report.table.insert_failed,
        }
    }

    fn status(&self) -> StatusAnswer {
        let mut cluster = self.stats.snapshot();
        cluster.follow_refused += self.state.follow_refused();
        let report = self.kernel.report.borrow().clone();
        let mut not_ready = Vec::new();
        if !self.state.is_synced() {
            for (name, watch) in &cluster.watches {
                use crate::cluster::WatchState::{Denied, Idle, Lost, Starting};
                let essential = matches!(name.name(), "endpointslices" | "services" | "pods");
                let state = match watch.state {
                    Idle | Starting => "has not listed everything yet",
                    Lost => "has lost the API server",
                    Denied => "is denied by the API server",
                    crate::cluster::WatchState::Synced => continue,
                };
                if essential {
                    let why = watch
                        .last_error
                        .as_ref()
                        .map_or_else(String::new, |error| format!(": {error}"));
                    not_ready.push(format!("the watch of {} {state}{why}", name.name()));
                }
            }
            if not_ready.is_empty() {
                not_ready.push("the watches have not caught up yet".to_owned());
            }
        }
        let mut losses: BTreeMap<&'static str, u64> = report.lost().into_iter().collect();
        losses.insert("undecodable", report.undecodable);
        losses.insert("engine_overflow", self.state.overflowed());
        losses.insert("requests_dropped", self.requests.dropped);
        let lower_bound = self.state.lost() > 0 || self.state.overflowed() > 0;
        StatusAnswer {
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION"),
            kubernetes: self.state.kubernetes().cloned(),
            started: self.state.clock().wall(self.started),
            now: self.state.wall_now(),
            playback: None,
            coverage: self.state.coverage_report(),
            ready: not_ready.is_empty(),
            not_ready,
            pending_attempts: self.state.pending_attempts(),
            undecided_failures: self.state.undecided_failures(),
            failures: self.decided,
            cancelled_attempts: self.state.cancelled(),
            undirected_attempts: self.state.undirected(),
            unseen_attempts: self.state.unseen(),
            closed_connections: self.state.closed(),
            closed_by_service: self.state.closed_by_service(),
            stayed_connections: self.state.stayed(),
            flows_memory_bytes: report.flows_bytes,
            lower_bound,
            losses,
            forgotten: self.state.forgotten().into(),
            probes: HOOKS.into_iter().map(|name| (name, true)).collect(),
            conntrack: report.conntrack,
            lacks: report.lacks,
            stale: self.state.stale_report(),
            events: self.state.events_report(),
            conntrack_scan: self.scan_status(),
            cluster,
            history: self.keeper.as_ref().map(|keeper| keeper.status().clone()),
            log_suppressed: self.log.suppressed,
        }
    }
}

/// Addresses of the interfaces in the agent's own namespace.
fn own_addresses() -> nix::Result<Vec<IpAddr>> {
    let mut addresses: Vec<IpAddr> = nix::ifaddrs::getifaddrs()?
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}
