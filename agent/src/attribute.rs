//! From a failure and what is known of its backend to a cause, with the chain of evidence; or to
//! "not yet". Unknown is an answer, a guess is not.

use std::{net::SocketAddr, sync::Arc};

use crate::{
    attempts::Failed,
    endpoints::{Endpoints, Lifetime, Name},
    model::{Cause, Class, Clock, Mono, RolloutId, Side, WorkloadKey},
    owners::{Owners, Place},
    rollouts::Rollouts,
};

/// Longest wait for evidence after the outcome was known.
pub const EVIDENCE_NANOS: u64 = 30_000_000_000;

/// How much earlier than its pod's deletion an attempt may have begun and still be due to it: the
/// API's times have 1 s resolution, and are truncated.
const BEFORE_DELETION_NANOS: u64 = 100_000_000;

/// A replica count that fell this long before a departure explains it.
const SCALE_DOWN_NANOS: u64 = 60_000_000_000;

/// Everything a verdict rests on.
pub struct Known<'a> {
    /// Lifetimes.
    pub endpoints: &'a Endpoints,
    /// Pods and their owners.
    pub owners: &'a Owners,
    /// Rollouts.
    pub rollouts: &'a Rollouts,
    /// The two clocks.
    pub clock: Clock,
    /// Now.
    pub now: Mono,
    /// This node's name if the client has its address: kubelet's probes come from there, and go to
    /// pods of the same node.
    pub probing_node: Option<&'a str>,
}

/// A cause with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// Cause.
    pub cause: Cause,
    /// Side of the rollout.
    pub side: Option<Side>,
    /// The rollout.
    pub rollout: Option<RolloutId>,
    /// Namespace of the backend.
    pub namespace: Arc<str>,
    /// Pod name; empty if unknown.
    pub pod: Arc<str>,
    /// Workload, if known.
    pub workload: Option<WorkloadKey>,
    /// Chain of evidence.
    pub evidence: Vec<String>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Decided.
    Blame(Box<Blame>),
    /// Given up by the client before it could fail, on an endpoint that was serving: no failure.
    Cancelled,
    /// A direct connection that no Service sent there: a kubelet's probe, or a client that dials an
    /// endpoint which was never ready.
    Undirected,
    /// Evidence is missing and may still come.
    NotYet,
}

/// Decides, or waits.
pub fn decide(failed: &Failed, service: Option<&Name>, known: &Known<'_>) -> Decision {
    let last_chance = known.now.since(failed.ended) >= EVIDENCE_NANOS;
    let Some(life) = lifetime(failed, service, known.endpoints) else {
        return unless(last_chance, failed, || Blame::unknown("no endpoint was ever seen at that address"));
    };
    if !failed.attempt.dnat && failed.class != Class::Rejected {
        if known.probing_node.is_some_and(|node| life.node.as_deref() == Some(node)) {
            return Decision::Undirected;
        }
        if life.ready.is_none() {
            return if last_chance { Decision::Undirected } else { Decision::NotYet };
        }
    }
    let mut blame = Blame::of(life);
    blame.evidence.push(failed.wire.clone());
    let left = life.left.filter(|left| belongs(failed, life, *left, known));
    if failed.early && left.is_none() {
        return if last_chance { Decision::Cancelled } else { Decision::NotYet };
    }
    let Some(pod) = &life.pod else {
        blame.evidence.push("the endpoint names no pod".to_owned());
        return Decision::Blame(Box::new(blame));
    };
    let place = known.owners.place(&pod.uid);
    blame.workload = place.as_ref().map(|place| place.workload.clone());
    let found = match left {
        Some(left) => blame_departure(&mut blame, failed, life, left, place.as_ref(), known),
        None => blame_serving(&mut blame, failed, life, place.as_ref(), known, last_chance),
    };
    if found {
        return Decision::Blame(Box::new(blame));
    }
    unless(last_chance, failed, || {
        if place.is_none() {
            let why = known.owners.answer(&pod.uid).map_or("nobody could be asked", |(_, how)| how);
            blame.evidence.push(format!("owner of pod {} unknown: {why}", pod.name));
        } else if left.is_none() {
            blame.evidence.push(format!("pod {} was serving, and did not leave", pod.name));
        } else {
            blame.evidence.push("no rollout of its workload fits".to_owned());
        }
        blame
    })
}

