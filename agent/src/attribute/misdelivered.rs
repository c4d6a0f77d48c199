//! A SYN followed the conntrack entry of an earlier one, and was answered. By the same pod, or by another
//! of the Service, that is no failure; by a pod that is not behind the Service it is one, though the
//! client may never know.

use std::{net::SocketAddr, sync::Arc};

use super::{Blame, Decision, Known};
use crate::{
    attempts::Failed,
    endpoints::{Endpoints, Lifetime, Name, WATCH_LAG_NANOS},
};

/// What to do unless it is proven that another workload answered.
pub(super) fn unless_wrong(
    failed: &Failed,
    service: Option<&Name>,
    known: &Known<'_>,
) -> Option<Decision> {
    let (Some(service), Some(backend)) = (service, failed.attempt.backend) else {
        return Some(Decision::Foreign);
    };
    match answerer(backend, known.endpoints) {
        Some(answerer) if is_another(answerer, backend, service, known.endpoints) => None,
        // The watch may not have told yet who has the address now.
        _ if known.now.since(failed.ended) < WATCH_LAG_NANOS => Some(Decision::NotYet),
        _ => Some(Decision::Delivered),
    }
}

/// Says who answered.
pub(super) fn explain(blame: &mut Blame, failed: &Failed, known: &Known<'_>) {
    let answerer = failed.attempt.backend.and_then(|backend| answerer(backend, known.endpoints));
    let pod = answerer.and_then(|life| life.pod.as_ref());
    let name: Arc<str> = pod.map_or_else(|| "".into(), |pod| pod.name.clone());
    blame.because(format!(
        "pod {name} has the address now and answered; it is not behind the Service"
    ));
}

/// Who has the address and port now; else the only pod that has the address.
fn answerer(backend: SocketAddr, endpoints: &Endpoints) -> Option<&Lifetime> {
    let present = |life: &&Lifetime| life.gone.is_none();
    let exact = endpoints.at(backend).iter().filter(present).max_by_key(|life| life.first_seen);
    exact.or_else(|| {
        let mut others = endpoints.on(backend.ip()).filter(present);
        let one = others.next()?;
        // Pods that share a node's address are told apart by their ports only.
        others.all(|other| other.pod == one.pod).then_some(one)
    })
}

/// Whether it is another pod than those which the Service had there, and not behind the Service itself.
fn is_another(
    answerer: &Lifetime,
    backend: SocketAddr,
    service: &Name,
    endpoints: &Endpoints,
) -> bool {
    let backs =
        |life: &&Lifetime| life.namespace == service.0 && life.services.contains(&service.1);
    let mut own = endpoints.at(backend).iter().filter(backs);
    let had_another = own.clone().any(|life| life.gone.is_some() && life.pod != answerer.pod);
    let is_own = own.any(|life| life.pod == answerer.pod)
        || endpoints.on(backend.ip()).filter(backs).any(|life| life.pod == answerer.pod);
    answerer.pod.is_some() && had_another && !is_own
}
