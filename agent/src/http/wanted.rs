//! Which rollouts and failures are wanted: the queries of `/api/v1/rollouts` and `/api/v1/failures`.

use serde::Deserialize;

use super::answer::Listed;
use crate::{
    engine::RolloutReport,
    model::{RolloutId, WorkloadKey},
};

/// What is wanted; nothing set: everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wanted {
    /// Of this namespace.
    pub namespace: Option<String>,
    /// Of a workload of this kind.
    pub kind: Option<String>,
    /// Of a workload of this name.
    pub name: Option<String>,
    /// Of this class; failures only.
    pub class: Option<String>,
    /// Of this rollout; failures only.
    pub rollout: Option<RolloutId>,
    /// From this one on, as `next` of an earlier answer; failures only.
    pub since: Option<u64>,
    /// At most so many, the newest.
    pub limit: Option<usize>,
}

impl Wanted {
    fn is(wanted: Option<&String>, it: Option<&str>) -> bool {
        wanted.is_none_or(|wanted| it.is_some_and(|it| it.eq_ignore_ascii_case(wanted)))
    }

    fn takes_workload(&self, namespace: &str, kind: Option<&str>, name: Option<&str>) -> bool {
        Self::is(self.namespace.as_ref(), Some(namespace))
            && Self::is(self.kind.as_ref(), kind)
            && Self::is(self.name.as_ref(), name)
    }

    /// Whether a rollout of this workload is wanted.
    pub(super) fn takes_rollout(&self, of: &WorkloadKey) -> bool {
        self.takes_workload(&of.namespace, Some(&of.kind), Some(&of.name))
    }

    /// The same for a rollout of an earlier boot.
    pub(super) fn takes_past(&self, rollout: &RolloutReport) -> bool {
        self.takes_workload(&rollout.namespace, Some(&rollout.kind), Some(&rollout.name))
    }

    /// Whether a failure is wanted; where it stands in the list is not looked at.
    pub(super) fn takes(&self, failure: &Listed<'_>) -> bool {
        let (class, rollout, namespace, workload) = match failure {
            Listed::Past(it) => {
                let workload = it.workload.as_ref().map(|of| (&*of.kind, &*of.name));
                (it.class, &it.rollout, &it.namespace, workload)
            }
            Listed::Present(it) => {
                let workload = it.workload.as_ref().map(|of| (&*of.kind, &*of.name));
                (it.class, &it.rollout, &it.namespace, workload)
            }
        };
        let (kind, name) = workload.unzip();
        (self.rollout.is_none() || *rollout == self.rollout)
            && Self::is(self.class.as_ref(), Some(class.name()))
            && self.takes_workload(namespace, kind, name)
    }
}
