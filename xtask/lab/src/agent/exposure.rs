//! When a failure became visible to Prometheus: an agent's `/metrics`, looked at again and again.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;

use super::looks::{Looks, Notes};
use crate::net::HttpAnswer;

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

/// Every look that showed more than the one before it.
#[derive(Debug)]
struct Rises {
    seen: Vec<Exposure>,
    before: Timestamp,
}

impl Notes for Rises {
    fn note(&mut self, answer: &HttpAnswer) -> Result<()> {
        ensure!(answer.status == 200, "/metrics was answered with {}", answer.status);
        let at = Timestamp::now();
        let total = failures(&answer.body)?;
        if total > self.seen.last().map_or(0, |exposure| exposure.total) {
            self.seen.push(Exposure { total, at, before: self.before });
        }
        self.before = at;
        Ok(())
    }
}

/// The looks at one agent's `/metrics`, until they are stopped.
#[derive(Debug)]
pub struct MetricsWatch(Looks<Rises>);

impl MetricsWatch {
    /// Looks from now on.
    pub fn start(metrics: SocketAddr) -> Self {
        let rises = Rises { seen: Vec::new(), before: Timestamp::now() };
        Self(Looks::start(metrics, "/metrics", rises))
    }

    /// Looks a last time, and tells everything that was seen.
    pub async fn stop(self) -> Result<Vec<Exposure>> {
        Ok(self.0.stop().await?.seen)
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
