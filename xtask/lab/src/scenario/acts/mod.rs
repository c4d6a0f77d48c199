//! What each scenario creates, and what it does to the cluster under load.

mod addresses;
mod argo;
pub mod faults;
mod removals;
mod rollouts;

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::catalogue::Scenario;
use super::objects;
use super::stage::Stage;
use crate::run::cluster::NAMESPACE;

/// The application that every scenario has.
pub const API: &str = "api";
/// The second application of `two-deployments`.
const WEB: &str = "web";
/// Enough pods that the rollout goes on after the agent is back.
const RESTARTED_PODS: i32 = 5;
/// The load runs undisturbed for so long.
const QUIET: Duration = Duration::from_secs(5);

/// Creates the workloads and Services.
pub async fn deploy(scenario: Scenario, stage: &Stage<'_>) -> Result<()> {
    stage.serve(API, API).await?;
    match scenario {
        Scenario::TwoDeployments => {
            stage.serve(WEB, WEB).await?;
            deployment(stage, WEB, 3, None).await?;
            deployment(stage, API, 3, None).await
        }
        Scenario::TwoServices => {
            stage.serve("api-alternative", API).await?;
            deployment(stage, API, 3, None).await
        }
        Scenario::ScaleDown | Scenario::ScaleDownDuringRollout => {
            deployment(stage, API, 4, None).await
        }
        Scenario::AgentRestarted => {
            let one_by_one = json!({"maxSurge": 1, "maxUnavailable": 0});
            let strategy = json!({"type": "RollingUpdate", "rollingUpdate": one_by_one});
            deployment(stage, API, RESTARTED_PODS, Some(strategy)).await
        }
        Scenario::Recreate => deployment(stage, API, 3, Some(json!({"type": "Recreate"}))).await,
        Scenario::ArgoRollout => argo::deploy(stage).await,
        Scenario::StatefulSet => {
            let object = objects::stateful_set(stage.setup, API, 3);
            stage.deploy("StatefulSet", "apps/v1", object, 3).await.map(drop)
        }
        Scenario::DaemonSet => {
            let nodes = stage.cluster.nodes.len();
            let object = objects::daemon_set(stage.setup, API);
            stage.deploy("DaemonSet", "apps/v1", object, nodes).await.map(drop)
        }
        _ => deployment(stage, API, 3, None).await,
    }
}

async fn deployment(
    stage: &Stage<'_>,
    application: &str,
    replicas: i32,
    strategy: Option<Value>,
) -> Result<()> {
    let mut object = stage.setup.deployment(NAMESPACE, application, replicas);
    if let Some(strategy) = strategy {
        object["spec"]["strategy"] = strategy;
    }
    let pods = usize::try_from(replicas)?;
    stage.deploy("Deployment", "apps/v1", object, pods).await.map(drop)
}

/// Does what the scenario is about, and waits until the cluster is at rest again.
pub async fn act(scenario: Scenario, stage: &Stage<'_>) -> Result<()> {
    sleep(QUIET).await;
    match scenario {
        Scenario::TwoDeployments => rollouts::two_deployments(stage).await,
        Scenario::TwoServices | Scenario::Recreate | Scenario::NewSide | Scenario::StatefulSet => {
            rollouts::one(stage, 3).await
        }
        Scenario::DaemonSet => rollouts::one(stage, stage.cluster.nodes.len()).await,
        Scenario::SecondRollout => rollouts::second(stage).await,
        Scenario::Rollback => rollouts::back(stage).await,
        Scenario::ScaleDown => removals::scale_down(stage).await,
        Scenario::ScaleDownDuringRollout => removals::scale_down_during_rollout(stage).await,
        Scenario::Deleted => removals::delete(stage).await,
        Scenario::DeletedDuringRollout => removals::delete_during_rollout(stage).await,
        Scenario::Eviction => removals::evict(stage).await,
        Scenario::NodeLoss => faults::lose_node(stage).await,
        Scenario::Restart => faults::restart(stage).await,
        Scenario::BadBackend => faults::make_bad(stage, API, "1").await,
        Scenario::Emptied => removals::empty(stage).await,
        Scenario::LocalPolicy => removals::of_one_node(stage).await,
        Scenario::AddressReused => addresses::reuse(stage, WEB).await,
        Scenario::AddressReusedBySame => addresses::reuse(stage, API).await,
        Scenario::ArgoRollout => argo::roll_out(stage).await,
        Scenario::AgentUpgraded => rollouts::one(stage, 3).await,
        Scenario::AgentRestarted => rollouts::one(stage, usize::try_from(RESTARTED_PODS)?).await,
    }
}
