//! The Kubernetes Events that a run must have left on its Deployment. Pure.

use k8s_openapi::api::core::v1::Event;

use crate::agent::AgentReport;

/// The reason that the agents give.
const REASON: &str = "RolloutBrokeConnections";

/// What is wrong with the Events. Unless they were waited for, one may be still to come.
pub(super) fn objections(events: &[Event], agents: &[AgentReport], awaited: bool) -> Vec<String> {
    let mut found = Vec::new();
    let of_agents: Vec<&Event> =
        events.iter().filter(|event| event.reason.as_deref() == Some(REASON)).collect();
    let broken: Vec<&AgentReport> = agents.iter().filter(|agent| saw_failures(agent)).collect();
    let due = usize::from(!broken.is_empty());
    let least = if awaited { due } else { 0 };
    if !(least..=due).contains(&of_agents.len()) {
        found.push(format!(
            "{} Events on the Deployment, though {} nodes saw its rollout break connections",
            of_agents.len(),
            broken.len()
        ));
    }
    for event in of_agents {
        let note = event.message.as_deref().unwrap_or_default();
        let is_warning = event.type_.as_deref() == Some("Warning");
        if !is_warning || !note.contains("kubectl rollrace explain deployment/api -n shop") {
            found.push(format!("an Event is no Warning that says how to go on: {note:?}"));
        }
    }
    for agent in broken.into_iter().filter(|_| awaited) {
        let count = |result: &str| agent.status.events.get(result).copied().unwrap_or(0);
        if count("created") + count("exists") != 1 {
            found.push(format!(
                "the agent of {} has not come to one Event: {:?}",
                agent.node, agent.status.events
            ));
        }
    }
    found
}

fn saw_failures(agent: &AgentReport) -> bool {
    let mut failures = agent.failures.failures.iter();
    failures.any(|failure| failure.cause.as_deref() == Some("rollout"))
}
