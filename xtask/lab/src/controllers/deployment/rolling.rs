//! The rolling update, one step a turn.

use super::revision;
use super::rollout::{Rollout, available, replicas};
use super::status;
use crate::controllers::runner::Failed;

/// Scales the new `ReplicaSet` up, or else old ones down, as far as the bounds allow.
pub async fn step(rollout: &mut Rollout) -> Result<(), Failed> {
    revision::sync(rollout, true).await?;
    if scale_up_new(rollout).await? || scale_down_old(rollout).await? {
        return rollout.sync_rollout_status().await;
    }
    if status::is_complete(&rollout.deployment) {
        rollout.clean_up().await?;
    }
    rollout.sync_rollout_status().await
}

/// How many replicas the new `ReplicaSet`, which has `current`, is to have now
/// (`NewRSNewReplicas`).
pub fn replicas_of_new(rollout: &Rollout, current: i32) -> i32 {
    if rollout.is_recreate() {
        return rollout.wanted();
    }
    let room = rollout.wanted() + rollout.bounds().surge - rollout.total();
    if room <= 0 {
        return current;
    }
    current + room.min(rollout.wanted() - current)
}

async fn scale_up_new(rollout: &mut Rollout) -> Result<bool, Failed> {
    let Some(current) = rollout.new.as_ref().map(replicas) else {
        return Ok(false);
    };
    if current == rollout.wanted() {
        return Ok(false);
    }
    let to = if current > rollout.wanted() {
        rollout.wanted()
    } else {
        replicas_of_new(rollout, current)
    };
    rollout.scale_new(to).await
}

async fn scale_down_old(rollout: &mut Rollout) -> Result<bool, Failed> {
    if rollout.old_total() == 0 {
        return Ok(false);
    }
    let min_available = rollout.wanted() - rollout.bounds().unavailable;
    let new_unavailable = rollout.new.as_ref().map_or(0, |new| replicas(new) - available(new));
    let removable = rollout.total() - min_available - new_unavailable;
    if removable <= 0 {
        return Ok(false);
    }
    let unhealthy = scale_down_unhealthy(rollout, removable).await?;
    let available_now: i32 = rollout.all().map(available).sum();
    let healthy = scale_down_healthy(rollout, available_now - min_available).await?;
    Ok(unhealthy || healthy)
}

/// Old replicas that are not available go first: they carry nothing.
async fn scale_down_unhealthy(rollout: &mut Rollout, most: i32) -> Result<bool, Failed> {
    let mut left = most;
    let mut scaled = false;
    for at in 0..rollout.old.len() {
        let (has, available) = (replicas(&rollout.old[at]), available(&rollout.old[at]));
        let down = (has - available).min(left);
        if down > 0 {
            rollout.scale_old(at, has - down).await?;
            left -= down;
            scaled = true;
        }
    }
    Ok(scaled)
}

async fn scale_down_healthy(rollout: &mut Rollout, most: i32) -> Result<bool, Failed> {
    let mut left = most;
    let mut scaled = false;
    for at in 0..rollout.old.len() {
        let has = replicas(&rollout.old[at]);
        let down = has.min(left);
        if down > 0 {
            rollout.scale_old(at, has - down).await?;
            left -= down;
            scaled = true;
        }
    }
    Ok(scaled)
}
