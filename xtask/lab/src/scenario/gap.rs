//! An agent goes, and another takes its place: it cannot know what fell into the gap, and everything
//! else must be exact. `agent-restarted` kills it in the middle of a rollout, and nothing is kept;
//! `agent-upgraded` stops it when the rollout is complete, and its history must tell the next one of
//! everything, so that the rollout's tail is still the rollout's.

use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::acts::API;
use super::stage::{Action, Stage};
use crate::agent::{Agent, AgentReport, report};
use crate::compare::{Comparison, Difference, Reported, Truth, subtract};
use crate::net::Namespace;

/// The agent is killed when so many pods of the new version are ready.
const REPLACED: usize = 2;

/// How much earlier the last history may have been whole: an attempt was in flight.
const GRACE: jiff::SignedDuration = jiff::SignedDuration::from_secs(15);

/// All of them.
const PODS: usize = 3;

/// How an agent goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// SIGKILL in the middle of the rollout; it keeps no history.
    Killed,
    /// SIGTERM when the rollout is complete; it keeps one.
    Upgraded,
}

/// The time in which a node had no agent, and what the killed one had said.
#[derive(Debug, Clone)]
pub struct Gap {
    /// The node.
    pub node: String,
    /// The agent was asked for the last time.
    asked: Timestamp,
    /// It was killed just after this.
    killed: Timestamp,
    /// The next one had said by then that it was ready.
    pub until: Timestamp,
    /// What the killed one had decided.
    pub decided: Vec<report::Failure>,
    /// The rollouts that it knew.
    pub rollouts: Vec<report::Rollout>,
    /// What it had not decided.
    undecided: u64,
    /// How it went.
    how: Restart,
}

/// What the gap excuses.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Excused {
    /// How long the gap was, in milliseconds.
    pub gap_ms: i64,
    /// Failures begun before the gap that the killed agent had not decided yet.
    pub undecided: u64,
    /// Failures begun in the gap.
    pub unseen: u64,
    /// Of all these, reported by the next agent, which saw only their later SYNs.
    pub seen_late: u64,
}

/// Waits until the rollout is as far as it should be, ends the agent and starts it anew.
pub async fn restart(
    stage: &Stage<'_>,
    agent: &mut Agent,
    of: &Namespace,
    how: Restart,
) -> Result<Gap> {
    match how {
        Restart::Killed => {
            stage.ready(API, "2", REPLACED).await?;
        }
        Restart::Upgraded => stage.settled(API, "2", PODS).await?,
    }
    let asked = Timestamp::now();
    let status = agent.status().await?;
    let (mut decided, mut rollouts) = (Vec::new(), Vec::new());
    if how == Restart::Killed {
        decided = agent.failures().await?.failures;
        rollouts = agent.rollouts().await?.rollouts;
    }
    let node = agent.node().to_owned();
    stage.note(Action::AgentKilled { node: node.clone() });
    let killed = Timestamp::now();
    match how {
        Restart::Killed => agent.kill_and_start_anew(of).await?,
        Restart::Upgraded => agent.stop_and_start_anew(of).await?,
    }
    agent.ready().await?;
    let until = Timestamp::now();
    stage.note(Action::AgentReady { node: node.clone() });
    let undecided = status.undecided_failures + status.pending_attempts;
    Ok(Gap { node, asked, killed, until, decided, rollouts, undecided, how })
}

