//! One pod's time as a backend at one address and port.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::model::{EndpointConditions, Mono, ObjectRef};

/// How far an open watch may lag behind the cluster and still be taken for in step.
pub const WATCH_LAG_NANOS: u64 = 10_000_000_000;

/// One pod's (or bare address's) time as a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetime {
    /// Address and port; port 0 where the slice names none.
    pub endpoint: SocketAddr,
    /// Namespace of its slices.
    pub namespace: Arc<str>,
    /// The pod, if a `targetRef` said one.
    pub pod: Option<ObjectRef>,
    /// Node, if said.
    pub node: Option<Arc<str>>,
    /// Services it was seen behind.
    pub services: BTreeSet<Arc<str>>,
    /// First seen in a slice.
    pub first_seen: Mono,
    /// It did not exist yet at this time, as far as the watches' lag allows to say: 0 for one that
    /// was there when the agent came.
    pub begun_after: Mono,
    /// Was there when this agent first listed the slices.
    pub baseline: bool,
    /// First seen ready.
    pub ready: Option<Mono>,
    /// When it left; cleared if it becomes ready again.
    pub left: Option<Mono>,
    /// It had not left yet at this time, as far as the watches' lag allows to say.
    pub left_after: Option<Mono>,
    /// First seen terminating.
    pub terminating: Option<Mono>,
    /// When it was absent from every slice.
    pub gone: Option<Mono>,
    /// First answer to a SYN seen here.
    pub first_answer: Option<Mono>,
    /// Whether the kernel's record of answers is this one's, and not its predecessor's.
    pub answers_known: bool,
}

/// What a slice says of an endpoint, beside its conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) pod: Option<ObjectRef>,
    pub(super) node: Option<Arc<str>>,
}

/// When a change was seen, and since when it may have been.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) at: Mono,
    pub(super) after: Mono,
}

/// Where a lifetime stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Serving,
    Leaving,
    Gone,
}

impl Lifetime {
    pub(super) fn new(
        endpoint: SocketAddr,
        namespace: Arc<str>,
        origin: Origin,
        seen: Seen,
        baseline: bool,
    ) -> Self {
        Self {
            endpoint,
            namespace,
            pod: origin.pod,
            node: origin.node,
            services: BTreeSet::new(),
            first_seen: seen.at,
            begun_after: if baseline { Mono(0) } else { seen.after },
            baseline,
            ready: None,
            left: None,
            left_after: None,
            terminating: None,
            gone: None,
            first_answer: None,
            answers_known: false,
        }
    }

    /// Whether the pod is the one with this UID.
    pub fn is_pod(&self, uid: &str) -> bool {
        self.pod.as_ref().is_some_and(|pod| &*pod.uid == uid)
    }

    /// Whether it was taken away, rather than only not ready.
    pub fn was_removed(&self) -> bool {
        self.terminating.is_some() || self.gone.is_some()
    }

    pub(super) fn uid(&self) -> &str {
        self.pod.as_ref().map_or("", |pod| &pod.uid)
    }

    pub(super) fn stage(&self) -> Stage {
        match (self.left, self.gone) {
            (_, Some(_)) => Stage::Gone,
            (Some(_), None) => Stage::Leaving,
            (None, None) => Stage::Serving,
        }
    }

    pub(super) fn observe(&mut self, conditions: EndpointConditions, seen: Seen) {
        if conditions.terminating && self.terminating.is_none() {
            self.terminating = Some(seen.at);
        }
        if conditions.ready && !conditions.terminating {
            self.ready.get_or_insert(seen.at);
            (self.left, self.left_after) = (None, None);
        } else if conditions.terminating || self.ready.is_some() {
            self.leave(seen);
        }
    }

    pub(super) fn vanish(&mut self, seen: Seen) {
        self.gone = Some(seen.at);
        self.leave(seen);
    }

    fn leave(&mut self, seen: Seen) {
        if self.left.is_none() {
            self.left = Some(seen.at);
            self.left_after = Some(seen.after);
        }
    }
}
