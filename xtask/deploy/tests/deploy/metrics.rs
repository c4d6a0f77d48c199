//! Which metrics there are: those in the agent's registry, those that rules make, and those that the
//! design promises and others of this repository are about to bring.

use std::collections::{BTreeMap, BTreeSet};

use rollrace::metrics::Metrics;
use rollrace_deploy::{query::Named, rules::Rules};

/// Promised by the design, not in the registry yet: name, type, labels. A name that has become real
/// must leave this list.
const PROMISED: [(&str, &str, &[&str]); 0] = [];

/// What the `PodMonitor` puts on every series, and Prometheus itself.
const TARGET: [&str; 7] = ["cluster", "job", "instance", "namespace", "pod", "container", "node"];

/// Metrics by name, with their labels; those that Prometheus makes for each target included.
pub fn known() -> BTreeMap<String, BTreeSet<String>> {
    let mut known = BTreeMap::new();
    let mut add = |name: String, kind: &str, labels: Vec<String>| {
        let mut labels: BTreeSet<String> = labels.into_iter().collect();
        labels.extend(TARGET.map(str::to_owned));
        if kind == "histogram" {
            for end in ["_sum", "_count"] {
                known.insert(format!("{name}{end}"), labels.clone());
            }
            labels.insert("le".to_owned());
            known.insert(format!("{name}_bucket"), labels);
        } else {
            known.insert(name, labels);
        }
    };
    for family in Metrics::new().families() {
        add(family.name, &family.kind, family.labels);
    }
    for (name, kind, labels) in PROMISED {
        add(name.to_owned(), kind, labels.iter().map(|&label| label.to_owned()).collect());
    }
    add("up".to_owned(), "gauge", Vec::new());
    let rules = Rules::shipped().unwrap();
    for rule in rules.all() {
        if let Some(record) = &rule.record {
            let by = Named::of(&rule.expr).unwrap().grouped;
            known.insert(record.clone(), by);
        }
    }
    known
}

/// Fails if a query names a metric or label that there is not.
pub fn check(place: &str, query: &str) {
    let known = known();
    let named = Named::of(query).unwrap_or_else(|error| panic!("{place}: {error}"));
    let mut labels = BTreeSet::new();
    for selected in &named.selected {
        let Some(own) = known.get(&selected.metric) else {
            panic!("{place}: there is no metric {:?}", selected.metric)
        };
        for label in &selected.labels {
            assert!(own.contains(label), "{place}: {} has no label {label}", selected.metric);
        }
        labels.extend(own.clone());
    }
    for label in &named.grouped {
        assert!(labels.contains(label), "{place}: nothing in it has a label {label}");
    }
}

#[test]
fn a_promise_that_has_become_real_is_no_promise_any_more() {
    let real: BTreeSet<String> =
        Metrics::new().families().into_iter().map(|family| family.name).collect();
    for (name, _, _) in PROMISED {
        assert!(!real.contains(name), "{name} is in the registry: take it off the list");
    }
}

#[test]
fn no_label_is_a_pods_name_address_or_identity() {
    for family in Metrics::new().families() {
        for label in &family.labels {
            let forbidden = ["pod", "ip", "address", "uid", "hash", "client", "instance", "node"];
            assert!(!forbidden.contains(&label.as_str()), "{} has {label}", family.name);
        }
    }
}

#[test]
fn a_metric_or_label_that_there_is_not_is_found() {
    for wrong in [
        "rollrace_conection_failures_total",
        "rollrace_probe_attached{probes=\"x\"}",
        "sum by (nod) (rollrace_probe_attached)",
    ] {
        let found = std::panic::catch_unwind(|| check("a test", wrong));
        assert!(found.is_err(), "{wrong} was taken");
    }
}
