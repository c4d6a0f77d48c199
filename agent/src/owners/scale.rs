//! How many pods an owner wanted, by version: tells whether it removed a pod itself.

use std::collections::BTreeMap;

/// The most changes kept for an owner.
const MAX_CHANGES: usize = 64;

/// Wanted counts by the version at which they were seen first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    by_version: BTreeMap<u64, i32>,
}

impl Wanted {
    pub(super) fn observe(&mut self, version: Option<u64>, wanted: i32) {
        let Some(version) = version else { return };
        self.by_version.insert(version, wanted);
        if self.by_version.len() > MAX_CHANGES {
            self.thin();
        }
    }

    /// Keeps of a run of equal counts the first; else drops the oldest.
    fn thin(&mut self) {
        let mut last = None;
        self.by_version.retain(|_, wanted| last.replace(*wanted) != Some(*wanted));
        while self.by_version.len() > MAX_CHANGES {
            self.by_version.pop_first();
        }
    }

    /// The counts seen last before a version and first after it. Where they differ, either may have
    /// been in force: a list shows the present only, and hides when a count fell.
    pub(super) fn around(&self, version: u64) -> (Option<i32>, Option<i32>) {
        let before = self.by_version.range(..=version).next_back();
        let after = self.by_version.range(version..).next();
        (before.map(|(_, wanted)| *wanted), after.map(|(_, wanted)| *wanted))
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
