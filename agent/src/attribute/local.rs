//! A Service with a traffic policy of Local sends to endpoints of the same node only. Without any there,
//! the proxy's rule drops the SYN, where it would reject one to a Service without any endpoint at all.

use super::{Blame, Known, undirected, whose::Whose};
use crate::{
    attempts::Failed,
    endpoints::{Lifetime, Name},
    model::{Class, Mono},
};

/// The name of the drop reason of a netfilter rule.
const BY_RULE: &str = "NETFILTER_DROP";

/// Whether the SYN was dropped because this node had no endpoint of the Service.
pub(super) fn drops(failed: &Failed, service: &Name, known: &Known<'_>) -> bool {
    let Some(facts) = known.endpoints.service_facts(service) else { return false };
    let original = failed.attempt.key.original.ip();
    let is_internal = facts.cluster_ips.contains(&original);
    let is_local = if is_internal { facts.internal_local } else { facts.external_local };
    let syn = failed.last_syn();
    let serves = |life: &Lifetime| {
        let since = life.ready.is_some_and(|ready| ready <= syn);
        since && life.left.is_none_or(|left: Mono| left > syn)
    };
    let mut here = of_this_node(service, known);
    is_local
        && undirected::is(failed)
        && failed.dropped.as_deref() == Some(BY_RULE)
        && !here.any(serves)
}

/// It is about the endpoint of this node that left last.
pub(super) fn whose<'a>(failed: &Failed, service: &'a Name, known: &Known<'a>) -> Whose<'a> {
    let left = of_this_node(service, known)
        .filter(|life| life.left_after.is_some_and(|left| left <= failed.ended));
    left.max_by_key(|life| life.left).map_or(Whose::Nobody, Whose::One)
}

/// Says so.
pub(super) fn explain(blame: &mut Blame) {
    blame.class = Class::Rejected;
    blame.because(
        "the Service's traffic policy is Local, and this node had no endpoint of it".to_owned(),
    );
}

fn of_this_node<'a>(
    service: &'a Name,
    known: &Known<'a>,
) -> impl Iterator<Item = &'a Lifetime> + use<'a> {
    let node = known.node;
    let lives = known.endpoints.of_service(service);
    lives.filter(move |life| life.node.as_deref() == Some(node))
}
