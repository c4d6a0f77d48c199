//! What the agents ask of the API server, over time: requests, and bytes of the answers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio::time::interval;

use super::cluster::AGENTS;
use crate::api;

/// Between two looks at the server's counters: a phase's figures are that sharp.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What one agent spent in a phase of the run, on average of all agents.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spent {
    /// The phase.
    pub phase: &'static str,
    /// How long it was.
    pub seconds: f64,
    /// Requests, of which a watch is one for as long as it lasts.
    pub requests: f64,
    /// Bytes of the answers' bodies.
    pub bytes: f64,
}

/// The counters over time.
#[derive(Debug)]
pub struct Meter {
    samples: Arc<Mutex<Vec<Sample>>>,
    task: JoinHandle<()>,
}

/// All agents' sums since the start.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    at: Timestamp,
    requests: u64,
    bytes: u64,
}

impl Meter {
    /// Looks from now on.
    pub fn start(server: api::Handle) -> Self {
        let samples = Arc::new(Mutex::new(vec![sample(&server)]));
        let kept = Arc::clone(&samples);
        let task = tokio::spawn(async move {
            let mut look = interval(LOOK_EVERY);
            loop {
                look.tick().await;
                let now = sample(&server);
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(now);
            }
        });
        Self { samples, task }
    }

    /// What was spent in each phase: its name, its begin and its end.
    pub fn stop(
        self,
        agents: usize,
        phases: &[(&'static str, Timestamp, Timestamp)],
    ) -> Vec<Spent> {
        self.task.abort();
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        spent(&samples, agents, phases)
    }
}

fn sample(server: &api::Handle) -> Sample {
    let mut sample = Sample { at: Timestamp::now(), ..Sample::default() };
    for (key, usage) in server.usage() {
        if key.user.starts_with(AGENTS) {
            sample.requests += usage.requests;
            sample.bytes += usage.bytes;
        }
    }
    sample
}

#[expect(clippy::cast_precision_loss, reason = "less than 2^52")]
fn spent(
    samples: &[Sample],
    agents: usize,
    phases: &[(&'static str, Timestamp, Timestamp)],
) -> Vec<Spent> {
    let until = |at: Timestamp| {
        let before = samples.iter().rev().find(|sample| sample.at <= at);
        before.or(samples.first()).copied().unwrap_or_default()
    };
    let share = |from: u64, to: u64| (to - from) as f64 / agents.max(1) as f64;
    phases
        .iter()
        .map(|(phase, from, to)| {
            let (begin, end) = (until(*from), until(*to));
            Spent {
                phase,
                seconds: to.duration_since(*from).as_secs_f64(),
                requests: share(begin.requests, end.requests),
                bytes: share(begin.bytes, end.bytes),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_has_what_was_counted_between_its_ends_by_agent() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let sample = |second, requests, bytes| Sample { at: at(second), requests, bytes };
        let samples = [sample(0, 0, 0), sample(10, 12, 4_000), sample(20, 16, 10_000)];
        let phases = [("start", at(0), at(11)), ("steady", at(11), at(25))];
        let found = spent(&samples, 2, &phases);
        assert_eq!((found[0].requests, found[0].bytes), (6.0, 2_000.0));
        assert_eq!((found[1].requests, found[1].bytes, found[1].seconds), (2.0, 3_000.0, 14.0));
    }
}
