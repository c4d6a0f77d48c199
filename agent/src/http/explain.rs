//! `/api/v1/explain?rollout=ID`: why connections failed in a rollout, as this node knows it.

use serde::Deserialize;

use super::{
    answer::{FailuresAnswer, RolloutsAnswer, StatusAnswer},
    wanted::Wanted,
};
use crate::{
    model::RolloutId,
    oncall::{Answered, Explained, Gathered, answers::as_told, explained},
};

/// Of which rollout.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Of {
    /// Its id.
    pub(super) rollout: RolloutId,
}

/// What must be asked to explain a rollout: everything of its workload. `None`: it is not known.
pub(super) fn wanted(rollouts: &RolloutsAnswer, id: &RolloutId) -> Option<Wanted> {
    let rollout = rollouts.rollouts.iter().find(|rollout| rollout.id == *id)?;
    Some(Wanted {
        namespace: Some(rollout.namespace.to_string()),
        kind: Some(rollout.kind.to_string()),
        name: Some(rollout.name.to_string()),
        ..Wanted::default()
    })
}

/// Explains it from one agent's answers, as the command line would from the same.
pub(super) fn explain(
    id: &RolloutId,
    status: &StatusAnswer,
    rollouts: &RolloutsAnswer,
    failures: &FailuresAnswer,
) -> Option<Explained> {
    let answered = Answered {
        agent: status.node.to_string(),
        status: as_told(status),
        rollouts: as_told(rollouts),
        failures: as_told(failures),
    };
    let gathered = Gathered { answered: vec![answered], ..Gathered::default() };
    explained(&gathered, &id.to_string())
}
