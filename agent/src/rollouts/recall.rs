//! Rollouts as they outlive the agent.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Rollouts, Seen};
use crate::model::{Mono, Rollout};

/// Rollouts, oldest first, and the targets of their workloads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptRollouts {
    rollouts: Vec<Kept>,
    seen: Vec<(Arc<str>, Seen)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    rollout: Rollout,
    /// It was complete when it was first observed.
    found_complete: bool,
}

impl KeptRollouts {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rollouts.is_empty()
    }

    /// UIDs of their workloads.
    pub fn workloads(&self) -> impl Iterator<Item = &str> {
        self.seen.iter().map(|(uid, _)| &**uid)
    }
}

impl Rollouts {
    /// What a later agent needs: rollouts of which something happened since `horizon`.
    pub fn kept(&self, horizon: Mono) -> KeptRollouts {
        let is_recent = |rollout: &&Rollout| rollout.last_happened() >= horizon;
        let rollouts: Vec<Kept> = self
            .all()
            .filter(is_recent)
            .map(|rollout| Kept {
                found_complete: self.found_complete.contains(&rollout.id),
                rollout: rollout.clone(),
            })
            .collect();
        let mut uids: Vec<&Arc<str>> =
            rollouts.iter().map(|kept| &kept.rollout.workload.uid).collect();
        uids.sort_unstable();
        uids.dedup();
        let seen =
            uids.into_iter().filter_map(|uid| Some((uid.clone(), self.seen.get(uid)?.clone())));
        KeptRollouts { seen: seen.collect(), rollouts }
    }

    /// Takes up what an earlier agent kept. Of what is listed next it is not known whether it is
    /// news.
    pub fn recall(&mut self, kept: KeptRollouts, at: Mono) {
        for (uid, seen) in kept.seen {
            self.seen.insert(uid, Seen { noted: at, ..seen });
        }
        for Kept { rollout, found_complete } in kept.rollouts {
            if found_complete {
                self.found_complete.insert(rollout.id.clone());
            }
            self.put(rollout);
        }
    }
}
