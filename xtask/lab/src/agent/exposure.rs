//! When a failure became visible to Prometheus: an agent's `/metrics`, looked at again and again.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::net::http_get;

/// Between two looks: fine beside the bar of a second, and cheap.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// An answer takes a few milliseconds; this long means that there is none.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// The counter of failures.
const FAILURES: &str = "rollrace_connection_failures_total{";

/// A look at `/metrics` that showed more failures than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exposure {
    /// Failures in all.
    pub total: u64,
    /// When this answer was there.
    pub at: Timestamp,
    /// When the answer before it was there: the failures became visible after that.
    pub before: Timestamp,
}

/// The looks at one agent's `/metrics`, until they are stopped.
#[derive(Debug)]
pub struct MetricsWatch {
    stop: oneshot::Sender<()>,
    looks: JoinHandle<Result<Vec<Exposure>>>,
}

impl MetricsWatch {
    /// Looks from now on.
    pub fn start(metrics: SocketAddr) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self { stop, looks: tokio::spawn(look(metrics, stopped)) }
    }

    /// Looks a last time, and tells everything that was seen.
    pub async fn stop(self) -> Result<Vec<Exposure>> {
        // A watch that has already failed says why when it is joined.
        let _already_ended = self.stop.send(());
        self.looks.await.context("the watch of /metrics panicked")?
    }
}

async fn look(metrics: SocketAddr, mut stopped: oneshot::Receiver<()>) -> Result<Vec<Exposure>> {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen: Vec<Exposure> = Vec::new();
    let mut before = Timestamp::now();
    loop {
        let last = tokio::select! {
            _ = ticks.tick() => false,
            _ = &mut stopped => true,
        };
        let answer = timeout(ANSWERS_WITHIN, http_get(metrics, "/metrics"))
            .await
            .with_context(|| format!("{metrics} does not answer /metrics"))??;
        ensure!(answer.status == 200, "{metrics} answered /metrics with {}", answer.status);
        let at = Timestamp::now();
        let total = failures(&answer.body)?;
        if total > seen.last().map_or(0, |exposure| exposure.total) {
            seen.push(Exposure { total, at, before });
        }
        before = at;
        if last {
            return Ok(seen);
        }
    }
}

/// The sum of the counter's series.
fn failures(metrics: &str) -> Result<u64> {
    let mut sum = 0;
    for line in metrics.lines().filter(|line| line.starts_with(FAILURES)) {
        let value = line.rsplit(' ').next().unwrap_or_default();
        sum += value.parse::<u64>().with_context(|| format!("read the counter {line}"))?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_of_the_counter_is_summed_and_no_other() {
        let text = "# TYPE rollrace_connection_failures_total counter\n\
                    rollrace_connection_failures_total{class=\"refused\"} 3\n\
                    rollrace_connection_failures_total{class=\"timeout\"} 4\n\
                    rollrace_connection_attempts_total{service=\"api\"} 100\n";
        assert_eq!(failures(text).expect("a sum"), 7);
    }
}
