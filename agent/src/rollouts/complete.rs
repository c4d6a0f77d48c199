//! When a rollout is complete: when `kubectl rollout status` would return
//! (`polymorphichelpers/rollout_status.go`).

use crate::model::{Revision, WorkloadFacts};

/// Whether the workload's status says that it has arrived at this revision.
pub(super) fn is_complete(workload: &WorkloadFacts, target: &Revision) -> bool {
    let status = &workload.status;
    // Paused and OnDelete stay open.
    if workload.held || status.observed_generation < workload.generation {
        return false;
    }
    match &*workload.object.kind {
        "StatefulSet" => {
            if status.update_revision != target.hash || status.available < workload.wanted {
                return false;
            }
            if status.partition > 0 {
                status.updated >= workload.wanted - status.partition
            } else {
                status.current_revision == status.update_revision
            }
        }
        "DaemonSet" => {
            status.update_revision == target.hash
                && status.updated >= workload.wanted
                && status.available >= workload.wanted
        }
        _ => {
            is_about(workload, target)
                && status.updated >= workload.wanted
                && status.replicas <= status.updated
                && status.available >= status.updated
        }
    }
}

/// Whether the status can be about this revision: the watch of the `ReplicaSet`s may be ahead of
/// the workload's, whose status then still tells of the rollout before.
fn is_about(workload: &WorkloadFacts, target: &Revision) -> bool {
    match (workload.status.revision, target.revision) {
        (Some(status), Some(target)) => status >= target,
        _ => true,
    }
}