impl Gap {
    /// Takes out of the comparison what the gap excuses, and says what it does not.
    pub fn excuse(&self, comparison: &mut Comparison, doubts: &mut Vec<String>) -> Excused {
        let mut excused = Excused {
            gap_ms: self.until.duration_since(self.killed).as_millis().try_into().unwrap_or(0),
            ..Excused::default()
        };
        let mut begun = Vec::new();
        comparison.differences.retain(|difference| match difference {
            Difference::Missed { truth, .. } if self.excuses(truth) => {
                begun.push(truth.as_ref().clone());
                false
            }
            _ => true,
        });
        comparison.differences.retain(|difference| match difference {
            Difference::Extra { reported, .. }
                if begun.iter().any(|t| is_later_syn(t, reported)) =>
            {
                subtract(&mut comparison.extra, &reported.failure.class);
                excused.seen_late += 1;
                false
            }
            _ => true,
        });
        let (asked, killed) = (nanos(self.asked), nanos(self.killed));
        let mut unexplained = 0_u64;
        for truth in &begun {
            subtract(&mut comparison.missed, truth.failure.class.name());
            if truth.failure.connect_start >= killed {
                excused.unseen += 1;
            } else {
                excused.undecided += 1;
                unexplained += u64::from(truth.failure.end < asked);
            }
        }
        if unexplained > self.undecided {
            doubts.push(format!(
                "{unexplained} failures that ended before the kill are missing, the killed agent \
                 had {} undecided",
                self.undecided
            ));
        }
        excused
    }

    /// Begun before the next agent was ready.
    fn excuses(&self, truth: &Truth) -> bool {
        truth.node == self.node && truth.failure.connect_start < nanos(self.until)
    }

    /// Whether a gap that an agent tells is this one.
    fn is_told_by(&self, gap: &Value) -> bool {
        let at = |name: &str| gap[name].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        gap["reason"] == "stopped"
            && at("from").is_some_and(|from| from <= self.until && from >= self.killed - GRACE)
            && at("until").is_some_and(|until| until >= self.killed && until <= self.until + GRACE)
    }

    /// What the agents should have said of the gap, and did not.
    pub fn untold(&self, agents: &[AgentReport], out: &Path) -> Result<Vec<String>> {
        let mut untold = Vec::new();
        for agent in agents {
            let was_killed = agent.node == self.node;
            let since = agent.status.coverage.since;
            let anew = since.is_some_and(|since| since >= self.killed && since <= self.until);
            if anew != (was_killed && self.how == Restart::Killed) {
                untold.push(format!("{}: covers since {since:?}", agent.node));
            }
            let told = agent.status.coverage.gaps.iter().any(|gap| self.is_told_by(gap));
            if told != (was_killed && self.how == Restart::Upgraded) {
                let gaps = &agent.status.coverage.gaps;
                untold.push(format!("{}: the gaps are {gaps:?}", agent.node));
            }
            for rollout in &agent.rollouts.rollouts {
                let told = (rollout.covered.partial, rollout.lower_bound);
                // A busy machine makes the kernel skip program runs: that is told as well.
                let is_partial = was_killed || told.0 && !agent.status.coverage.gaps.is_empty();
                if told != (is_partial, is_partial) {
                    untold.push(format!(
                        "{}: rollout {} is partly covered, a lower bound: {told:?}",
                        agent.node, rollout.id
                    ));
                }
            }
            let path = out.join(format!("agent-{}.metrics.txt", agent.node));
            let metrics = std::fs::read_to_string(&path)
                .with_context(|| format!("read {}", path.display()))?;
            let value = metrics
                .lines()
                .find_map(|line| line.strip_prefix("rollrace_coverage_since_timestamp_seconds "));
            let value: f64 = value.and_then(|value| value.parse().ok()).unwrap_or(0.0);
            let told = since.map_or(0.0, |since| since.as_duration().as_secs_f64());
            if (value - told).abs() > 1.0 {
                untold.push(format!("{}: the metric says it covers since {value}", agent.node));
            }
        }
        let later = agents.iter().filter(|agent| agent.node == self.node);
        let blamed = later.flat_map(|agent| &agent.failures.failures).any(|failure| {
            failure.first_syn >= self.until && failure.cause.as_deref() == Some("rollout")
        });
        if !blamed {
            untold.push("nothing after the gap was blamed on the rollout".to_owned());
        }
        Ok(untold)
    }
}

