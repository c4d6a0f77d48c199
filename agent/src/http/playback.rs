//! A recording in the engine's place: answers what an agent would have answered then.

use std::{collections::BTreeMap, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::answer::{self, PlaybackReport, Query, ScanStatus, StatusAnswer};
use crate::{
    cluster::ClusterSnapshot,
    engine::{Input, State, What, step},
    model::Mono,
    record::Recording,
};

/// Inputs taken at once, before questions get their turn.
const BATCH: usize = 1_024;

/// A recording and how far it has been played.
pub struct Playback {
    state: State,
    inputs: std::vec::IntoIter<Input>,
    next: Option<Input>,
    /// How many times faster than it was; `None`: all of it at once.
    speed: Option<f64>,
    begun: (Instant, Option<Mono>),
    report: PlaybackReport,
    failures: u64,
    scans: u64,
}

impl Playback {
    /// From its begin, at `speed` times the pace at which it happened, or all of it at once.
    pub fn new(file: String, recording: Recording, speed: Option<f64>) -> Self {
        let mut inputs = recording.inputs.into_iter();
        let next = inputs.next();
        Self {
            state: State::new(recording.config),
            begun: (Instant::now(), next.as_ref().map(|input| input.at)),
            inputs,
            next,
            speed,
            report: PlaybackReport { file, finished: false, cut_off_at: recording.cut_off_at },
            failures: 0,
            scans: 0,
        }
    }

    /// Plays it and answers, until nobody can ask any more or `shutdown`.
    pub async fn run(mut self, mut queries: mpsc::Receiver<Query>, shutdown: CancellationToken) {
        self.begun.0 = Instant::now();
        loop {
            let due = self.due();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                query = queries.recv() => match query {
                    Some(query) => self.answer(query),
                    None => return,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.play(),
            }
        }
    }

    /// When the next input is due; `None` if there is none.
    fn due(&self) -> Option<Instant> {
        let next = self.next.as_ref()?;
        let (begun, first) = self.begun;
        let Some(speed) = self.speed else { return Some(begun) };
        let since = Duration::from_nanos(next.at.since(first.unwrap_or(next.at)));
        Some(begun + since.div_f64(speed))
    }

    /// Takes what is due.
    fn play(&mut self) {
        let now = Instant::now();
        for _ in 0..BATCH {
            if self.due().is_none_or(|due| due > now) {
                break;
            }
            let Some(input) = self.next.take() else { break };
            self.scans += u64::from(matches!(input.what, What::Conntrack(_)));
            let decided = step(&mut self.state, input).failures.len();
            self.failures += u64::try_from(decided).unwrap_or(u64::MAX);
            self.next = self.inputs.next();
        }
        self.report.finished = self.next.is_none();
    }

    /// A client that has hung up needs no answer.
    fn answer(&self, query: Query) {
        match query {
            Query::Metrics(reply) => {
                drop(reply.send(Err("a recording that is played back has no metrics".to_owned())));
            }
            Query::Status(reply) => drop(reply.send(Ok(self.status()))),
            Query::Rollouts(wanted, reply) => {
                drop(reply.send(Ok(answer::rollouts(&self.state, &wanted))));
            }
            Query::Failures(of, reply) => {
                drop(reply.send(Ok(answer::failures(&self.state, &of))));
            }
            Query::Lanes(id, reply) => drop(reply.send(Ok(answer::lanes(&self.state, &id)))),
        }
    }

    fn status(&self) -> StatusAnswer {
        let state = &self.state;
        let is_synced = state.is_synced();
        let not_ready =
            if is_synced { Vec::new() } else { vec!["the watches were not in step".to_owned()] };
        StatusAnswer {
            node: state.node().clone(),
            version: env!("CARGO_PKG_VERSION"),
            kubernetes: state.kubernetes().cloned(),
            started: state.clock().wall(self.begun.1.unwrap_or_default()),
            now: state.wall_now(),
            playback: Some(self.report.clone()),
            coverage: state.coverage_report(),
            ready: is_synced,
            not_ready,
            pending_attempts: state.pending_attempts(),
            undecided_failures: state.undecided_failures(),
            failures: self.failures,
            cancelled_attempts: state.cancelled(),
            undirected_attempts: state.undirected(),
            unseen_attempts: state.unseen(),
            closed_connections: state.closed(),
            closed_by_service: state.closed_by_service(),
            stayed_connections: state.stayed(),
            flows_memory_bytes: 0,
            lower_bound: state.lost() > 0 || state.overflowed() > 0,
            losses: BTreeMap::from([
                ("recorded", state.lost()),
                ("engine_overflow", state.overflowed()),
            ]),
            forgotten: state.forgotten().into(),
            probes: BTreeMap::new(),
            conntrack: true,
            lacks: Vec::new(),
            stale: state.stale_report(),
            events: state.events_report(),
            conntrack_scan: ScanStatus {
                scans: self.scans,
                failed: 0,
                error: None,
                last_cost_seconds: 0.0,
                table_entries: None,
                table_limit: None,
                table_drops: None,
                insert_failed: None,
            },
            cluster: ClusterSnapshot::default(),
            history: None,
            log_suppressed: 0,
        }
    }
}
