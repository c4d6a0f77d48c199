//! An address and port that refuse everybody, and always did: a Service's port that its pods do not listen
//! on. Whatever leaves or comes there, it did not close it.

use super::{Blame, EVIDENCE_NANOS, Known};
use crate::{
    attempts::Failed,
    model::{Class, Mono},
};

/// It must have refused for so long before: by then the watches have told of whatever closed it.
const REFUSED_FOR_NANOS: u64 = EVIDENCE_NANOS;

/// Whether what was dialled refused this node's clients long before that, and has never answered any.
pub(super) fn explains(
    blame: &mut Blame,
    failed: &Failed,
    before: Mono,
    known: &Known<'_>,
) -> bool {
    let original = &failed.attempt.key.original;
    let since = known.never_answered.get(original).filter(|_| failed.class == Class::Refused);
    let Some(since) = since.filter(|since| since.plus(REFUSED_FOR_NANOS) <= before) else {
        return false;
    };
    let seconds = before.since(*since) / 1_000_000_000;
    blame.because(format!(
        "{original} refused already {seconds} s before, and has never answered anybody on this node"
    ));
    true
}
