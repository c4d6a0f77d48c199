//! The rounds of one watch: list, follow the changes, and begin again when that ends.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use kube::{
    api::{ListParams, VersionMatch, WatchEvent, WatchParams},
    runtime::watcher::DefaultBackoff,
};
use tokio::time::{Instant, sleep, timeout};

use super::{End, Event, Sink, Source, Stop, Stopped, WATCH_SECONDS, share_of};
use crate::cluster::{
    connect::chain,
    object::{Complaint, Facts, Object},
    stats::{Restart, WatchState, WatchStats},
};

/// client-go's own page size.
const PAGE: u32 = 500;
/// Past the server's timeout by this much, a silent connection is taken for dead.
const SILENCE_MARGIN: Duration = Duration::from_secs(5);
/// A server that knows no streamed lists ignores the wish, and then never says that the list is
/// complete: after this long without an object, the list is asked for in pages.
const LIST_SILENCE: Duration = Duration::from_secs(10);
/// A server that has the connection begins to answer within this time: a watch at once, well below
/// the time for which a verdict waits for evidence; a page of a list within the server's own limit.
const WATCH_OPENS: Duration = Duration::from_secs(20);
const PAGE_COMES: Duration = Duration::from_secs(60);
/// A watch that lasted this long is begun again at once.
const LASTED: Duration = Duration::from_secs(1);
/// A version may be refused this long after the last list without that being a server in trouble.
const RELIST_AT_ONCE: Duration = Duration::from_secs(5);
/// The first list comes within this time, and a repeated one within the next: a fleet of agents that
/// starts at once, or whose history the server forgets at once, asks for everything over that time.
const FIRST_LIST_SPREAD: Duration = Duration::from_millis(500);
/// See [`FIRST_LIST_SPREAD`].
const RELIST_SPREAD: Duration = Duration::from_secs(1);

/// One watch at work.
pub(super) struct Run<F, S> {
    source: Source<F>,
    sink: S,
    /// Version that the watch can go on from; `None`: a list is needed.
    version: Option<String>,
    /// Up to which version everything was told before a list became necessary.
    told_until: Option<Arc<str>>,
    /// The next list must not come from a cache that may lag behind what was already seen.
    relist: bool,
    /// When the last list was complete.
    listed: Option<Instant>,
    /// Its trouble to get started has been said.
    told: bool,
    state: WatchState,
}

impl<F: Facts, S: Sink<F>> Run<F, S> {
    pub(super) fn new(source: Source<F>, sink: S) -> Self {
        let version = source.since.clone();
        let state = WatchState::Starting;
        source.stats.all.moved(source.stats.name, WatchState::Idle, state);
        Self {
            source,
            sink,
            version,
            told_until: None,
            relist: false,
            listed: None,
            told: false,
            state,
        }
    }

