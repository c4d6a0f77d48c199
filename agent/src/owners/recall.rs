//! What is known of pods and owners, as it outlives the agent.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Owners, Pod, ReplicaSet, Workload};
use crate::model::ObjectRef;

/// The most pods kept, the last gone first.
const MAX_KEPT: usize = 20_000;

/// Pods that are gone or of this node, and what owns them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptOwners {
    pods: Vec<Pod>,
    looked_up: Vec<LookedUp>,
    replica_sets: Vec<ReplicaSet>,
    workloads: Vec<Workload>,
}

/// The answer to a look-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LookedUp {
    uid: Arc<str>,
    owner: Option<ObjectRef>,
    how: String,
}

impl Owners {
    /// What a later agent needs of these pods (those behind the endpoints that are kept) and of the
    /// workloads whose rollouts are kept. Of a pod elsewhere that lives nobody would tell it what
    /// becomes of it: of such only the owner is kept. Also how many there was no room for.
    pub fn kept<'a>(
        &'a self,
        node: &str,
        behind: impl Iterator<Item = &'a str>,
        rolled_out: impl Iterator<Item = &'a str>,
    ) -> (KeptOwners, u64) {
        let is_kept = |pod: &&Pod| pod.gone.is_some() || pod.facts.node.as_deref() == Some(node);
        let mut pods: Vec<&Pod> = self.pods.all().filter(is_kept).collect();
        pods.sort_unstable_by_key(|pod| std::cmp::Reverse(pod.gone));
        let left_out = u64::try_from(pods.len().saturating_sub(MAX_KEPT)).unwrap_or(u64::MAX);
        pods.truncate(MAX_KEPT);
        let mut uids: BTreeSet<&str> = pods.iter().map(|pod| &*pod.facts.uid).collect();
        uids.extend(behind);
        let looked_up = uids.iter().filter_map(|uid| {
            let uid = Arc::from(*uid);
            if let Some((owner, how)) = self.looked_up.get(&uid) {
                return Some(LookedUp { uid, owner: owner.clone(), how: how.clone() });
            }
            let how = "the pod said so before the agent's restart".to_owned();
            let owner = self.pods.get(&uid)?.facts.owner.clone();
            Some(LookedUp { uid, owner, how })
        });
        let mut workloads: BTreeSet<Arc<str>> =
            uids.iter().filter_map(|uid| self.workload_of(uid)).map(|key| key.uid).collect();
        workloads.extend(rolled_out.map(Arc::from));
        let sets = workloads.iter().filter_map(|uid| self.sets_of.get(uid)).flatten();
        let kept = KeptOwners {
            looked_up: looked_up.collect(),
            replica_sets: sets.filter_map(|uid| self.replica_sets.get(uid)).cloned().collect(),
            workloads: workloads
                .iter()
                .filter_map(|uid| self.workloads.get(uid))
                .cloned()
                .collect(),
            pods: pods.into_iter().cloned().collect(),
        };
        (kept, left_out)
    }

    /// Takes up what an earlier agent kept.
    pub fn recall(&mut self, kept: KeptOwners) {
        for set in kept.replica_sets {
            self.put_replica_set(set);
        }
        for workload in kept.workloads {
            let (uid, is_gone) = (workload.facts.object.uid.clone(), workload.gone.is_some());
            self.workloads.insert(uid.clone(), workload);
            if is_gone {
                self.workloads.retire(&uid);
            }
        }
        for pod in kept.pods {
            self.pods.recall(pod);
        }
        for LookedUp { uid, owner, how } in kept.looked_up {
            self.looked_up.insert(uid, (owner, how));
        }
    }
}
