//! One bad replica among good ones: ready, not leaving, failing for minutes.

use super::{Blame, Known};
use crate::{
    attempts::Failed,
    endpoints::{Lifetime, Name},
    model::Cause,
};

/// Names the cause if the pod has failed for long enough while most of its siblings have not, and
/// the Service has answered. Where they fail as well it is something that all of them share.
pub(super) fn blame(
    blame: &mut Blame,
    failed: &Failed,
    life: &Lifetime,
    known: &Known<'_>,
) -> bool {
    let streak = life.pod.as_ref().and_then(|pod| known.failing.streak(&pod.uid));
    let Some(streak) = streak.filter(|streak| {
        streak.last.since(streak.since) >= known.bad_backend_after
            && streak.since <= failed.first_syn()
    }) else {
        return false;
    };
    let dialled = known.counts.get(&failed.attempt.key.original);
    if dialled.is_none_or(|counts| counts.answered <= streak.answered) {
        return false;
    }
    let services: Vec<Name> =
        life.services.iter().map(|name| (life.namespace.clone(), name.clone())).collect();
    let siblings =
        services.iter().flat_map(|name| known.endpoints.of_service(name)).filter(|other| {
            let others_pod = other.pod.as_ref().is_some_and(|pod| !life.is_pod(&pod.uid));
            others_pod && other.ready.is_some() && other.left.is_none()
        });
    let (mut good, mut bad) = (0_usize, 0_usize);
    for sibling in siblings {
        let fails = sibling
            .pod
            .as_ref()
            .is_some_and(|pod| known.failing.has_failed_since(&pod.uid, streak.since));
        *(if fails { &mut bad } else { &mut good }) += 1;
    }
    if good <= bad {
        return false;
    }
    let seconds = streak.last.since(streak.since) / 1_000_000_000;
    blame.because(format!(
        "it has been ready and failing for {seconds} s, while {good} siblings did not fail"
    ));
    blame.is(Cause::BadBackend)
}
