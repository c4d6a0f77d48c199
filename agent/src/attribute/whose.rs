//! Whose time it was at the backend's address when the SYN was sent: addresses are reused.

use crate::{
    attempts::Failed,
    endpoints::{Endpoints, Lifetime, Name, WATCH_LAG_NANOS},
    model::Class,
};

/// How long after its owner is gone a conntrack entry may still pin: the `syn_sent` timeout
/// (120 s), once refreshed, and some slack.
const PINNED_NANOS: u64 = 300_000_000_000;

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
    let Some(index) = lives.iter().rposition(|life| life.first_seen <= syn) else {
        // Sent before this agent heard of the endpoint; not before that can have existed.
        let first = lives.first().filter(|first| first.begun_after <= syn);
        return first.map_or(Whose::Nobody, Whose::One);
    };
    let life = &lives[index];
    if failed.attempt.stale {
        // The entry was made earlier, perhaps in the predecessor's time.
        let before = index.checked_sub(1).map(|before| &lives[before]);
        let pins =
            |before: &&Lifetime| before.gone.is_some_and(|gone| syn.since(gone) < PINNED_NANOS);
        return match before.filter(pins) {
            Some(before) if life.left.is_none() => Whose::One(before),
            Some(before) => Whose::Either(before, life),
            None => Whose::One(life),
        };
    }
    if life.gone.is_some_and(|gone| gone <= syn)
        && let Some(next) = lives.get(index + 1)
        && next.begun_after <= syn
        && next.first_seen.since(syn) < WATCH_LAG_NANOS
    {
        return Whose::Either(life, next);
    }
    Whose::One(life)
}

/// No backend was chosen: it is about the Service's endpoint that left last, and so emptied it.
fn emptied<'a>(failed: &Failed, service: &'a Name, endpoints: &'a Endpoints) -> Whose<'a> {
    let left = endpoints
        .of_service(service)
        .filter(|life| life.left_after.is_some_and(|left| left <= failed.ended));
    left.max_by_key(|life| life.left).map_or(Whose::Nobody, Whose::One)
}
