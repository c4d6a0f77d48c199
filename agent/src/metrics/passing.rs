//! Gauges whose label sets come and go.

use std::collections::BTreeSet;

use prometheus::core::{Atomic, GenericGaugeVec};

/// What is not set between two [`sweep`](Self::sweep)s is removed. A reset would do the same, but a
/// scrape that is being encoded meanwhile would find nothing.
pub(super) struct Passing<P: Atomic> {
    gauges: GenericGaugeVec<P>,
    set: BTreeSet<Vec<String>>,
    shown: BTreeSet<Vec<String>>,
}

impl<P: Atomic> Passing<P> {
    /// Of a family that is registered, and nothing in it yet.
    pub(super) fn new(gauges: GenericGaugeVec<P>) -> Self {
        Self { gauges, set: BTreeSet::new(), shown: BTreeSet::new() }
    }

    /// Sets one, which stays until the sweep after the next.
    pub(super) fn set(&mut self, labels: &[&str], value: P::T) {
        self.gauges.with_label_values(labels).set(value);
        self.set.insert(labels.iter().map(|label| (*label).to_owned()).collect());
    }

    /// Removes what was not set since the last sweep.
    ///
    /// # Panics
    /// Never: only label sets that were set are removed.
    pub(super) fn sweep(&mut self) {
        for gone in self.shown.difference(&self.set) {
            self.gauges.remove_label_values(gone).expect("it was set");
        }
        self.shown = std::mem::take(&mut self.set);
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{IntGaugeVec, Opts, core::Collector as _};

    use super::*;

    #[test]
    fn what_is_not_set_again_is_gone_after_a_sweep_and_the_rest_was_there_all_the_while() {
        let gauges = IntGaugeVec::new(Opts::new("a", "b"), &["who"]).expect("a family");
        let mut passing = Passing::new(gauges.clone());
        let shown = || gauges.collect()[0].get_metric().len();
        passing.set(&["x"], 1);
        passing.set(&["y"], 2);
        passing.sweep();
        assert_eq!(shown(), 2);
        passing.set(&["y"], 3);
        assert_eq!(shown(), 2, "until the sweep");
        passing.sweep();
        assert_eq!((shown(), gauges.with_label_values(&["y"]).get()), (1, 3));
        passing.sweep();
        assert_eq!(shown(), 0);
    }
}
