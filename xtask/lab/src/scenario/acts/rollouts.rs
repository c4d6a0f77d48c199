//! Rollouts alone, one after another, and against each other.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::{API, WEB};
use crate::scenario::stage::Stage;

/// One rollout from the first to the last pod.
pub async fn one(stage: &Stage<'_>, pods: usize) -> Result<()> {
    stage.roll_out(API, "2").await?;
    stage.settled(API, "2", pods).await
}

/// Two Deployments, the second 2 s after the first.
pub async fn two_deployments(stage: &Stage<'_>) -> Result<()> {
    stage.roll_out(API, "2").await?;
    sleep(Duration::from_secs(2)).await;
    stage.roll_out(WEB, "2").await?;
    stage.settled(API, "2", 3).await?;
    stage.settled(WEB, "2", 3).await
}

/// A second rollout as soon as the first has replaced one pod.
pub async fn second(stage: &Stage<'_>) -> Result<()> {
    stage.roll_out(API, "2").await?;
    stage.ready(API, "2", 2).await?;
    stage.roll_out(API, "3").await?;
    stage.settled(API, "3", 3).await
}

/// Back to the first version as soon as two pods are of the second.
pub async fn back(stage: &Stage<'_>) -> Result<()> {
    stage.roll_out(API, "2").await?;
    stage.ready(API, "2", 2).await?;
    stage.roll_out(API, "1").await?;
    stage.settled(API, "1", 3).await
}
