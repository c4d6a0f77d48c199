//! The Recreate strategy: every old pod is gone before the first new one is made.

use super::revision;
use super::rollout::{Rollout, replicas};
use super::status;
use crate::controllers::runner::Failed;

/// One step.
pub async fn step(rollout: &mut Rollout) -> Result<(), Failed> {
    revision::sync(rollout, false).await?;
    let mut scaled = false;
    for at in 0..rollout.old.len() {
        if replicas(&rollout.old[at]) > 0 {
            scaled |= rollout.scale_old(at, 0).await?;
        }
    }
    if scaled || rollout.old_pods_run().await? {
        return rollout.sync_rollout_status().await;
    }
    if rollout.new.is_none() {
        revision::sync(rollout, true).await?;
    }
    let wanted = rollout.wanted();
    rollout.scale_new(wanted).await?;
    if status::is_complete(&rollout.deployment) {
        rollout.clean_up().await?;
    }
    rollout.sync_rollout_status().await
}
