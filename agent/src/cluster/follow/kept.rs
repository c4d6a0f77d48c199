//! What a list is compared with: an object that it lacks was deleted.

use std::{collections::BTreeMap, sync::Arc};

/// The last content of each object by UID, and which of them the list under way has.
pub(super) struct Kept<F> {
    pub(super) last: BTreeMap<Arc<str>, Arc<F>>,
    pub(super) listed: Vec<Arc<str>>,
}

impl<F> Kept<F> {
    pub(super) fn new() -> Self {
        Self { last: BTreeMap::new(), listed: Vec::new() }
    }

    /// What the list lacks.
    pub(super) fn lost(&mut self) -> Vec<Arc<F>> {
        let listed = std::mem::take(&mut self.listed);
        let lost: Vec<_> = self.last.keys().filter(|uid| !listed.contains(uid)).cloned().collect();
        lost.into_iter().filter_map(|uid| self.last.remove(&uid)).collect()
    }

    /// Forgets it.
    pub(super) fn gone(&mut self, uid: &Arc<str>) -> Option<Arc<F>> {
        self.listed.retain(|listed| listed != uid);
        self.last.remove(uid)
    }
}
