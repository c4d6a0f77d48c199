//! Ends of answered connections of which the wire cannot tell whether anything was lost: counted, by the
//! Service that was dialled, and no failures.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use super::State;
use crate::endpoints::Name;

/// Services counted apart; further ones are counted together.
const MAX_SERVICES: usize = 1_000;

/// The name under which those are counted.
const OTHER: &str = "_other";

/// How many there were.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubtful {
    total: u64,
    by_service: BTreeMap<Name, u64>,
}

impl Doubtful {
    /// One more; without a Service it is counted under empty names.
    pub(super) fn count(&mut self, service: Option<&Name>) {
        self.total += 1;
        let empty: Arc<str> = "".into();
        let mut name = service.cloned().unwrap_or_else(|| (empty.clone(), empty.clone()));
        if self.by_service.len() >= MAX_SERVICES && !self.by_service.contains_key(&name) {
            name = (empty, OTHER.into());
        }
        *self.by_service.entry(name).or_insert(0) += 1;
    }
}

/// How many connections of a Service ended so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClosedReport {
    /// The Service's namespace; empty if none was dialled.
    pub namespace: Arc<str>,
    /// The Service; `_other` past the first 1,000.
    pub service: Arc<str>,
    /// How many.
    pub connections: u64,
}

impl State {
    /// Answered connections that leaving endpoints closed, of which the wire cannot tell whether
    /// anything was lost.
    pub fn closed(&self) -> u64 {
        self.doubtful.total
    }

    /// The same by Service.
    pub fn closed_by_service(&self) -> Vec<ClosedReport> {
        let report = |((namespace, service), connections): (&Name, &u64)| ClosedReport {
            namespace: namespace.clone(),
            service: service.clone(),
            connections: *connections,
        };
        self.doubtful.by_service.iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_the_bound_services_are_counted_together() {
        let mut doubtful = Doubtful::default();
        for number in 0..MAX_SERVICES + 5 {
            doubtful.count(Some(&("shop".into(), number.to_string().into())));
        }
        assert_eq!(doubtful.total, 1_005);
        assert_eq!(doubtful.by_service.len(), MAX_SERVICES + 1);
        assert_eq!(doubtful.by_service[&("".into(), OTHER.into())], 5);
    }
}
