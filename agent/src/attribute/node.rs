//! Whether the endpoint's node is lost.

use super::{Blame, Known};
use crate::{
    attempts::Failed,
    endpoints::Lifetime,
    model::{Cause, Class},
};

/// Names the cause if the node is gone or not ready, by a word that is younger than the failure. A
/// RST is an answer: its node lives.
pub(super) fn blame(
    blame: &mut Blame,
    failed: &Failed,
    life: &Lifetime,
    known: &Known<'_>,
) -> bool {
    if !matches!(failed.class, Class::Timeout | Class::Unreachable) {
        return false;
    }
    let lost = life.node.as_ref().and_then(|node| known.nodes.lost(node, failed.first_syn()));
    let Some(why) = lost else { return false };
    blame.because(why);
    blame.is(Cause::NodeLoss)
}
