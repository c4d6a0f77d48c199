//! What became of the cells: a line each in a file, written as they end.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::compare::convergence::Quantiles;
use crate::run::counts_text;

/// The part of a lab's JSON that the matrix keeps: a run's, or a scenario's, which has less.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Requests of all clients.
    pub requests: u64,
    /// Failed ones.
    pub failed: u64,
    /// Of these, begun over 5 s after the rollout was complete.
    pub after_rollout: u64,
    /// The clients' failures of the compared classes.
    pub truth: BTreeMap<String, u64>,
    /// The agents' failures of the compared classes.
    pub agent: BTreeMap<String, u64>,
    /// Client failures that no agent reported.
    pub missed: BTreeMap<String, u64>,
    /// Reports without a client failure.
    pub extra: BTreeMap<String, u64>,
    /// Failures blamed on something else.
    pub misattributed: u64,
    /// Connections reported more than once.
    pub doubles: u64,
    /// Failures that are not compared.
    pub not_compared: BTreeMap<String, u64>,
    /// Measured convergence.
    pub convergence_ms: Quantiles,
    /// True convergence.
    pub true_convergence_ms: Quantiles,
    /// From the client's error to `/metrics`, the wait for evidence taken off.
    pub on_time_ms: Quantiles,
    /// From the outcome to the verdict.
    pub evidence_wait_ms: Quantiles,
    /// Bars that were missed, in words.
    pub bars_missed: Vec<String>,
    /// What makes the result doubtful, in words.
    pub doubts: Vec<String>,
}

/// What became of a cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The cell's name.
    pub name: String,
    /// Nothing missed, extra, misattributed or double, and every bar met.
    pub exact: bool,
    /// How long it took.
    pub took_seconds: u64,
    /// Its result.
    #[serde(flatten)]
    pub counts: Counts,
    /// Why it has no result.
    pub failure: Option<String>,
    /// Why it was played a second time.
    #[serde(default)]
    pub played_again: Option<String>,
    /// Its directory.
    pub out: String,
}

impl Outcome {
    /// What became of it, in a word.
    pub fn word(&self) -> &'static str {
        match (self.exact, &self.failure) {
            (true, _) => "exact",
            (false, None) => "NOT EXACT",
            (false, Some(_)) => "NO RESULT",
        }
    }

    /// Both sides' counts in words.
    pub fn counts(&self) -> String {
        let Counts { truth, agent, .. } = &self.counts;
        if truth == agent {
            format!("both sides {}", counts_text(truth))
        } else {
            format!("clients {}, agents {}", counts_text(truth), counts_text(agent))
        }
    }

    /// Why it is not exact.
    pub fn why(&self) -> String {
        let counts = &self.counts;
        let mut why: Vec<String> = self.failure.iter().cloned().collect();
        for (what, found) in [("missed", &counts.missed), ("extra", &counts.extra)] {
            if !found.is_empty() {
                why.push(format!("{what} {}", counts_text(found)));
            }
        }
        for (what, n) in [("misattributed", counts.misattributed), ("twice", counts.doubles)] {
            if n > 0 {
                why.push(format!("{what} {n}"));
            }
        }
        why.extend(counts.bars_missed.iter().chain(&counts.doubts).cloned());
        format!("{} (see {})", why.join("; "), self.out)
    }
}

/// The outcomes, in memory and in the file.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    file: File,
    outcomes: BTreeMap<String, Outcome>,
}

impl Record {
    /// Opens the file, and reads what is in it already.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("open {}", path.display()))?;
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("read the outcomes in {}", path.display()))?;
        let mut outcomes = BTreeMap::new();
        // A last line without an end is one that a killed matrix could not finish.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let outcome: Outcome = serde_json::from_str(line)
                .with_context(|| format!("read an outcome in {}: {line}", path.display()))?;
            outcomes.insert(outcome.name.clone(), outcome);
        }
        let mut record = Self { path: path.to_owned(), file, outcomes };
        if !text.is_empty() && !text.ends_with('\n') {
            record.rewrite()?;
        }
        Ok(record)
    }

    /// Writes the file anew, without a broken last line.
    fn rewrite(&mut self) -> Result<()> {
        self.file.set_len(0).with_context(|| format!("shorten {}", self.path.display()))?;
        for outcome in self.outcomes.values() {
            self.write(outcome)?;
        }
        Ok(())
    }

    fn write(&self, outcome: &Outcome) -> Result<()> {
        let line = serde_json::to_string(outcome).context("encode an outcome")?;
        writeln!(&self.file, "{line}").with_context(|| format!("write {}", self.path.display()))
    }

    /// Notes an outcome; it replaces an earlier one of the same cell.
    pub fn add(&mut self, outcome: Outcome) -> Result<()> {
        self.write(&outcome)?;
        self.outcomes.insert(outcome.name.clone(), outcome);
        Ok(())
    }

    /// What became of a cell.
    pub fn outcome(&self, name: &str) -> Option<&Outcome> {
        self.outcomes.get(name)
    }

    /// The cell needs no further run.
    pub fn is_exact(&self, name: &str) -> bool {
        self.outcome(name).is_some_and(|outcome| outcome.exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, exact: bool) -> Outcome {
        Outcome {
            name: name.to_owned(),
            exact,
            took_seconds: 28,
            counts: Counts::default(),
            failure: None,
            played_again: None,
            out: String::new(),
        }
    }

    #[test]
    fn a_killed_matrix_resumes_after_its_last_whole_line() {
        let path = std::env::temp_dir().join(format!("lab-record-{}", std::process::id()));
        let mut record = Record::open(&path).expect("a new file");
        record.add(outcome("a", true)).expect("an outcome");
        record.add(outcome("b", false)).expect("an outcome");
        record.file.write_all(b"{\"name\":\"c\"").expect("half a line");
        drop(record);

        let mut record = Record::open(&path).expect("the file");
        assert!(record.is_exact("a") && !record.is_exact("b") && !record.is_exact("c"));
        record.add(outcome("b", true)).expect("an outcome");
        assert!(Record::open(&path).expect("the file").is_exact("b"));
        std::fs::remove_file(&path).expect("remove the file");
    }
}
