//! Who asked for what, how often, and how many bytes were answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What is counted apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageKey {
    /// The caller, or `system:anonymous`.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: &'static str,
    /// Resource, with its subresource: `pods`, `deployments.apps/status`.
    pub resource: String,
}

/// The counters of one key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests, refused ones included.
    pub requests: u64,
    /// Refused requests.
    pub refused: u64,
    /// Requests that the user's role does not cover.
    pub overstepped: u64,
    /// Bytes of the answers' bodies, those of watches as they are sent.
    pub bytes: u64,
}

/// All counters. One key for each user, verb and resource in use, so it stays small.
#[derive(Debug, Clone, Default)]
pub struct UsageTable(Arc<Mutex<BTreeMap<UsageKey, Usage>>>);

impl UsageTable {
    /// Counts something under a key.
    pub fn count(&self, key: &UsageKey, change: impl FnOnce(&mut Usage)) {
        // A poisoned table only means that a counting thread panicked between two additions.
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match table.get_mut(key) {
            Some(usage) => change(usage),
            None => change(table.entry(key.clone()).or_default()),
        }
    }

    /// A copy of all counters.
    pub fn all(&self) -> BTreeMap<UsageKey, Usage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
