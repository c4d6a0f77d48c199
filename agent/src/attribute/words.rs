//! Evidence in words.

use crate::{
    endpoints::Lifetime,
    model::{Mono, Revision},
};

pub(super) fn name(life: &Lifetime) -> String {
    life.pod.as_ref().map_or_else(|| life.endpoint.to_string(), |pod| format!("pod {}", pod.name))
}

/// "12 ms before the SYN".
pub(super) fn apart(event: Mono, syn: Mono) -> String {
    let (nanos, word) =
        if event <= syn { (syn.since(event), "before") } else { (event.since(syn), "after") };
    let millis = nanos / 1_000_000;
    if millis < 10_000 {
        format!("{millis} ms {word} the SYN")
    } else {
        format!("{} s {word} the SYN", millis / 1_000)
    }
}

pub(super) fn revision(revision: &Revision) -> String {
    match revision.revision {
        Some(number) => format!("revision {number} ({})", revision.hash),
        None => format!("revision {}", revision.hash),
    }
}