/// Whether a report is about a later SYN of a connection.
fn is_later_syn(truth: &Truth, reported: &Reported) -> bool {
    let syn = nanos(reported.failure.first_syn);
    truth.node == reported.node
        && truth.failure.local == reported.failure.client.socket()
        && (truth.failure.connect_start..=truth.failure.end).contains(&syn)
}

fn nanos(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::failure::{ClientClass, Failure, Phase};
    use crate::compare::{Judge, compare};

    /// Milliseconds after the kill.
    fn ms(after: i64) -> i64 {
        1_700_000_000_000_000_000 + after * 1_000_000
    }

    fn at(after: i64) -> Timestamp {
        Timestamp::from_nanosecond(ms(after).into()).expect("a time")
    }

    /// A request of the port that began then and timed out 3 s later.
    fn failed(node: &str, port: u16, start: i64) -> Truth {
        Truth {
            client: "client".to_owned(),
            node: node.to_owned(),
            failure: Failure {
                start: ms(start),
                connect_start: ms(start),
                end: ms(start + 3_000),
                phase: Phase::Connect,
                class: ClientClass::Timeout,
                error: String::new(),
                errno: None,
                local: format!("10.244.1.9:{port}").parse().expect("an address"),
                reused: false,
                pod: None,
            },
        }
    }

    fn reported(node: &str, port: u16, first_syn: i64) -> Reported {
        let failure = serde_json::json!({
            "class": "timeout", "isn": port, "first_syn": at(first_syn),
            "client": {"address": "10.244.1.9", "port": port},
        });
        let failure = serde_json::from_value(failure).expect("a failure");
        Reported { node: node.to_owned(), failure }
    }

    /// Blames nobody for a wrong blame.
    struct Content;

    impl Judge for Content {
        fn objections(&self, _: &Truth, _: &Reported) -> Vec<String> {
            Vec::new()
        }
    }

    fn gap(undecided: u64) -> Gap {
        let (decided, rollouts) = (Vec::new(), Vec::new());
        let (asked, killed, until) = (at(-10), at(0), at(2_000));
        let (node, how) = ("n1".to_owned(), Restart::Killed);
        Gap { node, asked, killed, until, decided, rollouts, undecided, how }
    }

    #[test]
    fn only_what_fell_into_the_gap_of_its_node_is_excused() {
        let truth = [
            failed("n1", 1, 500),
            failed("n1", 2, 2_500),
            failed("n2", 3, 500),
            failed("n1", 4, -1_000),
        ];
        let mut comparison = compare(&truth, &[], &Content);
        let mut doubts = Vec::new();
        let excused = gap(0).excuse(&mut comparison, &mut doubts);
        assert_eq!((excused.undecided, excused.unseen, excused.seen_late), (1, 1, 0));
        assert_eq!(comparison.missed["timeout"], 2, "after the gap, and on the other node");
        assert!(!comparison.agrees() && doubts.is_empty());
    }

    #[test]
    fn a_report_of_a_later_syn_is_excused_and_one_of_nothing_is_an_invention() {
        let truth = [failed("n1", 1, 500)];
        let reports = [reported("n1", 1, 1_500), reported("n1", 2, 1_500)];
        let mut comparison = compare(&truth, &reports, &Content);
        let excused = gap(0).excuse(&mut comparison, &mut Vec::new());
        assert_eq!((excused.unseen, excused.seen_late), (1, 1));
        assert_eq!(comparison.extra["timeout"], 1);
        assert!(comparison.missed.is_empty() && !comparison.agrees());
    }

    #[test]
    fn what_had_ended_before_must_have_been_undecided_when_the_agent_was_killed() {
        let truth = [failed("n1", 1, -9_000), failed("n1", 2, -8_000)];
        for (undecided, doubtful) in [(1, true), (2, false)] {
            let mut comparison = compare(&truth, &[], &Content);
            let mut doubts = Vec::new();
            gap(undecided).excuse(&mut comparison, &mut doubts);
            assert_eq!(!doubts.is_empty(), doubtful, "{doubts:?}");
        }
    }
}
