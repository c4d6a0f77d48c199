//! The registry, which also knows the families that have no series yet.

use std::sync::{Mutex, PoisonError};

#[cfg(target_os = "linux")]
use prometheus::process_collector::ProcessCollector;
use prometheus::{Encoder as _, TextEncoder, core::Collector};

/// What stands before each name but those of the process.
const PREFIX: &str = "rollrace";

/// A family as it can be exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, with the prefix.
    pub name: String,
    /// Its type as the text format names it: counter, gauge or histogram.
    pub kind: String,
    /// Its labels.
    pub labels: Vec<String>,
}

/// The agent's metrics, and apart from them those that every process has, which keep the names that
/// they have everywhere.
#[derive(Debug)]
pub(super) struct Registry {
    own: prometheus::Registry,
    process: prometheus::Registry,
    families: Mutex<Vec<Family>>,
}

impl Registry {
    /// One with the process's own metrics.
    pub(super) fn new() -> Self {
        let own = prometheus::Registry::new_custom(Some(PREFIX.to_owned()), None)
            .expect("a constant prefix is a valid name");
        let process = prometheus::Registry::new();
        let registry = Self { own, process, families: Mutex::new(Vec::new()) };
        #[cfg(target_os = "linux")]
        {
            let collector = ProcessCollector::for_self();
            registry.note(&collector, "");
            registry.process.register(Box::new(collector)).expect("names are distinct");
        }
        registry
    }

    /// Adds a family as it was made, and hands it out.
    ///
    /// # Panics
    /// If its name is invalid or taken: names are constants.
    pub(super) fn add<F>(&self, made: Result<F, prometheus::Error>) -> F
    where
        F: Collector + Clone + 'static,
    {
        let family = made.expect("constant names are valid");
        self.note(&family, "rollrace_");
        self.own.register(Box::new(family.clone())).expect("names are distinct");
        family
    }

    fn note(&self, collector: &dyn Collector, prefix: &str) {
        let kinds = collector.collect();
        let mut families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        for description in collector.desc() {
            let kind = kinds.iter().find(|family| family.name() == description.fq_name);
            families.push(Family {
                name: format!("{prefix}{}", description.fq_name),
                kind: kind
                    .map(|family| format!("{:?}", family.get_field_type()).to_lowercase())
                    .unwrap_or_default(),
                labels: description.variable_labels.clone(),
            });
        }
    }

    /// Every family.
    pub(super) fn families(&self) -> Vec<Family> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The text format.
    ///
    /// # Errors
    /// If a family cannot be encoded.
    pub(super) fn encode(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::new();
        for registry in [&self.own, &self.process] {
            TextEncoder::new().encode(&registry.gather(), &mut text)?;
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use crate::metrics::Metrics;

    #[test]
    fn a_family_without_a_series_is_known_with_its_type_and_labels() {
        let families = Metrics::new().families();
        let find = |name: &str| families.iter().find(|family| family.name == name).cloned();
        let probes = find("rollrace_probe_attached").expect("it is registered");
        assert_eq!((probes.kind.as_str(), probes.labels), ("gauge", vec!["probe".to_owned()]));
        let attempts = find("rollrace_connection_attempts_total").expect("it is registered");
        assert_eq!(attempts.kind, "counter");
        let convergence = find("rollrace_convergence_seconds").expect("it is registered");
        assert_eq!((convergence.kind.as_str(), convergence.labels.len()), ("histogram", 0));
        assert!(find("process_cpu_seconds_total").is_some());
    }

    #[test]
    fn what_the_process_uses_is_on_metrics_under_the_usual_names() {
        let text =
            String::from_utf8(Metrics::new().scrape().encode().expect("text")).expect("UTF-8");
        assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
    }
}
