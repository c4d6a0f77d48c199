//! What came of a setup, and whether it is as it should be. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::explained::Explained;

/// What the clients of one mode suffered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suffered {
    /// Their requests.
    pub requests: u64,
    /// Those that failed, by what the client saw.
    pub failed: BTreeMap<String, u64>,
}

impl Suffered {
    /// How many failed.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }
}

/// By mode.
pub type ByMode = BTreeMap<String, Suffered>;

/// What came of a setup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its name.
    pub setup: String,
    /// The rollout as it was.
    pub before: ByMode,
    /// What `explain` said of it.
    pub explained: Explained,
    /// The rollout of the patched pods; null: nothing was advised.
    pub after: Option<ByMode>,
    /// What `explain` said of that.
    pub explained_after: Option<Explained>,
    /// What makes a figure doubtful: it says nothing about the advice.
    pub doubts: Vec<String>,
    /// What is not as it should be, in words.
    pub objections: Vec<String>,
}

fn failures(of: &ByMode) -> u64 {
    of.values().map(Suffered::failures).sum()
}

impl Outcome {
    /// Notes what is not as it should be.
    pub fn judged(mut self) -> Self {
        let failed = failures(&self.before);
        let advises = self.explained.patch.is_some() || self.explained.needs_drain;
        let finds_fault = self.explained.finds_fault();
        let mut found = self.doubts.clone();
        match &self.after {
            None if advises || finds_fault => {
                found.push("something was found, and nothing could be done about it".to_owned());
            }
            None if failed > 0 => {
                found.push(format!("{failed} requests failed, and nothing was found"));
            }
            None => {}
            Some(_) if !finds_fault => {
                found.push("nothing was found, and something was to be changed".to_owned());
            }
            Some(after) => {
                found.extend(after.iter().filter(|(_, of)| of.failures() > 0).map(|(mode, of)| {
                    format!("after the advice {} {mode} requests failed", of.failures())
                }));
            }
        }
        for (mode, of) in self.before.iter().chain(self.after.iter().flatten()) {
            if of.requests == 0 {
                found.push(format!("no {mode} request was made"));
            }
        }
        self.objections = found;
        self
    }

    /// In a few words.
    pub fn verdict(&self) -> String {
        let before = failures(&self.before);
        match (&self.after, self.objections.is_empty()) {
            (_, false) => format!("NOT as it should be: {}", self.objections.join("; ")),
            (None, true) => "nothing failed, and nothing is to be changed".to_owned(),
            (Some(after), true) => {
                format!("{before} requests failed before the advice, {} after it", failures(after))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explained::Finding;

    fn of(failed: u64) -> ByMode {
        let failed = BTreeMap::from([("refused".to_owned(), failed)]);
        BTreeMap::from([("fresh".to_owned(), Suffered { requests: 9, failed })])
    }

    fn outcome(before: u64, weight: Option<&str>, after: Option<u64>) -> Vec<String> {
        let finding = |weight: &str| Finding {
            rule: "no_prestop".to_owned(),
            weight: weight.to_owned(),
            title: "no preStop".to_owned(),
        };
        let outcome = Outcome {
            setup: "readiness".to_owned(),
            before: of(before),
            explained: Explained {
                findings: weight.into_iter().map(finding).collect(),
                needs_drain: false,
                stale: BTreeMap::new(),
                patch: after.map(|_| "spec: {}".to_owned()),
            },
            after: after.map(of),
            explained_after: None,
            doubts: Vec::new(),
            objections: Vec::new(),
        };
        outcome.judged().objections
    }

    #[test]
    fn advice_that_cures_and_silence_where_nothing_is_wrong_are_right() {
        assert_eq!(outcome(7, Some("fault"), Some(0)), Vec::<String>::new());
        assert_eq!(outcome(0, Some("risk"), Some(0)), Vec::<String>::new());
        assert_eq!(outcome(0, Some("note"), None), Vec::<String>::new());
    }

    #[test]
    fn advice_that_does_not_cure_or_is_not_needed_or_is_missing_is_not() {
        for (before, weight, after) in [
            (7, Some("fault"), Some(1)),
            (7, Some("fault"), None),
            (7, Some("note"), None),
            (0, Some("note"), Some(0)),
        ] {
            assert_eq!(outcome(before, weight, after).len(), 1, "{before} {weight:?} {after:?}");
        }
    }
}
