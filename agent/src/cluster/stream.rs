//! One list+watch that never gives up, as a sequence of [`Event`]s.
//!
//! Not `kube::runtime::watcher`, for four reasons: it does not say that a watch was closed or begun
//! again; it retries a version for ever that the server refuses as such (a 410 or a 504 as the
//! answer's code rather than as an event); it can only begin with a list, and a followed workload's
//! pods are watched from a version of the past; and it has no way back from streamed lists.

use std::{
    convert::Infallible,
    future::Future,
    hash::{BuildHasher, RandomState},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::{Stream, StreamExt};
use kube::{
    Api,
    api::{ListParams, VersionMatch, WatchEvent, WatchParams},
    core::Status,
    runtime::watcher::DefaultBackoff,
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    object::{Complaint, Facts, Object},
    stats::{Restart, WatchState, WatchStats},
};

/// client-go's own page size.
const PAGE: u32 = 500;
/// The longest the server is asked to keep one watch open.
const WATCH_SECONDS: u32 = 290;
/// Past the server's timeout by this much, a silent connection is taken for dead.
const SILENCE_MARGIN: Duration = Duration::from_secs(5);
/// A server that knows no streamed lists ignores the wish, and then never says that the list is
/// complete: after this long without an object, the list is asked for in pages.
const LIST_SILENCE: Duration = Duration::from_secs(10);
/// A watch that lasted this long is begun again at once.
const LASTED: Duration = Duration::from_secs(1);

/// A version may be refused this long after the last list without that being a server in trouble.
const RELIST_AT_ONCE: Duration = Duration::from_secs(5);

/// What a watch says.
#[derive(Debug)]
pub(super) enum Event<F> {
    /// A list begins: what it turns out to lack is gone.
    ListBegins,
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
pub(super) struct ListStyle(Arc<AtomicBool>);

impl ListStyle {
    fn paged(&self) -> bool {
        self.0.load(Relaxed)
    }

    fn stop_streaming(&self) {
        self.0.store(true, Relaxed);
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
        let version = self.since.clone();
        let state = WatchState::Starting;
        let mut run =
            Run { source: self, sink, version, relist: false, listed: None, told: false, state };
        match run.run().await {
            Ok(never) => match never {},
            Err(stopped) => stopped,
        }
    }

    fn watch_params(&self, send_initial_events: bool) -> WatchParams {
        // Spread, so that a fleet of agents does not come back all at once.
        let spread = u32::try_from(RandomState::new().hash_one(0) % 90).unwrap_or(0);
        WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: Some(WATCH_SECONDS - spread),
            bookmarks: true,
            send_initial_events,
        }
    }

    fn failure(&self, verb: &str, error: kube::Error) -> End {
        let resource = &self.resource;
        match error {
            kube::Error::Api(status) => {
                self.stats.all.requested(resource, status.code);
                self.refusal(verb, &status, false)
            }
            error => {
                self.stats.all.requested(resource, 0);
                let error = anyhow::Error::new(error);
                End {
                    reason: Restart::Error,
                    error: Some(format!("cannot {verb} {resource}: {error:#}")),
                    opened: false,
                }
            }
        }
    }

    fn refusal(&self, verb: &str, status: &Status, opened: bool) -> End {
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
        End { reason, error: Some(error), opened }
    }
}

struct Run<F, S> {
    source: Source<F>,
    sink: S,
    /// Version that the watch can go on from; `None`: a list is needed.
    version: Option<String>,
    /// The next list must not come from a cache that may lag behind what was already seen.
    relist: bool,
    /// When the last list was complete.
    listed: Option<Instant>,
    /// Its trouble to get started has been said.
    told: bool,
    state: WatchState,
}

impl<F: Facts, S: Sink<F>> Run<F, S> {
    async fn run(&mut self) -> Result<Infallible, Stopped> {
        let mut backoff = DefaultBackoff::default();
        loop {
            let begun = Instant::now();
            let end = match self.round().await {
                Ok(never) => match never {},
                Err(Stop::Stopped) => return Err(Stopped),
                Err(Stop::End(end)) => end,
            };
            let stats = &self.source.stats;
            stats.all.restarted(stats.name, end.reason, end.error.as_deref());
            let mut at_once = end.opened && begun.elapsed() >= LASTED
                || end.reason == Restart::NoStreaming;
            if matches!(end.reason, Restart::Gone410 | Restart::Ahead) {
                at_once |= self.version.is_some()
                    && self.listed.is_none_or(|at| at.elapsed() >= RELIST_AT_ONCE);
                self.version = None;
                self.relist = true;
            }
            let state = match end.reason {
                Restart::Denied => WatchState::Denied,
                _ if self.state == WatchState::Starting => WatchState::Starting,
                // Open until just now, and about to be open again: nothing is missed.
                _ if at_once && self.version.is_some() => self.state,
                _ => WatchState::Lost,
            };
            self.enter(state, end.error.as_deref()).await?;
            if !at_once {
                sleep(backoff.next().unwrap_or(Duration::from_secs(30))).await;
            }
        }
    }

    /// Lists if need be and watches until that ends.
    async fn round(&mut self) -> Result<Infallible, Stop> {
        if self.version.is_none() {
            if self.source.style.paged() {
                self.list_in_pages().await?;
            } else {
                return self.list_streamed().await;
            }
        }
        let version = self.version.clone().unwrap_or_default();
        let params = self.source.watch_params(false);
        let stream = match self.source.api.watch(&params, &version).await {
            Ok(stream) => stream,
            Err(error) => return Err(self.source.failure("watch", error).into()),
        };
        self.source.stats.all.requested(&self.source.resource, 200);
        self.enter(WatchState::Synced, None).await?;
        self.follow(pin!(stream), silence(&params)).await
    }

    async fn list_in_pages(&mut self) -> Result<(), Stop> {
        let mut params = ListParams {
            label_selector: self.source.labels.clone(),
            field_selector: self.source.fields.clone(),
            limit: Some(PAGE),
            ..ListParams::default()
        };
        if !self.relist {
            // From the API server's cache; what it lacks comes with the watch.
            params.resource_version = Some("0".into());
            params.version_match = Some(VersionMatch::NotOlderThan);
        }
        self.sink.take(Event::ListBegins).await?;
        loop {
            let page = match self.source.api.list(&params).await {
                Ok(page) => page,
                Err(error) => return Err(self.source.failure("list", error).into()),
            };
            self.source.stats.all.requested(&self.source.resource, 200);
            for object in page.items {
                self.receive(&object);
                self.sink.take(Event::Listed(object)).await?;
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => {
                    params.continue_token = Some(token);
                    params.resource_version = None;
                    params.version_match = None;
                }
                None => {
                    self.version = page.metadata.resource_version.filter(|v| !v.is_empty());
                    break;
                }
            }
        }
        if self.version.is_none() {
            let error = format!("the list of {} has no version to go on from", self.source.resource);
            return Err(End { reason: Restart::Error, error: Some(error), opened: false }.into());
        }
        self.list_is_complete().await?;
        Ok(())
    }

    async fn list_is_complete(&mut self) -> Result<(), Stopped> {
        self.listed = Some(Instant::now());
        self.relist = false;
        self.sink.take(Event::ListEnds).await
    }

    /// The list as the first part of a watch (`sendInitialEvents`, on by default since 1.32).
    async fn list_streamed(&mut self) -> Result<Infallible, Stop> {
        let params = self.source.watch_params(true);
        let stream = match self.source.api.watch(&params, "").await {
            Ok(stream) => stream,
            // 422: the feature gate is off. The others: what stands before an API server may say.
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 405 | 422 | 501) => {
                self.source.stats.all.requested(&self.source.resource, status.code);
                return Err(self.no_streaming(&status.message).into());
            }
            Err(error) => return Err(self.source.failure("watch", error).into()),
        };
        self.source.stats.all.requested(&self.source.resource, 200);
        let mut stream = pin!(stream);
        self.sink.take(Event::ListBegins).await?;
        loop {
            let next = match timeout(LIST_SILENCE, stream.next()).await {
                Ok(next) => next,
                Err(_) => return Err(self.no_streaming("the list was never completed").into()),
            };
            let event = self.event(next)?;
            match event {
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    self.receive(&object);
                    self.sink.take(Event::Listed(object)).await?;
                }
                Some(WatchEvent::Deleted(object)) => self.sink.take(Event::Gone(object)).await?,
                Some(WatchEvent::Bookmark(bookmark)) => {
                    if bookmark.metadata.annotations.contains_key("k8s.io/initial-events-end") {
                        self.version = Some(bookmark.metadata.resource_version);
                        break;
                    }
                }
                Some(WatchEvent::Error(_)) | None => {}
            }
        }
        self.list_is_complete().await?;
        self.enter(WatchState::Synced, None).await?;
        self.follow(stream, silence(&params)).await
    }

    async fn follow(
        &mut self,
        mut stream: impl Stream<Item = kube::Result<WatchEvent<Object<F>>>> + Unpin,
        silence: Duration,
    ) -> Result<Infallible, Stop> {
        loop {
            let Ok(next) = timeout(silence, stream.next()).await else {
                return Err(End { reason: Restart::Silent, error: None, opened: true }.into());
            };
            match self.event(next)? {
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    self.receive(&object);
                    self.advance(&object.identity.resource_version);
                    self.sink.take(Event::Changed(object)).await?;
                }
                Some(WatchEvent::Deleted(object)) => {
                    self.receive(&object);
                    self.advance(&object.identity.resource_version);
                    self.sink.take(Event::Gone(object)).await?;
                }
                Some(WatchEvent::Bookmark(bookmark)) => {
                    self.advance(&bookmark.metadata.resource_version);
                }
                Some(WatchEvent::Error(_)) | None => {}
            }
        }
    }

    /// Sorts out errors; `None` is a line that makes no sense and was skipped.
    fn event(
        &self,
        next: Option<kube::Result<WatchEvent<Object<F>>>>,
    ) -> Result<Option<WatchEvent<Object<F>>>, End> {
        match next {
            None => Err(End::closed(true)),
            Some(Ok(WatchEvent::Error(status))) => Err(self.source.refusal("watch", &status, true)),
            Some(Ok(event)) => Ok(Some(event)),
            // kube reads any JSON object that is no event as an empty status.
            Some(Err(kube::Error::Api(status))) if status.code != 0 => {
                Err(self.source.refusal("watch", &status, true))
            }
            Some(Err(kube::Error::Api(_))) => {
                self.complain("a line of the watch is neither an event nor a status".into());
                Ok(None)
            }
            Some(Err(kube::Error::SerdeError(error))) => {
                self.complain(format!("a line of the watch cannot be read: {error}"));
                Ok(None)
            }
            Some(Err(error)) => {
                let error = anyhow::Error::new(error);
                let error = format!("watch of {} broke off: {error:#}", self.source.resource);
                Err(End { reason: Restart::Error, error: Some(error), opened: true })
            }
        }
    }

    fn complain(&self, what: String) {
        let object = self.source.resource.clone();
        self.source.stats.all.complain(&[Complaint { kind: F::KIND, object, what }]);
    }

    fn no_streaming(&self, why: &str) -> End {
        if !self.source.style.paged() {
            tracing::info!(resource = %self.source.resource,
                "the API server does not stream lists, they are read in pages: {why}");
        }
        self.source.style.stop_streaming();
        End { reason: Restart::NoStreaming, error: None, opened: false }
    }

    fn receive(&self, object: &Object<F>) {
        let stats = &self.source.stats;
        stats.all.received(stats.name);
        stats.all.complain(&object.complaints);
    }

    fn advance(&mut self, version: &str) {
        if !version.is_empty() {
            self.version = Some(version.to_owned());
        }
    }

    /// Says a change of state once, to the log, the stats and the sink.
    async fn enter(&mut self, state: WatchState, error: Option<&str>) -> Result<(), Stopped> {
        let stats = &self.source.stats;
        if let Some(error) = error.filter(|_| state == WatchState::Starting && !self.told) {
            tracing::warn!(watch = stats.name.name(), "not ready yet, trying on: {error}");
            self.told = true;
        }
        if state == self.state {
            return Ok(());
        }
        self.state = state;
        let watch = stats.name.name();
        let error = error.unwrap_or("the connection was lost");
        match state {
            WatchState::Synced => tracing::debug!(watch, "synced"),
            WatchState::Denied => tracing::error!(watch, "denied, trying on: {error}"),
            WatchState::Lost | WatchState::Starting => {
                tracing::warn!(watch, "lost, trying on: {error}");
            }
        }
        stats.all.set_state(stats.name, state);
        self.sink.take(Event::State(state)).await
    }
}

fn silence(params: &WatchParams) -> Duration {
    Duration::from_secs(u64::from(params.timeout.unwrap_or(WATCH_SECONDS))) + SILENCE_MARGIN
}