fn unless(last_chance: bool, failed: &Failed, blame: impl FnOnce() -> Blame) -> Decision {
    match (last_chance, failed.early) {
        (false, _) => Decision::NotYet,
        (true, true) => Decision::Cancelled,
        (true, false) => Decision::Blame(Box::new(blame())),
    }
}

/// Whose time it was when the last SYN was sent. Addresses are reused: the last lifetime that had
/// begun by then; a SYN older than all of them was sent before this agent heard of the endpoint.
fn lifetime<'a>(failed: &Failed, service: Option<&Name>, endpoints: &'a Endpoints) -> Option<&'a Lifetime> {
    let at = failed.attempt.last_syn;
    if failed.class == Class::Rejected {
        // No backend was chosen: the Service's endpoint that left last emptied it.
        let name = service?;
        return endpoints
            .all()
            .filter(|life| life.namespace == name.0 && life.services.contains(&name.1))
            .filter(|life| life.left.is_some())
            .max_by_key(|life| life.left);
    }
    let lives = endpoints.at(failed.attempt.backend?);
    lives.iter().rev().find(|life| life.first_seen <= at).or_else(|| lives.first())
}

/// Whether a departure explains the failure: not if the pod was deleted only later.
fn belongs(failed: &Failed, life: &Lifetime, left: Mono, known: &Known<'_>) -> bool {
    let deleted = life
        .pod
        .as_ref()
        .and_then(|pod| known.owners.pod_by_uid(&pod.uid))
        .and_then(|pod| pod.deleted_at);
    let earliest = match deleted {
        Some(deleted) => known.clock.mono(deleted),
        // Without the deletion's time: the departure is seen late, never early.
        None => Mono(left.0.saturating_sub(EVIDENCE_NANOS)),
    };
    failed.ended.plus(BEFORE_DELETION_NANOS) >= earliest
}

/// The endpoint left: why?
fn blame_departure(
    blame: &mut Blame,
    failed: &Failed,
    life: &Lifetime,
    left: Mono,
    place: Option<&Place>,
    known: &Known<'_>,
) -> bool {
    blame.evidence.push(departure(life, left, failed.attempt.last_syn));
    let pod = life.pod.as_ref().and_then(|pod| known.owners.pod_by_uid(&pod.uid));
    if let Some(reason) = pod.and_then(|pod| pod.facts.disruption.as_ref()) {
        blame.evidence.push(format!("its DisruptionTarget condition says {reason}"));
        return blame.is(Cause::Eviction);
    }
    let deleted = pod.is_some_and(|pod| pod.deletion_seen.is_some());
    let restarted = pod.and_then(|pod| pod.restarted);
    if let Some(at) = restarted.filter(|_| !deleted && life.terminating.is_none()) {
        blame.evidence.push(format!("a container of it restarted {}", apart(at, failed.attempt.last_syn)));
        return blame.is(Cause::Restart);
    }
    let Some(place) = place else { return false };
    // The rollout in force when it left. Its begin is never seen later than the departure but for
    // the order in which two watches deliver.
    let in_force =
        known.rollouts.of(&place.workload.uid).rev().find(|rollout| rollout.started <= left.plus(1_000_000_000));
    match in_force {
        Some(rollout) if rollout.to.hash != place.hash => {
            blame.evidence.push(format!(
                "it was of {} {} ({}); {} {}/{} went to {}",
                place.owner.kind,
                place.owner.name,
                place.hash,
                place.workload.kind,
                place.workload.namespace,
                place.workload.name,
                described(&rollout.to),
            ));
            blame.rollout = Some(rollout.id.clone());
            blame.side = Some(Side::Old);
            blame.is(Cause::Rollout)
        }
        _ if known
            .owners
            .wanted_fell(&place.workload.uid)
            .is_some_and(|fell| left.plus(5_000_000_000).since(fell) < SCALE_DOWN_NANOS) =>
        {
            blame.evidence.push(format!("the replica count of {} fell", place.workload.name));
            blame.is(Cause::ScaleDown)
        }
        _ if deleted && in_force.is_some_and(|rollout| rollout.to.hash == place.hash) => {
            blame.evidence.push("it was of the current revision, and no replica count fell".to_owned());
            blame.is(Cause::Deleted)
        }
        _ => false,
    }
}

