//! One structured line a failure, rate-limited; what is suppressed is counted and said.

use tracing::info;

use crate::{engine::FailureReport, model::Mono};

/// Lines that may come at once.
const BURST: u64 = 200;
/// Lines a second after that.
const A_SECOND: u64 = 50;
/// How often suppression is said.
const SAY_NANOS: u64 = 10_000_000_000;

/// The limiter.
pub struct FailureLog {
    tokens: u64,
    filled: Mono,
    said: Mono,
    unsaid: u64,
    /// Lines left out since the start.
    pub suppressed: u64,
}

impl FailureLog {
    /// A full bucket.
    pub fn new(now: Mono) -> Self {
        Self { tokens: BURST, filled: now, said: now, unsaid: 0, suppressed: 0 }
    }

    /// Writes a line, or counts it.
    pub fn write(&mut self, failure: &FailureReport, now: Mono) {
        self.fill(now);
        if self.tokens == 0 {
            self.suppressed += 1;
            self.unsaid += 1;
            return;
        }
        self.tokens -= 1;
        let workload = failure.workload.as_ref().map(|it| format!("{}/{}", it.kind, it.name));
        info!(
            class = failure.class.name(),
            cause = failure.cause.name(),
            side = failure.side.map(crate::model::Side::name),
            phase = failure.phase.name(),
            namespace = %failure.namespace,
            service = %failure.service,
            workload,
            revision = failure.revision,
            pod = %failure.pod,
            client = %failure.client,
            original = %failure.original,
            backend = failure.backend.map(tracing::field::display),
            began = %failure.first_syn,
            evidence = failure.evidence.join("; "),
            "connection failed"
        );
    }

    /// Says how many lines were left out, now and then.
    pub fn tick(&mut self, now: Mono) {
        if self.unsaid > 0 && now.since(self.said) >= SAY_NANOS {
            info!(
                suppressed = self.unsaid,
                "failure lines left out of the log; all are in /api/v1/failures and /metrics"
            );
            self.unsaid = 0;
            self.said = now;
        }
    }

    fn fill(&mut self, now: Mono) {
        let earned = now.since(self.filled) * A_SECOND / 1_000_000_000;
        if earned > 0 {
            self.tokens = (self.tokens + earned).min(BURST);
            self.filled = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        engine::TransportAddress,
        model::{Cause, Class, Phase},
    };

    const SECOND: u64 = 1_000_000_000;

    fn failure() -> FailureReport {
        let address = TransportAddress { address: [10, 0, 0, 1].into(), port: 80 };
        let at = Timestamp::UNIX_EPOCH;
        FailureReport {
            class: Class::Refused,
            client_workload: "".into(),
            client: address,
            original: address,
            backend: None,
            isn: 1,
            first_syn: at,
            syns: 1,
            ended: at,
            decided: at,
            namespace: "shop".into(),
            service: "api".into(),
            pod: "".into(),
            workload: None,
            cause: Cause::Unknown,
            side: None,
            phase: Phase::None,
            rollout: None,
            revision: None,
            evidence: Vec::new(),
        }
    }

    #[test]
    fn a_burst_is_written_then_so_many_a_second_and_the_rest_is_counted() {
        let mut log = FailureLog::new(Mono(0));
        let mut write = |at: u64, lines: u64| {
            let before = log.suppressed;
            (0..lines).for_each(|_| log.write(&failure(), Mono(at)));
            lines - (log.suppressed - before)
        };
        assert_eq!(write(0, BURST + 100), BURST);
        assert_eq!(write(SECOND, 1_000), A_SECOND);
        assert_eq!(write(100 * SECOND, 1_000), BURST, "rest earns a burst, and no more");
        assert_eq!(log.suppressed, 100 + 1_000 - A_SECOND + 1_000 - BURST);
    }
}
