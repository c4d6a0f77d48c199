//! Whose time it was at the backend's address when the SYN was sent: addresses are reused.

use crate::{
    attempts::Failed,
    endpoints::{Endpoints, Lifetime, Name, WATCH_LAG_NANOS},
    model::{Class, Mono},
};

/// How long after its owner is gone a conntrack entry may still pin: the `syn_sent` timeout
/// (120 s), once refreshed, and some slack.
pub(super) const PINNED_NANOS: u64 = 300_000_000_000;

/// Whose it was.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose<'a> {
    /// Nobody's who is known.
    Nobody,
    /// One pod's.
    One(&'a Lifetime),
    /// The earlier or the later one's: both fit alike.
    Either(&'a Lifetime, &'a Lifetime),
}

pub(super) fn whose<'a>(
    failed: &Failed,
    service: Option<&'a Name>,
    endpoints: &'a Endpoints,
) -> Whose<'a> {
    if failed.class == Class::Rejected {
        return service.map_or(Whose::Nobody, |service| emptied(failed, service, endpoints));
    }
    let lives = failed.attempt.backend.map_or(&[][..], |backend| endpoints.at(backend));
    let syn = failed.last_syn();
    let begun = || lives.iter().filter(|life| life.first_seen <= syn);
    // Who was still there; else who was there last.
    let was_there_until = |life: &&Lifetime| life.gone.unwrap_or(Mono(u64::MAX)).min(syn);
    let Some(life) = begun().max_by_key(was_there_until) else {
        // Sent before this agent heard of the endpoint; not before that can have existed.
        let first = lives.first().filter(|first| first.begun_after <= syn);
        return first.map_or(Whose::Nobody, Whose::One);
    };
    if failed.attempt.stale {
        // The entry was made earlier, perhaps in the predecessor's time.
        let before = begun().filter(|before| {
            before.gone.is_some_and(|gone| gone <= syn && syn.since(gone) < PINNED_NANOS)
                && before.pod != life.pod
        });
        return match before.max_by_key(|before| before.gone) {
            Some(before) if life.left.is_none() => Whose::One(before),
            Some(before) => Whose::Either(before, life),
            None => Whose::One(life),
        };
    }
    let next = lives.iter().find(|life| life.first_seen > syn && life.begun_after <= syn);
    match next.filter(|next| next.first_seen.since(syn) < WATCH_LAG_NANOS) {
        // Somebody answered it.
        Some(next)
            if failed.was_answered()
                && life.gone.is_some_and(|gone| gone <= syn)
                && next.pod != life.pod =>
        {
            Whose::One(next)
        }
        Some(next) if life.gone.is_some_and(|gone| gone <= syn) && next.pod != life.pod => {
            Whose::Either(life, next)
        }
        _ => Whose::One(life),
    }
}

/// No backend was chosen: it is about the Service's endpoint that left last, and so emptied it.
pub(super) fn emptied<'a>(
    failed: &Failed,
    service: &'a Name,
    endpoints: &'a Endpoints,
) -> Whose<'a> {
    let left = endpoints
        .of_service(service)
        .filter(|life| life.left_after.is_some_and(|left| left <= failed.ended));
    left.max_by_key(|life| life.left).map_or(Whose::Nobody, Whose::One)
}
