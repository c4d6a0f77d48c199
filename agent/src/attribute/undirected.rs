//! The Service's address was dialled, and the SYN went to that very address: the rules chose no
//! backend, and (while they were being replaced) did not reject it either. Its conntrack entry then
//! has no backend, and pins the next SYNs of the tuple as any other entry does.

use super::whose::{PINNED_NANOS, Whose, emptied};
use crate::{
    attempts::Failed,
    endpoints::{Endpoints, Name},
    model::Class,
};

/// Whether a SYN went where it was sent, undecided by any rule.
pub(super) fn is(failed: &Failed) -> bool {
    let attempt = &failed.attempt;
    let unchanged = attempt.backend == Some(attempt.key.original) && !attempt.dnat;
    unchanged && failed.class != Class::Rejected
}

/// Whose departure left the Service without a usable endpoint; nobody's if another one served then.
pub(super) fn whose<'a>(failed: &Failed, service: &'a Name, endpoints: &'a Endpoints) -> Whose<'a> {
    let Whose::One(last) = emptied(failed, service, endpoints) else { return Whose::Nobody };
    let Some(emptied) = last.left else { return Whose::Nobody };
    let others_served = endpoints.of_service(service).any(|other| {
        other.ready.is_some_and(|ready| ready <= emptied)
            && other.left.is_none_or(|left| left > emptied)
    });
    let is_recent = failed.last_syn().since(emptied) < PINNED_NANOS;
    if is_recent && !others_served { Whose::One(last) } else { Whose::Nobody }
}
