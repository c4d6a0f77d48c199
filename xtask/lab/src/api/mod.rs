//! The lab's API server: the Kubernetes HTTP protocol over plain HTTP/1.1, with everything kept in
//! memory.
//!
//! Lists (chunked, at a revision, by label and field), watches (bookmarks, streamed lists, 410
//! Gone), writes with optimistic concurrency and generations, and the two-step deletion of pods
//! behave as in Kubernetes 1.36, whose recorded streams the tests compare them with. Not there:
//! server-side apply, JSON patch, admission, finalizers, authentication (a bearer token is the
//! caller's name) and protobuf.
//!
//! # Layout
//! - [`resource`]: the table of resources
//! - [`store`]: objects, the revision counter, the bounded history
//! - `write`, `strategic`, `delete`, `defaults`: what writes do
//! - `list`, `watch`, `selector`, `view`: what reads see
//! - `request`, `route`, `serve`, `discovery`, `failure`: HTTP
//! - `access`: who may do what; `proxy`: the way through the server to a pod
//! - [`Entrance`]: a way in that can be shut
//! - [`Handle`]: what the lab asks of a running server; [`dials`], [`usage`]: what it turns and
//!   reads

mod access;
mod client;
mod defaults;
mod delete;
pub mod dials;
mod discovery;
mod entrance;
mod failure;
mod handle;
mod list;
mod object;
mod proxy;
mod request;
pub mod resource;
mod route;
mod selector;
mod serve;
pub mod store;
mod strategic;
pub mod usage;
mod view;
mod watch;
mod write;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::watch as signal;
use tokio_util::sync::CancellationToken;

pub use client::client;
use dials::Dials;
pub use discovery::VERSION;
pub use entrance::Entrance;
use failure::Failure;
pub use handle::Handle;
use store::{Snapshot, State};
use usage::UsageTable;

/// How the server starts.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many writes the history keeps; a watch from before gets 410 Gone.
    pub history: usize,
    /// How often a watch that allows it gets a bookmark (a real server: about once a minute).
    pub bookmark_interval: Duration,
    /// The version that it says it is.
    pub version: String,
    /// The state to go on from, when it is another server's successor.
    pub state: Option<Snapshot>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            history: 20_000,
            bookmark_interval: Duration::from_secs(10),
            version: discovery::VERSION.to_owned(),
            state: None,
        }
    }
}

/// The first deletion of a pod: the truth about who removed it and when.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Removal {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID.
    pub uid: String,
    /// When the server took the deletion, uncut (its `deletionTimestamp` has a resolution of 1 s).
    pub at: Timestamp,
    /// Who asked for it: the bearer token of the request.
    pub user: String,
    /// The grace that the pod was given.
    pub grace_seconds: i64,
}

/// What all requests share.
#[derive(Debug)]
struct Server {
    options: Options,
    state: Mutex<State>,
    /// The revision of the last write: watches wake on it.
    latest: signal::Sender<u64>,
    dials: signal::Sender<Dials>,
    usage: UsageTable,
    stop: CancellationToken,
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every write is one insertion after all checks, so a panic elsewhere leaves the state
        // whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, look: impl FnOnce(&State) -> Result<T, Failure>) -> Result<T, Failure> {
        look(&self.lock())
    }

    fn write<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut state = self.lock();
        let result = change(&mut state);
        self.latest.send_replace(state.revision());
        result
    }
}

/// Starts the server on a listener and returns at once. It runs until [`Handle::shutdown`].
///
/// Must be called inside a tokio runtime.
pub fn start(listener: TcpListener, options: Options) -> Handle {
    let address = listener.local_addr().ok();
    let state = State::new(options.history, options.state.clone());
    let server = Arc::new(Server {
        latest: signal::Sender::new(state.revision()),
        dials: signal::Sender::new(Dials::default()),
        state: Mutex::new(state),
        usage: UsageTable::default(),
        stop: CancellationToken::new(),
        options,
    });
    tokio::spawn(serve::serve(listener, Arc::clone(&server), server.stop.clone()));
    Handle::new(server, address)
}
