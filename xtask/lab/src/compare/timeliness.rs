//! Whether failures are on `/metrics` in time: within a second of the client's own error plus the
//! wait for evidence. Pure.

use jiff::Timestamp;

use super::convergence::{Quantiles, milliseconds, quantiles, round};
use crate::agent::Exposure;

/// A failure is visible within this time of the client's error, the wait for evidence aside.
const BAR_MS: f64 = 1_000.0;

/// A failure that both sides know.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// The client and its error, in words.
    pub what: String,
    /// The how-manieth failure of its agent, from 1.
    pub nth: u64,
    /// When the client had its error.
    pub client_error: Timestamp,
    /// When the agent knew the outcome.
    pub ended: Timestamp,
    /// When the agent had the evidence.
    pub decided: Timestamp,
}

/// How timely the failures were.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timeliness {
    /// From the client's error to the count on `/metrics`, the wait for evidence taken off; up to
    /// the time between two looks too long. Negative when the agent knew before the client.
    pub on_time_ms: Vec<f64>,
    /// From the outcome to the verdict.
    pub evidence_wait_ms: Vec<f64>,
    /// Failures above the bar, in words.
    pub late: Vec<String>,
}

impl Timeliness {
    /// Adds the failures of one agent.
    pub fn add(&mut self, node: &str, known: &[Known], exposures: &[Exposure]) {
        for failure in known {
            let wait = milliseconds(failure.ended, failure.decided).max(0.0);
            self.evidence_wait_ms.push(round(wait));
            let Some(shown) = exposures.iter().find(|exposure| exposure.total >= failure.nth)
            else {
                self.late.push(format!(
                    "never on /metrics of {node}: {} (failure {})",
                    failure.what, failure.nth
                ));
                continue;
            };
            let after = milliseconds(failure.client_error, shown.at) - wait;
            self.on_time_ms.push(round(after));
            // It may have been there just after the look before.
            if after - milliseconds(shown.before, shown.at) > BAR_MS {
                self.late.push(format!(
                    "late on /metrics of {node}: {}, {after:.0} ms after the client's error and {wait:.0} ms of waiting for evidence",
                    failure.what
                ));
            }
        }
    }

    /// Quantiles of being on time, and of the wait.
    pub fn quantiles(&self) -> (Quantiles, Quantiles) {
        (
            quantiles(self.on_time_ms.iter().copied()),
            quantiles(self.evidence_wait_ms.iter().copied()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(1_000_000 + millisecond).expect("a time")
    }

    fn known(nth: u64, client_error: i64, ended: i64, decided: i64) -> Known {
        Known {
            what: format!("failure {nth}"),
            nth,
            client_error: at(client_error),
            ended: at(ended),
            decided: at(decided),
        }
    }

    fn judged(known: &[Known], exposures: &[(u64, i64, i64)]) -> Timeliness {
        let exposures: Vec<Exposure> = exposures
            .iter()
            .map(|(total, before, shown)| Exposure {
                total: *total,
                at: at(*shown),
                before: at(*before),
            })
            .collect();
        let mut found = Timeliness::default();
        found.add("n1", known, &exposures);
        found
    }

    #[test]
    fn the_wait_for_evidence_is_taken_off() {
        let found = judged(&[known(1, 0, 0, 3_000)], &[(1, 3_000, 3_200)]);
        assert_eq!(found.late, Vec::<String>::new());
        assert_eq!((found.on_time_ms, found.evidence_wait_ms), (vec![200.0], vec![3_000.0]));
    }

    #[test]
    fn more_than_a_second_is_late_but_for_the_time_between_two_looks() {
        let decided_at_once = [known(1, 0, 0, 0)];
        assert!(judged(&decided_at_once, &[(1, 950, 1_150)]).late.is_empty());
        assert_eq!(judged(&decided_at_once, &[(1, 1_050, 1_250)]).late.len(), 1);
    }

    #[test]
    fn a_failure_that_never_shows_is_late() {
        let found = judged(&[known(1, 0, 0, 0), known(2, 0, 0, 0)], &[(1, 0, 200)]);
        assert_eq!(found.late.len(), 1);
        assert_eq!(found.on_time_ms.len(), 1);
    }
}
