//! The clients' counts against the agent's.

use std::fmt;

use serde::Serialize;

use super::{
    load::Truth,
    told::{Counted, Told},
};

/// A run's result.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// What the clients saw.
    pub truth: Truth,
    /// What the agent says.
    pub told: Told,
    /// New connections a second, on average.
    pub rate: u64,
    /// The agent's share of one processor.
    pub agent_cpu: f64,
    /// Sizes were made tiny on purpose.
    pub tiny: bool,
    /// What is not as it should be; empty if all is well.
    pub wrong: Vec<String>,
}

impl Verdict {
    /// Compares.
    pub fn new(truth: Truth, told: Told, cpu_seconds: f64, tiny: bool, at_least: u32) -> Self {
        let rate = truth.attempts * 1_000 / millis(truth.seconds).max(1);
        let mut wrong = Vec::new();
        if tiny {
            losses_told(&truth, &told, &mut wrong);
        } else {
            nothing_lost(&truth, &told, &mut wrong);
        }
        if rate < u64::from(at_least) {
            wrong.push(format!("{rate} connections a second, {at_least} are wanted"));
        }
        Self { rate, agent_cpu: cpu_seconds / truth.seconds, truth, told, tiny, wrong }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few minutes at most"
)]
fn millis(seconds: f64) -> u64 {
    (seconds * 1_000.0) as u64
}

/// Failures of these classes.
fn failures(told: &Told, classes: &[&str]) -> u64 {
    classes.iter().filter_map(|class| told.failures.get(*class)).sum()
}

/// Every connection is accounted for.
fn nothing_lost(truth: &Truth, told: &Told, wrong: &mut Vec<String>) {
    let mut same = |what: &str, clients: u64, agent: u64| {
        if clients != agent {
            wrong.push(format!("{what}: the clients {clients}, the agent {agent}"));
        }
    };
    let Counted { attempts, answered, refused } = told.counted;
    same("attempts, kernel counters", truth.attempts, attempts);
    same("answered, kernel counters", truth.answered, answered);
    same("refused, kernel counters", truth.refused, refused);
    same("attempts, metrics", truth.attempts, told.attempts);
    same("refused, failures", truth.refused, failures(told, &["refused"]));
    same("timed out, failures", truth.timed_out, failures(told, &["timeout", "stale_nat"]));
    same("failures of rollouts", truth.refused + truth.timed_out, told.of_rollouts);
    for (reason, count) in told.losses.iter().filter(|(_, count)| **count > 0) {
        wrong.push(format!("{count} lost: {reason}"));
    }
    if told.lower_bound {
        wrong.push("the status says \"lower bound\"".to_owned());
    }
}

/// Losses are counted, cover what is missing, and every report says so.
fn losses_told(truth: &Truth, told: &Told, wrong: &mut Vec<String>) {
    for reason in ["ring_full", "attempts_full"] {
        if told.losses.get(reason).is_none_or(|count| *count == 0) {
            wrong.push(format!("nothing was lost to {reason}: the sizes were not tiny enough"));
        }
    }
    let missing = (truth.refused + truth.timed_out).saturating_sub(told.failures.values().sum());
    let lost: u64 = told.losses.values().sum();
    if missing > lost {
        wrong.push(format!("{missing} failures are missing, {lost} losses are told"));
    }
    if truth.attempts != told.counted.attempts {
        wrong.push(format!(
            "attempts: the clients {}, the counters, which need no room, {}",
            truth.attempts, told.counted.attempts
        ));
    }
    if !told.lower_bound {
        wrong.push("the status does not say \"lower bound\"".to_owned());
    }
    if told.gaps == 0 {
        wrong.push("the status lists no gap".to_owned());
    }
    if told.rollouts_lower_bound.is_empty() {
        wrong.push("no rollout was reported".to_owned());
    }
    if told.rollouts_lower_bound.contains(&false) {
        wrong.push("a rollout does not say \"lower bound\"".to_owned());
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { truth, told, rate, agent_cpu, wrong, .. } = self;
        let worst = truth.by_second.values().min().copied().unwrap_or(0);
        let best = truth.by_second.values().max().copied().unwrap_or(0);
        writeln!(
            out,
            "{rate} new connections a second for {:.1} s ({worst} to {best} in a second)",
            truth.seconds
        )?;
        writeln!(
            out,
            "clients: {} tried, {} answered, {} refused, {} timed out",
            truth.attempts, truth.answered, truth.refused, truth.timed_out
        )?;
        let Counted { attempts, answered, refused } = told.counted;
        writeln!(out, "kernel:  {attempts} tried, {answered} answered, {refused} refused")?;
        writeln!(
            out,
            "agent:   {} tried, failures {:?}, {} of them in rollouts; {:.1} % of a core, peak {:.0} MiB",
            told.attempts,
            told.failures,
            told.of_rollouts,
            agent_cpu * 100.0,
            told.peak_mib
        )?;
        let lost: Vec<_> = told.losses.iter().filter(|(_, count)| **count > 0).collect();
        writeln!(
            out,
            "lost:    {lost:?}; lower bound: status {}, rollouts {:?}",
            told.lower_bound, told.rollouts_lower_bound
        )?;
        if wrong.is_empty() {
            return writeln!(out, "As it should be.");
        }
        wrong.iter().try_for_each(|line| writeln!(out, "wrong: {line}"))
    }
}
