//! The scenarios: their names, what they are about, and their dials.

use std::fmt::Write;

use clap::ValueEnum;

use super::gap::Restart;
use crate::setup::Setup;

/// A scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Two Deployments roll out 2 s apart
    TwoDeployments,
    /// One Deployment behind two Services rolls out
    TwoServices,
    /// A second rollout begins before the first has ended
    SecondRollout,
    /// A rollout is rolled back in the middle
    Rollback,
    /// The Deployment is scaled down without any rollout
    ScaleDown,
    /// The Deployment is scaled down during a rollout
    ScaleDownDuringRollout,
    /// A pod is deleted by hand without any rollout
    Deleted,
    /// A pod of the old revision is deleted by hand during a rollout
    DeletedDuringRollout,
    /// A pod is evicted
    Eviction,
    /// A node is lost
    NodeLoss,
    /// A container is killed and restarted in place
    Restart,
    /// One bad replica among good ones, without any rollout
    BadBackend,
    /// A Deployment of strategy Recreate rolls out
    Recreate,
    /// New pods are ready before they listen
    NewSide,
    /// An Argo Rollout, of a kind that is unknown here, owns the `ReplicaSets`
    ArgoRollout,
    /// A `StatefulSet` rolls out
    StatefulSet,
    /// A `DaemonSet` rolls out
    DaemonSet,
    /// An agent is killed in the middle of a rollout and started anew
    AgentRestarted,
    /// An agent is replaced when a rollout is complete, and its tail is not over
    AgentUpgraded,
}

/// The dials of a scenario.
#[derive(Debug, Clone)]
pub struct Dials {
    /// How pods begin and end.
    pub setup: Setup,
    /// How long the clients make requests.
    pub seconds: u64,
    /// Threads of each client.
    pub threads: usize,
    /// Nodes; clients are on the first and the last.
    pub nodes: u8,
    /// Nodes without an agent, by number: a lost node's cannot be asked.
    pub without_agent: Option<u8>,
    /// Further arguments of the agents.
    pub agent_arguments: &'static [&'static str],
}

/// In `bad-backend`, how long a replica must have failed: five minutes are too long for a test.
pub const BAD_BACKEND_AFTER_SECONDS: u64 = 8;

impl Scenario {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::TwoDeployments => "two-deployments",
            Self::TwoServices => "two-services",
            Self::SecondRollout => "second-rollout",
            Self::Rollback => "rollback",
            Self::ScaleDown => "scale-down",
            Self::ScaleDownDuringRollout => "scale-down-during-rollout",
            Self::Deleted => "deleted",
            Self::DeletedDuringRollout => "deleted-during-rollout",
            Self::Eviction => "eviction",
            Self::NodeLoss => "node-loss",
            Self::Restart => "restart",
            Self::BadBackend => "bad-backend",
            Self::Recreate => "recreate",
            Self::NewSide => "new-side",
            Self::ArgoRollout => "argo-rollout",
            Self::StatefulSet => "stateful-set",
            Self::DaemonSet => "daemon-set",
            Self::AgentRestarted => "agent-restarted",
            Self::AgentUpgraded => "agent-upgraded",
        }
    }

    /// How one agent goes in it, and another comes.
    pub fn restart(self) -> Option<Restart> {
        match self {
            Self::AgentRestarted => Some(Restart::Killed),
            Self::AgentUpgraded => Some(Restart::Upgraded),
            _ => None,
        }
    }

    /// The dials.
    pub fn dials(self) -> Dials {
        let usual = Dials {
            setup: Setup::Readiness,
            seconds: 22,
            threads: 8,
            nodes: 2,
            without_agent: None,
            agent_arguments: &[],
        };
        match self {
            Self::TwoDeployments | Self::TwoServices => Dials { threads: 4, ..usual },
            Self::SecondRollout | Self::Rollback | Self::ScaleDownDuringRollout => {
                Dials { seconds: 28, ..usual }
            }
            Self::AgentRestarted => Dials { seconds: 32, ..usual },
            Self::AgentUpgraded => Dials { seconds: 45, ..usual },
            Self::NodeLoss => Dials { nodes: 3, without_agent: Some(2), ..usual },
            Self::BadBackend => {
                Dials { seconds: 30, agent_arguments: &["--bad-backend-after", "8"], ..usual }
            }
            Self::NewSide => Dials { setup: Setup::Naive, ..usual },
            Self::StatefulSet | Self::DaemonSet => Dials { seconds: 28, ..usual },
            _ => usual,
        }
    }
}

/// Every scenario with what it is about, a line each.
pub fn table() -> String {
    let mut text = String::new();
    for scenario in Scenario::value_variants() {
        let value = scenario.to_possible_value();
        let about = value.and_then(|value| value.get_help().map(ToString::to_string));
        // Writing to a String cannot fail.
        let _infallible = writeln!(text, "{:<26} {}", scenario.name(), about.unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scenario_has_the_name_that_the_command_line_takes() {
        for scenario in Scenario::value_variants() {
            let value = scenario.to_possible_value().expect("a name");
            assert_eq!(value.get_name(), scenario.name());
        }
    }

    #[test]
    fn the_agents_of_bad_backend_are_told_the_time_that_the_truth_counts_with() {
        let told = Scenario::BadBackend.dials().agent_arguments[1];
        assert_eq!(told, BAD_BACKEND_AFTER_SECONDS.to_string());
    }
}
