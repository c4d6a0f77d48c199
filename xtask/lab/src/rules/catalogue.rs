//! The applications, each wrong in its own way, and which of them each rule must be found in.

use serde_json::{Value, json};

use crate::run::cluster::NAMESPACE;
use crate::setup::Setup;

/// An application of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum App {
    /// No readiness probe, exits at SIGTERM.
    Naive,
    /// A readiness probe that always succeeds.
    Early,
    /// A readiness probe, exits at SIGTERM; later one of its pods is deleted by hand.
    Plain,
    /// preStop is an exec that sleeps less than the proxies take.
    Short,
    /// preStop sleeps longer than the grace period.
    OverGrace,
    /// It drains for longer than the grace period.
    CutShort,
    /// PID 1 ignores SIGTERM.
    Deaf,
    /// Everything as it should be.
    Kept,
    /// Strategy Recreate.
    Recreate,
    /// Its Service publishes pods that are not ready.
    Published,
    /// As it should be, but later one pod refuses its clients.
    Bad,
    /// As it should be, but rolls out while one node's proxy is slow; then that node's conntrack table is
    /// crowded.
    Slow,
}

/// A rule, what it is found in, and what it is not found in, though that comes near.
pub type RuleCell = (&'static str, App, App);

/// Every rule that a lab can show.
pub const CELLS: [RuleCell; 17] = [
    ("no_readiness", App::Naive, App::Early),
    ("ready_too_early", App::Early, App::Kept),
    ("no_prestop", App::Plain, App::Kept),
    ("short_prestop", App::Short, App::Kept),
    ("prestop_over_grace", App::OverGrace, App::Short),
    ("grace_truncates", App::CutShort, App::Deaf),
    ("ignores_sigterm", App::Deaf, App::CutShort),
    ("keepalive_cut", App::Plain, App::Kept),
    ("stale_tail", App::Plain, App::Kept),
    ("slow_node", App::Slow, App::Kept),
    ("bad_replica", App::Bad, App::Plain),
    ("other_cause", App::Plain, App::Kept),
    ("outage_by_design", App::Recreate, App::Plain),
    ("published_not_ready", App::Published, App::Kept),
    ("nothing_wrong", App::Kept, App::Plain),
    ("snat_ports", App::Slow, App::Kept),
    ("conntrack_full", App::Slow, App::Kept),
];

/// Rules that are tested on made-up figures only (`agent/src/advise/tests.rs`), and why.
#[cfg(test)]
const MADE_UP: [(&str, &str); 1] = [(
    "unexplained",
    "whatever the lab breaks some rule explains: else that is a bug of the rules",
)];

impl App {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Naive,
        Self::Early,
        Self::Plain,
        Self::Short,
        Self::OverGrace,
        Self::CutShort,
        Self::Deaf,
        Self::Kept,
        Self::Recreate,
        Self::Published,
        Self::Bad,
        Self::Slow,
    ];

    /// The name of its Deployment and Service.
    pub fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Early => "early",
            Self::Plain => "plain",
            Self::Short => "short",
            Self::OverGrace => "over-grace",
            Self::CutShort => "cut-short",
            Self::Deaf => "deaf",
            Self::Kept => "kept",
            Self::Recreate => "recreate",
            Self::Published => "published",
            Self::Bad => "bad",
            Self::Slow => "slow",
        }
    }

    /// How many pods it has.
    pub fn replicas(self) -> i32 {
        match self {
            // A bad one needs siblings that answer.
            Self::Plain | Self::Bad => 3,
            _ => 2,
        }
    }

    /// Whether some of its clients keep their connections.
    pub fn is_kept_alive(self) -> bool {
        matches!(self, Self::Plain | Self::Kept)
    }

    fn setup(self) -> Setup {
        match self {
            Self::Naive => Setup::Naive,
            Self::Plain | Self::OverGrace | Self::Recreate => Setup::Readiness,
            Self::Short | Self::CutShort => Setup::Drain,
            Self::Deaf => Setup::Ignore,
            Self::Early | Self::Kept | Self::Published | Self::Bad | Self::Slow => {
                Setup::PrestopDrain
            }
        }
    }

    /// Its Deployment.
    pub fn deployment(self) -> Value {
        let mut object = self.setup().deployment(NAMESPACE, self.name(), self.replicas());
        let spec = &mut object["spec"]["template"]["spec"];
        let container = &mut spec["containers"][0];
        match self {
            Self::Early => {
                container["readinessProbe"] = json!({"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 10});
            }
            Self::Short => {
                container["lifecycle"] = json!({"preStop": {"exec": {"command": ["sleep", "1"]}}});
            }
            Self::OverGrace => {
                container["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 6}}});
                spec["terminationGracePeriodSeconds"] = json!(5);
            }
            Self::CutShort => {
                if let Some(command) = container["command"].as_array_mut() {
                    command.extend([json!("--exit-after"), json!("10000")]);
                }
                spec["terminationGracePeriodSeconds"] = json!(5);
            }
            Self::Deaf => spec["terminationGracePeriodSeconds"] = json!(5),
            Self::Recreate => object["spec"]["strategy"] = json!({"type": "Recreate"}),
            _ => {}
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rollrace::advise::Rule;

    use super::*;

    #[test]
    fn each_rule_has_a_cell_that_triggers_it_and_one_that_must_not_or_a_reason() {
        let mut known = BTreeSet::new();
        for (rule, triggers, silent) in CELLS {
            assert!(known.insert(rule), "{rule} is there twice");
            assert_ne!(triggers, silent, "{rule}");
        }
        for (rule, why) in MADE_UP {
            assert!(known.insert(rule) && !why.is_empty(), "{rule} is there twice");
        }
        let all: BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
        assert_eq!(known, all);
    }

    #[test]
    fn no_application_is_there_for_nothing() {
        for app in App::ALL {
            assert!(CELLS.iter().any(|(_, triggers, _)| *triggers == app), "{}", app.name());
        }
    }
}
