//! How many pods an owner wanted and had, by version: tells whether it removed a pod itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The most changes kept for an owner.
const MAX_CHANGES: usize = 128;

/// The counts of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) wanted: i32,
    /// As the status said, which lags behind.
    pub(super) had: i32,
}

/// Counts by the version at which they were seen first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, Counts)>", into = "Vec<(u64, Counts)>")]
pub(super) struct Wanted {
    by_version: BTreeMap<u64, Counts>,
}

// A list: JSON's keys are strings, and serde buffers them as such.
impl From<Vec<(u64, Counts)>> for Wanted {
    fn from(by_version: Vec<(u64, Counts)>) -> Self {
        Self { by_version: by_version.into_iter().collect() }
    }
}

impl From<Wanted> for Vec<(u64, Counts)> {
    fn from(wanted: Wanted) -> Self {
        wanted.by_version.into_iter().collect()
    }
}

impl Wanted {
    pub(super) fn observe(&mut self, version: Option<u64>, wanted: i32, had: i32) {
        let Some(version) = version else { return };
        self.by_version.insert(version, Counts { wanted, had });
        if self.by_version.len() > MAX_CHANGES {
            self.thin();
        }
    }

    /// Keeps of a run of equal counts the first; else drops the oldest.
    fn thin(&mut self) {
        let mut last = None;
        self.by_version.retain(|_, counts| last.replace(*counts) != Some(*counts));
        while self.by_version.len() > MAX_CHANGES {
            self.by_version.pop_first();
        }
    }

    /// The counts seen last before a version and first after it. Where they differ, either may have
    /// been in force: a list shows the present only, and hides when a count fell.
    pub(super) fn around(&self, version: u64) -> (Option<Counts>, Option<Counts>) {
        let before = self.by_version.range(..=version).next_back();
        let after = self.by_version.range(version..).next();
        (before.map(|(_, counts)| *counts), after.map(|(_, counts)| *counts))
    }
}

/// Who removed a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remover {
    /// Its owner, which wanted fewer than there were.
    Owner,
    /// Somebody else: its owner wanted as many as there were.
    Other,
    /// Not all is known that it takes to tell.
    Unclear,
}
