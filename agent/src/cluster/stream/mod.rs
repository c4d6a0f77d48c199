//! One list+watch that never gives up, as a sequence of [`Event`]s.
//!
//! Not `kube::runtime::watcher`, for four reasons: it does not say that a watch was closed or begun
//! again; it retries a version for ever that the server refuses as such (a 410 or a 504 as the
//! answer's code rather than as an event); it can only begin with a list, and a followed workload's
//! pods are watched from a version of the past; and it has no way back from streamed lists.

mod round;

use std::{
    future::Future,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use kube::{Api, api::WatchParams, core::Status};

use super::{
    connect::chain,
    object::{Facts, Object},
    stats::{Restart, WatchState, WatchStats},
    timeline::Timeline,
};
use round::Run;

/// The longest the server is asked to keep one watch open.
const WATCH_SECONDS: u32 = 290;

/// How much shorter it may be.
const WATCH_SPREAD: Duration = Duration::from_secs(90);

/// A part of a time, another at each call and on each node.
fn share_of(most: Duration) -> Duration {
    most.mul_f64(
        f64::from(u16::try_from(RandomState::new().hash_one(0) % 1_024).unwrap_or(0)) / 1_024.0,
    )
}

/// What a watch says.
#[derive(Debug)]
pub(super) enum Event<F> {
    /// A list begins: what it turns out to lack is gone. Until this version, if any, everything
    /// had been told: what is lacking was still there then.
    ListBegins(Option<Arc<str>>),
    /// The list has this object.
    Listed(Object<F>),
    /// The list is complete.
    ListEnds,
    /// An object was added or changed.
    Changed(Object<F>),
    /// An object was deleted; its last content.
    Gone(Object<F>),
    /// How the watch stands has changed.
    State(WatchState),
}

/// Nobody listens to the events any more: the end of the watch.
#[derive(Debug)]
pub(super) struct Stopped;

/// Receives the events.
pub(super) trait Sink<F>: Send {
    /// Takes one, waiting as long as its own receiver is full.
    fn take(&mut self, event: Event<F>) -> impl Future<Output = Result<(), Stopped>> + Send;
}

/// Whether this server streams lists: learned once, shared by all watches.
#[derive(Clone, Debug, Default)]
pub(super) struct ListStyle(Arc<Learned>);

#[derive(Debug, Default)]
struct Learned {
    paged: AtomicBool,
    streamed: AtomicBool,
}

impl ListStyle {
    fn paged(&self) -> bool {
        self.0.paged.load(Relaxed)
    }

    fn stop_streaming(&self) {
        self.0.paged.store(true, Relaxed);
    }

    /// A streamed list was completed: one that is not is a server in trouble.
    fn has_streamed(&self) -> bool {
        self.0.streamed.load(Relaxed)
    }

    fn streamed(&self) {
        self.0.streamed.store(true, Relaxed);
    }
}

/// What to watch.
pub(super) struct Source<F> {
    /// Where.
    pub(super) api: Api<Object<F>>,
    /// `resource.group`, for errors.
    pub(super) resource: String,
    /// Label selector.
    pub(super) labels: Option<String>,
    /// Field selector.
    pub(super) fields: Option<String>,
    /// Version to go on from; `None` begins with a list.
    pub(super) since: Option<String>,
    /// See [`ListStyle`].
    pub(super) style: ListStyle,
    /// See [`Timeline`].
    pub(super) timeline: Timeline,
    /// Where to count.
    pub(super) stats: WatchStats,
}

/// Why one round of list or watch ended.
struct End {
    reason: Restart,
    error: Option<String>,
    /// The server had answered: the watch was open.
    opened: bool,
}

impl End {
    fn closed(opened: bool) -> Self {
        Self { reason: Restart::Closed, error: None, opened }
    }
}

enum Stop {
    End(End),
    Stopped,
}

impl From<Stopped> for Stop {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<End> for Stop {
    fn from(end: End) -> Self {
        Self::End(end)
    }
}

impl<F: Facts> Source<F> {
    /// Runs until nobody listens.
    pub(super) async fn run(self, sink: impl Sink<F>) -> Stopped {
        let Err(stopped) = Run::new(self, sink).run().await;
        stopped
    }

    fn watch_params(&self, send_initial_events: bool) -> WatchParams {
        // Spread, so that a fleet of agents does not come back all at once.
        let timeout = Duration::from_secs(WATCH_SECONDS.into()) - share_of(WATCH_SPREAD);
        WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: u32::try_from(timeout.as_secs()).ok(),
            bookmarks: true,
            send_initial_events,
        }
    }

    fn failure(&self, verb: &'static str, error: kube::Error) -> End {
        let resource = &self.resource;
        match error {
            kube::Error::Api(status) => {
                self.stats.all.requested(verb, resource, status.code);
                self.refusal(verb, &status, false)
            }
            error => {
                self.stats.all.requested(verb, resource, 0);
                End {
                    reason: Restart::Error,
                    error: Some(format!("cannot {verb} {resource}: {}", chain(&error))),
                    opened: false,
                }
            }
        }
    }

    fn refusal(&self, verb: &'static str, status: &Status, opened: bool) -> End {
        let (code, message, resource) = (status.code, &status.message, &self.resource);
        let causes = status.details.as_ref().map(|details| &details.causes[..]).unwrap_or_default();
        let ahead = causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
            || message.contains("Too large resource version");
        let (reason, remedy) = match code {
            410 => (Restart::Gone410, ""),
            401 => (Restart::Denied, ": check the agent's credentials"),
            403 => (Restart::Denied, ": grant it in the agent's ClusterRole"),
            _ if ahead => (Restart::Ahead, ""),
            _ => (Restart::Error, ""),
        };
        let error = format!("cannot {verb} {resource}: {code} {message}{remedy}");
        if reason == Restart::Denied {
            self.stats.all.denied(verb, resource, &error);
        }
        End { reason, error: Some(error), opened }
    }
}
