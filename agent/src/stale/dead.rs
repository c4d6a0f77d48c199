//! Whether an entry's backend is no more, and whose it was.

use super::Tracked;
use crate::{
    endpoints::{Endpoints, Lifetime},
    model::Transport,
};

/// Whose endpoint the entry leads to, if that one has left; nothing while it serves, or where none was
/// ever seen. One that is leaving may still answer, and its unanswered entries are stale all the same:
/// the rules lead elsewhere as soon as the proxy knows.
pub fn dead<'a>(tracked: &Tracked, endpoints: &'a Endpoints) -> Option<&'a Lifetime> {
    let backend = tracked.entry.backend;
    let lives: Vec<&Lifetime> = match tracked.entry.key.protocol {
        Transport::Tcp => endpoints.at(backend).iter().collect(),
        // Only TCP ports are followed: a UDP entry belongs to whoever had the address.
        Transport::Udp => endpoints.on(backend.ip()).collect(),
    };
    let present = lives.iter().filter(|life| life.left.is_none());
    // One that came later has the address now; the entry was made before.
    if present.clone().any(|life| life.first_seen <= tracked.first_seen) {
        return None;
    }
    let newest = present.map(|life| life.first_seen).min();
    let before = lives.iter().filter(|life| {
        life.left.is_some() && newest.is_none_or(|newest| life.first_seen <= newest)
    });
    before.max_by_key(|life| (life.first_seen <= tracked.first_seen, life.left)).copied()
}
