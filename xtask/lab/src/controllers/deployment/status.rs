//! A Deployment's status: counts, and the conditions that tell of availability and progress.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentStatus, ReplicaSetStatus,
};
use kube::ResourceExt;

use super::rollout::Rollout;
use crate::controllers::pods;

/// The condition that tells how the rollout goes on.
pub const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const COMPLETE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";
const RESUMED: &str = "DeploymentResumed";

/// The status that follows from the `ReplicaSets`, with the conditions as they are but for
/// availability.
pub fn calculate(rollout: &Rollout) -> DeploymentStatus {
    let sum = |of: &dyn Fn(&ReplicaSetStatus) -> i32| -> i32 {
        rollout.all().filter_map(|set| set.status.as_ref()).map(of).sum()
    };
    // A count of 0 is left out, as Go's omitempty does; that of the terminating ones is a pointer
    // there.
    let some = |count: i32| Some(count).filter(|count| *count > 0);
    let before = rollout.deployment.status.clone().unwrap_or_default();
    let available = sum(&|status| status.available_replicas.unwrap_or(0));
    let updated = rollout
        .new
        .as_ref()
        .and_then(|new| new.status.as_ref())
        .map_or(0, |status| status.replicas);
    let mut status = DeploymentStatus {
        observed_generation: rollout.deployment.metadata.generation,
        replicas: some(sum(&|status| status.replicas)),
        updated_replicas: some(updated),
        ready_replicas: some(sum(&|status| status.ready_replicas.unwrap_or(0))),
        available_replicas: some(available),
        unavailable_replicas: some(rollout.total() - available),
        terminating_replicas: Some(sum(&|status| status.terminating_replicas.unwrap_or(0))),
        collision_count: before.collision_count,
        conditions: before.conditions,
    };
    let enough = available >= rollout.wanted() - rollout.bounds().unavailable;
    let condition = if enough {
        new_condition(
            AVAILABLE,
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.".into(),
        )
    } else {
        let message = "Deployment does not have minimum availability.".into();
        new_condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message)
    };
    set_condition(&mut status, condition);
    status
}

/// Says in the new status whether the rollout is complete, moves, or is stuck.
pub fn judge_progress(rollout: &Rollout, next: &mut DeploymentStatus) {
    let Some(deadline) = rollout.spec().progress_deadline_seconds else {
        remove_condition(next, PROGRESSING);
        return;
    };
    let set = rollout.new.as_ref().map(ResourceExt::name_any);
    let subject = set.map_or_else(
        || format!("Deployment \"{}\"", rollout.deployment.name_any()),
        |name| format!("ReplicaSet \"{name}\""),
    );
    let current = condition(Some(next), PROGRESSING).cloned();
    let was_complete =
        current.as_ref().is_some_and(|current| current.reason.as_deref() == Some(COMPLETE));
    if was_complete && next.replicas == next.updated_replicas {
        return;
    }
    let before = rollout.deployment.status.clone().unwrap_or_default();
    if is_complete_with(&rollout.deployment, next) {
        let message = format!("{subject} has successfully progressed.");
        set_condition(next, new_condition(PROGRESSING, "True", COMPLETE, message));
    } else if has_moved(&before, next) {
        let mut condition = new_condition(
            PROGRESSING,
            "True",
            "ReplicaSetUpdated",
            format!("{subject} is progressing."),
        );
        if let Some(current) = current {
            if current.status == "True" {
                condition.last_transition_time = current.last_transition_time;
            }
            // Out with it first: the time of the last update is to be renewed even if the reason
            // stays.
            remove_condition(next, PROGRESSING);
        }
        set_condition(next, condition);
    } else if current
        .is_some_and(|current| time_left(&current, deadline).is_some_and(|left| left.is_zero()))
    {
        let message = format!("{subject} has timed out progressing.");
        set_condition(next, new_condition(PROGRESSING, "False", TIMED_OUT, message));
    }
}

/// The status with the condition that tells of a pause or its end; none when it is told already.
pub fn with_paused(deployment: &Deployment, paused: bool) -> Option<DeploymentStatus> {
    deployment.spec.as_ref()?.progress_deadline_seconds?;
    let current = condition(deployment.status.as_ref(), PROGRESSING)
        .and_then(|found| found.reason.as_deref());
    let told = current == Some(PAUSED);
    if current == Some(TIMED_OUT) || told == paused {
        return None;
    }
    let mut next = deployment.status.clone().unwrap_or_default();
    let (reason, message) =
        if paused { (PAUSED, "Deployment is paused") } else { (RESUMED, "Deployment is resumed") };
    set_condition(&mut next, new_condition(PROGRESSING, "Unknown", reason, message.into()));
    Some(next)
}

/// Whether the Deployment's own status says that the rollout is complete.
pub fn is_complete(deployment: &Deployment) -> bool {
    deployment.status.as_ref().is_some_and(|status| is_complete_with(deployment, status))
}

fn is_complete_with(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    status.updated_replicas.unwrap_or(0) == wanted
        && status.replicas.unwrap_or(0) == wanted
        && status.available_replicas.unwrap_or(0) == wanted
        && status.observed_generation >= deployment.metadata.generation
}

/// Whether a count moved towards completion.
fn has_moved(before: &DeploymentStatus, next: &DeploymentStatus) -> bool {
    let old = |status: &DeploymentStatus| {
        status.replicas.unwrap_or(0) - status.updated_replicas.unwrap_or(0)
    };
    next.updated_replicas > before.updated_replicas
        || old(next) < old(before)
        || next.ready_replicas > before.ready_replicas
        || next.available_replicas > before.available_replicas
}

fn time_left(progressing: &DeploymentCondition, deadline_seconds: i32) -> Option<Duration> {
    if [Some(COMPLETE), Some(TIMED_OUT), Some(PAUSED)].contains(&progressing.reason.as_deref()) {
        return None;
    }
    let since = Timestamp::now().duration_since(progressing.last_update_time.as_ref()?.0);
    let left = SignedDuration::from_secs(deadline_seconds.into()).saturating_sub(since);
    Some(if left.is_positive() { left.unsigned_abs() } else { Duration::ZERO })
}

/// How long until the rollout has to be looked at again though nothing happens.
pub fn deadline_in(deployment: &Deployment) -> Option<Duration> {
    let deadline = deployment.spec.as_ref()?.progress_deadline_seconds?;
    time_left(condition(deployment.status.as_ref(), PROGRESSING)?, deadline)
        .filter(|left| !left.is_zero())
}

/// The condition of a type.
pub fn condition<'a>(
    status: Option<&'a DeploymentStatus>,
    type_: &str,
) -> Option<&'a DeploymentCondition> {
    status?.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

/// A condition that begins now.
pub fn new_condition(
    type_: &str,
    status: &str,
    reason: &str,
    message: String,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(pods::now()),
        last_transition_time: Some(pods::now()),
    }
}

/// Puts a condition in; one that says the same already stays as it is, and the time of the last
/// transition is kept while the status does not change (`SetDeploymentCondition`).
pub fn set_condition(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    let conditions = status.conditions.get_or_insert_default();
    if let Some(at) = conditions.iter().position(|kept| kept.type_ == condition.type_) {
        let kept = &conditions[at];
        if kept.status == condition.status && kept.reason == condition.reason {
            return;
        }
        if kept.status == condition.status {
            condition.last_transition_time.clone_from(&kept.last_transition_time);
        }
        conditions.remove(at);
    }
    conditions.push(condition);
}

fn remove_condition(status: &mut DeploymentStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != type_);
    }
}