    /// Goes on until nobody listens.
    pub(super) async fn run(&mut self) -> Result<Infallible, Stopped> {
        let mut backoff = DefaultBackoff::default();
        if self.version.is_none() {
            sleep(share_of(FIRST_LIST_SPREAD)).await;
        }
        loop {
            let begun = Instant::now();
            let end = match self.round().await {
                Ok(never) => match never {},
                Err(Stop::Stopped) => return Err(Stopped),
                Err(Stop::End(end)) => end,
            };
            let WatchStats { name, all } = &self.source.stats;
            all.restarted(*name, end.reason, end.error.as_deref());
            let lasted = end.opened && begun.elapsed() >= LASTED;
            if lasted {
                backoff = DefaultBackoff::default();
            }
            let mut at_once = lasted || end.reason == Restart::NoStreaming;
            if end.reason == Restart::Ahead {
                self.source.timeline.restarted().await?;
            }
            if matches!(end.reason, Restart::Gone410 | Restart::Ahead) {
                at_once |= self.version.is_some()
                    && self.listed.is_none_or(|at| at.elapsed() >= RELIST_AT_ONCE);
                let until = self.version.take().map(Arc::from);
                self.told_until = until.filter(|_| end.reason == Restart::Gone410);
                self.relist = true;
            }
            let state = match end.reason {
                Restart::Denied => WatchState::Denied,
                _ if self.state == WatchState::Starting => WatchState::Starting,
                // Closed in good order, and about to be open again: nothing is missed.
                Restart::Closed if at_once && self.version.is_some() => self.state,
                _ => WatchState::Lost,
            };
            self.enter(state, end.error.as_deref()).await?;
            if at_once && self.relist && self.version.is_none() {
                sleep(share_of(RELIST_SPREAD)).await;
            } else if !at_once {
                let pause = backoff.next().unwrap_or(Duration::from_secs(30));
                match end.reason {
                    Restart::Error | Restart::Silent => self.source.timeline.pause(pause).await,
                    _ => sleep(pause).await,
                }
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
        let stream = match self
            .taken_up("watch", WATCH_OPENS, self.source.api.watch(&params, &version))
            .await?
        {
            Ok(stream) => stream,
            Err(error) => return Err(self.source.failure("watch", error).into()),
        };
        self.source.stats.all.requested("watch", &self.source.resource, 200);
        self.enter(WatchState::Synced, None).await?;
        self.follow(pin!(stream), silence(&params)).await
    }

    /// Waits for a server that has the connection, but does not answer.
    async fn taken_up<T>(
        &self,
        verb: &'static str,
        limit: Duration,
        answer: impl Future<Output = kube::Result<T>>,
    ) -> Result<kube::Result<T>, End> {
        if let Ok(answer) = timeout(limit, answer).await {
            return Ok(answer);
        }
        let resource = &self.source.resource;
        self.source.stats.all.requested(verb, resource, 0);
        let waited = limit.as_secs();
        let error =
            format!("cannot {verb} {resource}: the API server did not answer for {waited} s");
        Err(End { reason: Restart::Silent, error: Some(error), opened: false })
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
        self.sink.take(Event::ListBegins(self.told_until.clone())).await?;
        loop {
            let page =
                match self.taken_up("list", PAGE_COMES, self.source.api.list(&params)).await? {
                    Ok(page) => page,
                    Err(error) => return Err(self.source.failure("list", error).into()),
                };
            self.source.stats.all.requested("list", &self.source.resource, 200);
            for object in page.items {
                self.receive(&object);
                self.sink.take(Event::Listed(object)).await?;
            }
            // A token brings the version of its first page along.
            params.resource_version = None;
            params.version_match = None;
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                self.version = page.metadata.resource_version.filter(|v| !v.is_empty());
                break;
            }
        }
        if self.version.is_none() {
            let error =
                format!("the list of {} has no version to go on from", self.source.resource);
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
        let stream =
            match self.taken_up("watch", WATCH_OPENS, self.source.api.watch(&params, "")).await? {
                Ok(stream) => stream,
                // 422: the feature gate is off. The others: what stands before an API server may say.
                Err(kube::Error::Api(status)) if matches!(status.code, 400 | 405 | 422 | 501) => {
                    self.source.stats.all.requested("watch", &self.source.resource, status.code);
                    return Err(self.no_streaming(&status.message).into());
                }
                Err(error) => return Err(self.source.failure("watch", error).into()),
            };
        self.source.stats.all.requested("watch", &self.source.resource, 200);
        let mut stream = pin!(stream);
        self.sink.take(Event::ListBegins(self.told_until.clone())).await?;
        loop {
            let Ok(next) = timeout(LIST_SILENCE, stream.next()).await else {
                if self.source.style.has_streamed() {
                    let error = format!("the list of {} stopped", self.source.resource);
                    return Err(
                        End { reason: Restart::Silent, error: Some(error), opened: false }.into()
                    );
                }
                return Err(self.no_streaming("the list was never completed").into());
            };
            match self.event(next)? {
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
        self.source.style.streamed();
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
                let resource = &self.source.resource;
                let error = format!("watch of {resource} broke off: {}", chain(&error));
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
        let WatchStats { name, all } = &self.source.stats;
        let watch = name.name();
        if let Some(error) = error.filter(|_| state == WatchState::Starting && !self.told) {
            tracing::warn!(watch, "not ready yet, trying on: {error}");
            self.told = true;
        }
        if state == self.state {
            return Ok(());
        }
        if self.state == WatchState::Lost && state == WatchState::Synced {
            self.source.timeline.is_back();
        }
        let before = std::mem::replace(&mut self.state, state);
        let error = error.unwrap_or("the connection was lost");
        match state {
            WatchState::Synced => tracing::debug!(watch, "synced"),
            WatchState::Denied => tracing::error!(watch, "denied, trying on: {error}"),
            WatchState::Lost | WatchState::Starting | WatchState::Idle => {
                tracing::warn!(watch, "lost, trying on: {error}");
            }
        }
        all.moved(*name, before, state);
        self.sink.take(Event::State(state)).await
    }
}

/// Whoever followed the workload follows it no longer.
impl<F, S> Drop for Run<F, S> {
    fn drop(&mut self) {
        let WatchStats { name, all } = &self.source.stats;
        all.moved(*name, self.state, WatchState::Idle);
    }
}

fn silence(params: &WatchParams) -> Duration {
    Duration::from_secs(u64::from(params.timeout.unwrap_or(WATCH_SECONDS))) + SILENCE_MARGIN
}
