//! What is no rollout's doing.

use super::super::words::list;
use crate::advise::{Case, Finding, Rule, Weight, count_of};

pub(super) fn others(case: &Case) -> Vec<Finding> {
    case.others
        .iter()
        .filter(|other| other.count > 0)
        .map(|other| {
            let failed = count_of(other.count, "failure");
            let mut pods: Vec<_> = other.pods.iter().collect();
            pods.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let pods = list(pods.iter().map(|(pod, _)| pod.as_str()), 3);
            if other.cause == "bad_backend" {
                return Finding::new(
                    Rule::BadReplica,
                    Weight::Fault,
                    "a replica fails all the time while its siblings answer: not the rollout's doing",
                )
                .because(format!("{failed} at {pods}, ready and not leaving"))
                .change("look at that pod (kubectl logs, describe), and let its readiness probe see \
                         what it cannot do");
            }
            let (what, remedy) = match &*other.cause {
                "scale_down" => ("a scale-down", "a preStop helps here as it does in a rollout"),
                "deleted" => ("a deletion by hand or by another controller", "kubectl delete waits for preStop, too"),
                "eviction" => ("an eviction (drain, preemption, pressure)", "a preStop helps here as it does in a rollout"),
                "node_loss" => ("the loss of a node", "nothing in the pod template helps against that"),
                "restart" => ("containers that restarted in place", "look at why they exit (kubectl describe pod)"),
                _ => ("causes that could not be proven", "their evidence is in rollrace watch, and in /api/v1/failures"),
            };
            let finding = Finding::new(
                Rule::OtherCause,
                Weight::Note,
                format!("further failures of the workload come from {what}"),
            );
            let finding = finding.because(if pods.is_empty() { failed } else { format!("{failed}, at {pods}") });
            finding.change(remedy)
        })
        .collect()
}
