//! Evidence in words.

use crate::{
    attempts::Failed,
    endpoints::Lifetime,
    model::{Mono, Revision},
};

pub(super) fn name(life: &Lifetime) -> String {
    life.pod.as_ref().map_or_else(|| life.endpoint.to_string(), |pod| format!("pod {}", pod.name))
}

/// "12 ms before the SYN".
pub(super) fn apart(event: Mono, failed: &Failed) -> String {
    let (moment, what) = (failed.moment(), failed.what());
    let (nanos, word) = if event <= moment {
        (moment.since(event), "before")
    } else {
        (event.since(moment), "after")
    };
    let millis = nanos / 1_000_000;
    if millis < 10_000 {
        format!("{millis} ms {word} {what}")
    } else {
        format!("{} s {word} {what}", millis / 1_000)
    }
}

pub(super) fn revision(revision: &Revision) -> String {
    match revision.revision {
        Some(number) => format!("revision {number} ({})", revision.hash),
        None => format!("revision {}", revision.hash),
    }
}
