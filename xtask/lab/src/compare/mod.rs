//! The clients' truth against the agents' reports, connection by connection. Pure.

pub mod attribution;
pub mod convergence;
mod kind;
mod matching;
#[cfg(test)]
mod tests;
pub mod timeliness;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::agent::report;
use crate::app::failure::{ClientClass, Failure, Phase};
use attribution::Expectation;
pub use kind::is_compared;

/// A failed request of a client.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Truth {
    /// The client's name.
    pub client: String,
    /// The node it runs on.
    pub node: String,
    /// Its own record.
    #[serde(flatten)]
    pub failure: Failure,
}

impl Truth {
    /// When it began to fail: with the connection, or with the request where that had been answered.
    pub fn failing_since(&self) -> i64 {
        if self.failure.class.is_of_answered() {
            self.failure.start
        } else {
            self.failure.connect_start
        }
    }
}

/// A failure that an agent reported.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reported {
    /// The agent's node.
    pub node: String,
    /// Its own words.
    #[serde(flatten)]
    pub failure: report::Failure,
}

/// Something that is not as it should be, with what a person needs to find out why.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "difference", rename_all = "snake_case")]
pub enum Difference {
    /// A client's failure that no agent reported.
    Missed {
        /// The client's record.
        truth: Box<Truth>,
        /// Reports of the same client port within some seconds, of whatever class.
        near: Vec<Reported>,
    },
    /// A report without a client's failure.
    Extra {
        /// The report.
        reported: Box<Reported>,
        /// Failures of the same client port within some seconds.
        near: Vec<Truth>,
    },
    /// A failure that was found, but blamed on something else.
    Misattributed {
        /// The client's record.
        truth: Box<Truth>,
        /// The report.
        reported: Box<Reported>,
        /// What is wrong with it.
        why: Vec<String>,
    },
    /// A connection that was reported more than once.
    Double {
        /// The first report.
        first: Box<Reported>,
        /// Another one.
        again: Box<Reported>,
    },
}

/// The outcome, in numbers and in full.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Comparison {
    /// The clients' failures of the compared classes.
    pub truth: BTreeMap<String, u64>,
    /// The agents' failures of the compared classes, doubles left out.
    pub agent: BTreeMap<String, u64>,
    /// Client failures that no agent reported, by the client's class.
    pub missed: BTreeMap<String, u64>,
    /// Reports without a client failure, by the agent's class.
    pub extra: BTreeMap<String, u64>,
    /// Failures blamed on something else.
    pub misattributed: u64,
    /// Connections reported more than once.
    pub doubles: u64,
    /// Failures of classes that are not compared: `client:CLASS` and `agent:CLASS`.
    pub not_compared: BTreeMap<String, u64>,
    /// Each failure that both sides know: the client's record and the report.
    #[serde(skip)]
    pub matched: Vec<(Truth, Reported)>,
    /// When each of the clients' failures of the compared classes began.
    #[serde(skip)]
    pub begun: Vec<i64>,
    /// Each difference, in full.
    #[serde(skip)]
    pub differences: Vec<Difference>,
}

impl Comparison {
    /// Both sides say the same, and blame the same.
    pub fn agrees(&self) -> bool {
        self.differences.is_empty()
    }

    /// Reports without a client failure.
    pub fn extra_reports(&self) -> impl Iterator<Item = &Reported> {
        self.differences.iter().filter_map(|difference| match difference {
            Difference::Extra { reported, .. } => Some(&**reported),
            _ => None,
        })
    }
}

/// Knows what each failure must be blamed on.
pub trait Judge {
    /// What is wrong with a report's attribution; nothing when it is right.
    fn objections(&self, truth: &Truth, reported: &Reported) -> Vec<String>;
}

impl Judge for Expectation {
    fn objections(&self, _: &Truth, reported: &Reported) -> Vec<String> {
        Self::objections(self, &reported.failure, &reported.node)
    }
}

/// Compares the two sets.
pub fn compare(truth: &[Truth], reported: &[Reported], expected: &impl Judge) -> Comparison {
    let mut outcome = Comparison::default();
    let (reported, doubles) = matching::without_doubles(reported);
    outcome.doubles = count(doubles.len());
    outcome.differences.extend(doubles);

    let mut compared_truth = Vec::new();
    for record in truth {
        let class = record.failure.class;
        // A connect that got no port sent no SYN: there is nothing for an agent to see.
        let sent = record.failure.local.port() != 0;
        let was_answered = record.failure.phase == Phase::Request;
        // A RST just after the SYN+ACK is an error of `connect()` to a client that looks later.
        let fits = was_answered == class.is_of_answered() || class == ClientClass::Reset;
        if is_compared(class) && sent && fits {
            add(&mut outcome.truth, class.name());
            outcome.begun.push(record.failing_since());
            compared_truth.push(record);
        } else {
            add(&mut outcome.not_compared, &format!("client:{}", class.name()));
        }
    }
    let mut compared_reports = Vec::new();
    for report in reported {
        if kind::client_kinds(&report.failure.class).iter().any(|class| is_compared(*class)) {
            add(&mut outcome.agent, &report.failure.class);
            compared_reports.push(report);
        } else {
            add(&mut outcome.not_compared, &format!("agent:{}", report.failure.class));
        }
    }

    let matched = matching::pair(&compared_truth, &compared_reports);
    for (truth, reported) in matched.pairs {
        outcome.matched.push((truth.clone(), reported.clone()));
        let why = expected.objections(truth, reported);
        if !why.is_empty() {
            outcome.misattributed += 1;
            outcome.differences.push(Difference::Misattributed {
                truth: Box::new(truth.clone()),
                reported: Box::new(reported.clone()),
                why,
            });
        }
    }
    for record in matched.missed {
        add(&mut outcome.missed, record.failure.class.name());
        let near = compared_reports.iter().filter(|r| matching::is_near(record, r));
        outcome.differences.push(Difference::Missed {
            truth: Box::new(record.clone()),
            near: near.map(|r| (*r).clone()).collect(),
        });
    }
    for report in matched.extra {
        add(&mut outcome.extra, &report.failure.class);
        let near = truth.iter().filter(|t| matching::is_near(t, report));
        outcome.differences.push(Difference::Extra {
            reported: Box::new(report.clone()),
            near: near.cloned().collect(),
        });
    }
    outcome
}

/// One more of a class.
pub fn add(counts: &mut BTreeMap<String, u64>, class: &str) {
    *counts.entry(class.to_owned()).or_default() += 1;
}

/// One less of a class.
pub fn subtract(counts: &mut BTreeMap<String, u64>, class: &str) {
    if let Some(count) = counts.get_mut(class) {
        *count -= 1;
    }
    counts.retain(|_, count| *count > 0);
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
