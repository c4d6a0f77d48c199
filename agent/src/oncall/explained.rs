//! Why connections failed in one rollout, and what to change: as text and as data.

use serde::Serialize;

use super::{
    Gathered,
    join::{Filter, add_others, rollouts},
    show::{self, Times},
};
use crate::advise::{Advice, Case, advise};

/// What `rollrace explain` tells, for whoever shows it in another way.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// The text, times in UTC; lines are not broken.
    pub text: String,
    /// The patch of the pod template as YAML; null: nothing that a patch can mend.
    pub patch: Option<String>,
    /// The findings and the figures that they rest on.
    pub advice: Advice,
}

/// The rollout that some node knows under this id, as all nodes together know it.
pub fn case(gathered: &Gathered, id: &str) -> Option<Case> {
    let all = Filter { namespace: None, workload: None };
    rollouts(gathered, &all)
        .into_iter()
        .find(|case| case.figures().any(|(_, figures)| figures.id == id))
}

/// Explains it; `None` if no node knows it.
pub fn explained(gathered: &Gathered, id: &str) -> Option<Explained> {
    let mut case = case(gathered, id)?;
    add_others(&mut case, gathered);
    let advice = advise(&case);
    let patch = advice.patch.as_ref().and_then(|patch| serde_saphyr::to_string(&patch.value).ok());
    let times = Times::new(true);
    let text = show::explain_plainly(&case, &advice, patch.as_deref(), &gathered.notes, &times);
    Some(Explained { text, patch, advice })
}
