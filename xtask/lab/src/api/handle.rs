//! What the lab asks of a running server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rollrace_deploy::role::Role;
use tokio::net::TcpListener;

use super::entrance::Open;
use super::store::Snapshot;
use super::usage::{Usage, UsageKey};
use super::{Removal, Server, serve};

/// A running server. Clones are the same server.
#[derive(Debug, Clone)]
pub struct Handle {
    server: Arc<Server>,
    address: Option<SocketAddr>,
}

impl Handle {
    pub(super) fn new(server: Arc<Server>, address: Option<SocketAddr>) -> Self {
        Self { server, address }
    }

    /// The server's address as a client on the same machine dials it: `http://ADDRESS:PORT`.
    pub fn url(&self) -> String {
        self.address.map(|address| format!("http://{address}")).unwrap_or_default()
    }

    /// Delivers each watch event that much later to the users whose name begins with the prefix,
    /// from now on and for events that are already held back. The longest prefix counts. Lists
    /// answer from the present.
    pub fn set_watch_delay(&self, user_prefix: &str, delay: Duration) {
        self.server.dials.send_modify(|dials| dials.set_watch_delay(user_prefix, delay));
    }

    /// Answers every request of these users that much later.
    pub fn set_request_delay(&self, user_prefix: &str, delay: Duration) {
        self.server.dials.send_modify(|dials| dials.set_request_delay(user_prefix, delay));
    }

    /// Ends the running watches of these users, in good order.
    pub fn close_watches(&self, user_prefix: &str) {
        self.server.dials.send_modify(|dials| dials.close_watches(user_prefix));
    }

    /// Refuses (403) a verb on a resource (its plural), either of which may be `*`, to these users.
    pub fn deny(&self, user_prefix: &str, verb: &str, plural: &str) {
        self.server.dials.send_modify(|dials| dials.deny(user_prefix, verb, plural));
    }

    /// Lets these users do only what a role allows, from now on.
    pub fn bind_role(&self, user_prefix: &str, role: Role) {
        self.server.dials.send_modify(|dials| dials.bind(user_prefix, role));
    }

    /// What was asked for beyond a role, one line a user, verb and resource.
    pub fn overstepped(&self) -> Vec<String> {
        let usage = self.usage().into_iter().filter(|(_, usage)| usage.overstepped > 0);
        usage
            .map(|(key, usage)| {
                let (user, verb, resource) = (&key.user, key.verb, &key.resource);
                format!(
                    "{user} may not {verb} {resource} by its role, and asked {} times",
                    usage.overstepped
                )
            })
            .collect()
    }

    /// Takes back every refusal for exactly this prefix.
    pub fn allow_all(&self, user_prefix: &str) {
        self.server.dials.send_modify(|dials| dials.allow_all(user_prefix));
    }

    /// Forgets the history as far as these users are concerned: a watch of theirs that resumes from
    /// before now gets 410 Gone.
    pub fn forget(&self, user_prefix: &str) {
        let now = self.server.lock().revision();
        self.server.dials.send_modify(|dials| dials.forget(user_prefix, now));
    }

    /// Requests and bytes so far, by user, verb and resource.
    pub fn usage(&self) -> BTreeMap<UsageKey, Usage> {
        self.server.usage.all()
    }

    /// A copy of the state, for `Options::state` of a successor.
    pub fn snapshot(&self) -> Snapshot {
        self.server.lock().snapshot()
    }

    /// Every pod deletion so far, oldest first.
    pub fn removals(&self) -> Vec<Removal> {
        self.server.lock().removals.clone()
    }

    /// Serves on a further listener, which can be stopped alone.
    pub(super) fn serve_also(&self, listener: TcpListener) -> Open {
        let stop = self.server.stop.child_token();
        let task = tokio::spawn(serve::serve(listener, Arc::clone(&self.server), stop.clone()));
        Open { stop, task }
    }
}

/// What only tests need.
#[cfg_attr(not(test), expect(dead_code, reason = "for the tests of the protocol"))]
impl Handle {
    /// Forgets the history: a watch that resumes from before now gets 410 Gone.
    pub fn compact(&self) {
        self.server.lock().compact();
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.server.lock().revision()
    }

    /// Stops: the listener is closed and every connection is cut. A successor may bind the same
    /// address.
    pub fn shutdown(&self) {
        self.server.stop.cancel();
    }
}