/// The endpoint did not leave: a new pod that was not listening yet, or a restart?
fn blame_serving(
    blame: &mut Blame,
    failed: &Failed,
    life: &Lifetime,
    place: Option<&Place>,
    known: &Known<'_>,
    last_chance: bool,
) -> bool {
    let at = failed.attempt.last_syn;
    let pod = life.pod.as_ref().and_then(|pod| known.owners.pod_by_uid(&pod.uid));
    if let Some(restarted) = pod.and_then(|pod| pod.restarted) {
        blame.evidence.push(format!("a container of it restarted {}", apart(restarted, at)));
        return blame.is(Cause::Restart);
    }
    let Some(place) = place else { return false };
    let Some(rollout) = known.rollouts.of(&place.workload.uid).next_back() else { return false };
    if life.baseline || rollout.to.hash != place.hash || life.first_answer.is_some_and(|first| first <= at) {
        return false;
    }
    // It answers later (then it had not listened yet), or never did while there was time to.
    match life.first_answer {
        Some(first) => {
            blame.evidence.push(format!("the new pod answered for the first time {}", apart(first, at)));
        }
        None if last_chance => blame.evidence.push("the new pod has not answered anybody yet".to_owned()),
        None => return false,
    }
    blame.rollout = Some(rollout.id.clone());
    blame.side = Some(Side::New);
    blame.is(Cause::Rollout)
}

fn departure(life: &Lifetime, left: Mono, at: Mono) -> String {
    let name = life.pod.as_ref().map_or_else(|| life.endpoint.to_string(), |pod| format!("pod {}", pod.name));
    format!("{name} left {}", apart(left, at))
}

/// "12 ms before the SYN".
fn apart(event: Mono, syn: Mono) -> String {
    let (nanos, word) =
        if event <= syn { (syn.since(event), "before") } else { (event.since(syn), "after") };
    let millis = nanos / 1_000_000;
    if millis < 10_000 {
        format!("{millis} ms {word} the SYN")
    } else {
        format!("{} s {word} the SYN", millis / 1_000)
    }
}

fn described(revision: &crate::model::Revision) -> String {
    match revision.revision {
        Some(number) => format!("revision {number} ({})", revision.hash),
        None => format!("revision {}", revision.hash),
    }
}

impl Blame {
    fn of(life: &Lifetime) -> Self {
        Self {
            cause: Cause::Unknown,
            side: None,
            rollout: None,
            namespace: life.namespace.clone(),
            pod: life.pod.as_ref().map_or_else(|| "".into(), |pod| pod.name.clone()),
            workload: None,
            evidence: Vec::new(),
        }
    }

    fn unknown(why: &str) -> Self {
        Self {
            cause: Cause::Unknown,
            side: None,
            rollout: None,
            namespace: "".into(),
            pod: "".into(),
            workload: None,
            evidence: vec![why.to_owned()],
        }
    }

    fn is(&mut self, cause: Cause) -> bool {
        self.cause = cause;
        true
    }
}

/// The Service a failure is about: the one dialled; without DNAT the backend's, if it has just one.
pub fn service_of(original: SocketAddr, backend: Option<SocketAddr>, endpoints: &Endpoints) -> Option<Name> {
    if let Some(name) = endpoints.service_at(original) {
        return Some(name.clone());
    }
    if backend.is_some_and(|backend| backend != original)
        && let Some(name) = endpoints.service_at_node_port(original.port())
    {
        return Some(name.clone());
    }
    let lives = endpoints.at(backend?);
    let life = lives.last()?;
    let mut services = life.services.iter();
    match (services.next(), services.next()) {
        (Some(only), None) => Some((life.namespace.clone(), only.clone())),
        _ => None,
    }
}
