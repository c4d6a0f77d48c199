//! The endpoint did not leave: a restart, or a new pod that was not listening yet?

use super::{Blame, Known, departure, never_open, words};
use crate::{
    attempts::Failed,
    endpoints::Lifetime,
    model::{Cause, Mono, Side},
    owners::Place,
};

/// What is known of the answers of an endpoint on this node.
enum Answers {
    /// The first came then.
    First(Mono),
    /// There was none so far.
    None,
    /// Nobody counted them.
    Unknown,
}

/// Names the cause of a failure on an endpoint that was serving, if that is known by now.
pub(super) fn blame(
    blame: &mut Blame,
    failed: &Failed,
    life: &Lifetime,
    place: Option<&Place>,
    known: &Known<'_>,
    last_chance: bool,
) -> bool {
    let syn = failed.last_syn();
    let pod = life.pod.as_ref().and_then(|pod| known.owners.pod_by_uid(&pod.uid));
    if let Some(restarted) = departure::restart(pod, failed.moment()) {
        blame.because(format!("a container of it restarted {}", words::apart(restarted, failed)));
        return blame.is(Cause::Restart);
    }
    // A pod that has answered is not new.
    if failed.was_answered() {
        return false;
    }
    // Of one that was there before the agent nobody knows whether it had answered.
    let Some(place) = place.filter(|_| !life.baseline) else { return false };
    let made_it = |rollout: &&crate::model::Rollout| rollout.to.hash == place.hash;
    let mut rollouts = known.rollouts.of(&place.workload.uid).rev().filter(made_it);
    let Some(rollout) = rollouts.next() else { return false };
    if never_open::explains(blame, failed, rollout.started, known) {
        return false;
    }
    match answers(failed, life, known) {
        // It answered later: then it had not listened yet.
        Answers::First(first) if first > syn => {
            let apart = words::apart(first, failed);
            blame.because(format!("the new pod answered for the first time {apart}"));
        }
        Answers::None if last_chance => {
            blame.because("the new pod has not answered anybody yet".to_owned());
        }
        _ => return false,
    }
    blame.is_rollout(rollout.id.clone(), Side::New)
}

fn answers(failed: &Failed, life: &Lifetime, known: &Known<'_>) -> Answers {
    if let Some(first) = life.first_answer {
        return Answers::First(first);
    }
    // Fresh SYNs are counted by backend where a Service chose it, else by what was dialled.
    let is_counted = if failed.attempt.dnat {
        life.answers_known
    } else {
        known.counts.get(&failed.attempt.key.original).is_some_and(|counts| counts.answered == 0)
    };
    if is_counted { Answers::None } else { Answers::Unknown }
}
