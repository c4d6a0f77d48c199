//! One watch: what has changed since a revision, a JSON object a line, each as late as the caller's
//! delay asks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Server;
use super::dials::Dials;
use super::failure::Failure;
use super::list;
use super::request::Params;
use super::resource::Resource;
use super::selector::Selector;
use super::store::{Change, ChangeKind};
use super::usage::UsageKey;
use super::view::View;

/// How long a watch lives that names no timeout; a real server takes 30 to 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// A watch in progress.
pub struct Watch {
    server: Arc<Server>,
    usage: UsageKey,
    resource: &'static Resource,
    namespace: Option<String>,
    selector: Selector,
    view: View,
    /// Lines that owe nothing to the delay: the present state and its bookmark.
    initial: VecDeque<Bytes>,
    /// Changes that were fetched and wait for their time.
    pending: VecDeque<Arc<Change>>,
    /// The revision up to which changes were fetched.
    fetched: u64,
    /// The revision up to which changes were sent.
    sent: u64,
    latest: watch::Receiver<u64>,
    dials: watch::Receiver<Dials>,
    closings: u64,
    ends: Instant,
    bookmark_due: Option<Instant>,
    ended: bool,
}

impl Watch {
    /// Begins a watch.
    pub fn new(
        server: &Arc<Server>,
        usage: UsageKey,
        resource: &'static Resource,
        namespace: Option<&str>,
        params: &Params,
        view: View,
    ) -> Result<Self, Failure> {
        let selector =
            Selector::parse(resource, params.get("labelSelector"), params.get("fieldSelector"))?;
        let bookmarks = params.flag("allowWatchBookmarks");
        let streamed = params.flag("sendInitialEvents");
        let asked = params.number("resourceVersion")?;
        if streamed && (params.get("resourceVersionMatch") != Some("NotOlderThan") || !bookmarks) {
            let what = "sendInitialEvents: needs resourceVersionMatch=NotOlderThan and allowWatchBookmarks=true";
            return Err(Failure::new(422, "Invalid", format!("ListOptions is invalid: {what}")));
        }
        let latest = server.latest.subscribe();
        let dials = server.dials.subscribe();
        let (closings, forgotten) = {
            let dials = dials.borrow();
            (dials.closings(&usage.user), dials.forgotten(&usage.user))
        };
        let (fetched, initial) = server.read(|state| {
            let current = state.revision();
            match asked {
                Some(asked) if asked > current => Err(Failure::too_large_revision(asked, current)),
                Some(asked) if asked > 0 && !streamed && asked < forgotten => {
                    Err(Failure::expired(asked, forgotten))
                }
                Some(asked) if asked > 0 && !streamed => Ok((asked, VecDeque::new())),
                // No revision, revision 0, or a streamed list: begin with the present state.
                _ => {
                    let objects = list::initial(state, resource, namespace, &selector);
                    let mut lines: VecDeque<Bytes> =
                        objects.iter().map(|object| line("ADDED", &view.object(object))).collect();
                    if streamed {
                        lines.push_back(line("BOOKMARK", &view.bookmark(resource, current, true)));
                    }
                    Ok((current, lines))
                }
            }
        })?;
        let now = Instant::now();
        let timeout = params.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        Ok(Self {
            server: Arc::clone(server),
            usage,
            resource,
            namespace: namespace.map(str::to_owned),
            selector,
            view,
            initial,
            pending: VecDeque::new(),
            fetched,
            sent: fetched,
            latest,
            dials,
            closings,
            ends: now + timeout.map_or(DEFAULT_TIMEOUT, Duration::from_secs),
            bookmark_due: bookmarks.then(|| now + server.options.bookmark_interval),
            ended: false,
        })
    }

    /// The body of the answer.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> + Send {
        futures::stream::unfold(self, |mut watch| async move {
            let line = watch.next().await?;
            let bytes = u64::try_from(line.len()).unwrap_or(u64::MAX);
            watch.server.usage.count(&watch.usage, |usage| usage.bytes += bytes);
            Some((Ok(line), watch))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.initial.pop_front() {
                return Some(line);
            }
            if self.ended || self.server.stop.is_cancelled() {
                return None;
            }
            let delay = {
                let dials = self.dials.borrow_and_update();
                if dials.closings(&self.usage.user) != self.closings {
                    return None;
                }
                dials.watch_delay(&self.usage.user)
            };
            if self.pending.is_empty()
                && let Err(failure) = self.fetch()
            {
                self.ended = true;
                return Some(line("ERROR", &failure.status()));
            }
            let now = Instant::now();
            if self.pending.front().is_some_and(|change| change.at + delay <= now)
                && let Some(change) = self.pending.pop_front()
            {
                self.sent = change.revision;
                if let Some(line) = self.encode(&change) {
                    return Some(line);
                }
                continue;
            }
            if now >= self.ends {
                self.ended = true;
                return self.bookmark_due.is_some().then(|| self.bookmark());
            }
            if self.bookmark_due.is_some_and(|due| now >= due) {
                self.bookmark_due = Some(now + self.server.options.bookmark_interval);
                return Some(self.bookmark());
            }
            self.wait(delay).await;
        }
    }

    /// Waits until something may be there to send.
    async fn wait(&mut self, delay: Duration) {
        let due = self.pending.front().map(|change| change.at + delay);
        let wake = [due, self.bookmark_due].into_iter().flatten().fold(self.ends, Instant::min);
        tokio::select! {
            () = tokio::time::sleep_until(wake.into()) => {}
            // Either sender lives as long as the server that `self` holds.
            _ = self.latest.changed(), if self.pending.is_empty() => {}
            _ = self.dials.changed() => {}
            () = self.server.stop.cancelled() => {}
        }
    }

    /// Takes over the changes since the last fetch that concern this watch.
    fn fetch(&mut self) -> Result<(), Failure> {
        self.latest.mark_unchanged();
        let namespace = self.namespace.as_deref();
        let (current, changes) = self.server.read(|state| {
            let changes: VecDeque<Arc<Change>> = state
                .since(self.fetched)?
                .filter(|change| change.concerns(self.resource, namespace))
                .map(Arc::clone)
                .collect();
            Ok((state.revision(), changes))
        })?;
        self.fetched = current;
        self.pending = changes;
        if self.pending.is_empty() {
            self.sent = current;
        }
        Ok(())
    }

    /// The event's line; none when the selector sees the object neither before nor after.
    fn encode(&self, change: &Change) -> Option<Bytes> {
        let before = change.before.as_ref().is_some_and(|object| self.selector.matches(object));
        let after = change.kind != ChangeKind::Deleted && self.selector.matches(&change.object);
        let kind = match (before, after) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        match &change.before {
            // It left the selection: its last state inside, with the revision of the write that
            // took it out.
            Some(last) if kind == "DELETED" && change.kind == ChangeKind::Modified => {
                let mut last = Value::clone(last);
                last["metadata"]["resourceVersion"] = change.revision.to_string().into();
                Some(line(kind, &self.view.object(&last)))
            }
            _ => Some(line(kind, &self.view.object(&change.object))),
        }
    }

    /// A bookmark of what was sent, never of what is still held back.
    fn bookmark(&self) -> Bytes {
        line("BOOKMARK", &self.view.bookmark(self.resource, self.sent, false))
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    let mut text = json!({ "type": kind, "object": object }).to_string();
    text.push('\n');
    text.into()
}
