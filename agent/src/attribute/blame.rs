//! A cause with its evidence.

use std::sync::Arc;

use crate::{
    attempts::Failed,
    endpoints::Lifetime,
    model::{Cause, Class, RolloutId, Side, WorkloadKey},
};

/// A cause with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// How the connection failed: the wire's class, or `stale_nat`, which the wire alone does not
    /// tell from a timeout.
    pub class: Class,
    /// Cause.
    pub cause: Cause,
    /// Side of the rollout.
    pub side: Option<Side>,
    /// The rollout.
    pub rollout: Option<RolloutId>,
    /// Namespace of the backend; empty if unknown.
    pub namespace: Arc<str>,
    /// The only Service that the backend is behind; empty if there is none, or several.
    pub service: Arc<str>,
    /// Pod name; empty if unknown.
    pub pod: Arc<str>,
    /// Workload, if known.
    pub workload: Option<WorkloadKey>,
    /// Chain of evidence.
    pub evidence: Vec<String>,
}

impl Blame {
    /// Nothing is known but what the wire showed.
    pub fn unknown(failed: &Failed) -> Self {
        let empty: Arc<str> = "".into();
        Self {
            class: failed.class,
            cause: Cause::Unknown,
            side: None,
            rollout: None,
            namespace: empty.clone(),
            service: empty.clone(),
            pod: empty,
            workload: None,
            evidence: vec![failed.wire.clone()],
        }
    }

    /// The backend is known, the cause not yet.
    pub(super) fn of(life: &Lifetime, failed: &Failed) -> Self {
        let mut services = life.services.iter();
        let only = services.next().filter(|_| services.next().is_none());
        Self {
            namespace: life.namespace.clone(),
            service: only.cloned().unwrap_or_else(|| "".into()),
            pod: life.pod.as_ref().map_or_else(|| "".into(), |pod| pod.name.clone()),
            ..Self::unknown(failed)
        }
    }

    /// The endpoint was not there any more when the SYN followed an old entry to it.
    pub(super) fn gone(&mut self, failed: &Failed) {
        if failed.attempt.stale && matches!(failed.class, Class::Timeout | Class::Unreachable) {
            self.class = Class::StaleNat;
            self.because("it followed the conntrack entry of an earlier SYN".to_owned());
        }
    }

    /// Says why.
    pub fn because(&mut self, why: String) {
        self.evidence.push(why);
    }

    pub(super) fn is(&mut self, cause: Cause) -> bool {
        self.cause = cause;
        true
    }

    pub(super) fn is_rollout(&mut self, id: RolloutId, side: Side) -> bool {
        self.rollout = Some(id);
        self.side = Some(side);
        self.is(Cause::Rollout)
    }
}
