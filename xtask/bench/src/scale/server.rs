//! An API server of a large cluster for one agent: everything is written before the agent asks.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use super::objects::{Size, Slice, service};
use crate::{agent::API_SERVER, namespace::Namespace};

/// A watch looks at least so often whether it is to end.
const LOOK: Duration = Duration::from_millis(200);
/// A list is written in pieces of this many bytes.
const PIECE: usize = 64 << 10;

/// What the agent asked for, by verb and resource.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Requests.
    pub requests: u64,
    /// Bytes of answers.
    pub bytes: u64,
}

/// The server; its threads end with the process.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

struct Shared {
    size: Size,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    slices: Vec<Slice>,
    /// Events since the start, as lines.
    events: Vec<Arc<str>>,
    version: u64,
    /// Watches from before this version are refused, and those that run end.
    oldest: u64,
    /// Lists of slices that were written to their end.
    lists: u64,
    asked: BTreeMap<(&'static str, String), Asked>,
}

impl Server {
    /// Listens in the node's namespace.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn start(node: &Namespace, size: Size) -> Result<Self> {
        let listener = node.run(|| {
            TcpListener::bind(API_SERVER).with_context(|| format!("listen on {API_SERVER}"))
        })?;
        let version = u64::from(size.services) + 1;
        let state = State {
            slices: size.slices(),
            events: Vec::new(),
            version,
            oldest: 0,
            lists: 0,
            asked: BTreeMap::new(),
        };
        let shared = Shared { size, state: Mutex::new(state), changed: Condvar::new() };
        let server = Self(Arc::new(shared));
        let accepting = server.clone();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let server = accepting.clone();
                thread::spawn(move || {
                    // A client that hangs up ends its watch: no error of the server's.
                    drop(server.answer(&connection));
                });
            }
        });
        Ok(server)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the slice of a number, if it has endpoints.
    pub fn change(&self, number: usize) {
        let mut state = self.lock();
        let version = state.version + 1;
        let count = state.slices.len();
        let Some(slice) = state.slices.get_mut(number % count).filter(|slice| slice.can_change())
        else {
            return;
        };
        slice.change(version);
        let line = event("MODIFIED", &slice.json());
        state.version = version;
        state.events.push(line.into());
        self.0.changed.notify_all();
    }

    /// Forgets the history and ends the watches of slices: each must list anew.
    pub fn expire(&self) {
        let mut state = self.lock();
        state.version += 1;
        state.oldest = state.version;
        self.0.changed.notify_all();
    }

    /// Waits until slices were listed so often.
    ///
    /// # Errors
    /// If that takes longer than `patience`.
    pub fn await_lists(&self, lists: u64, patience: Duration) -> Result<()> {
        let state = self.lock();
        let (state, waited) = self
            .0
            .changed
            .wait_timeout_while(state, patience, |state| state.lists < lists)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            bail!("slices were listed {} times within {patience:?}, not {lists}", state.lists);
        }
        Ok(())
    }

    /// What was asked for up to now.
    pub fn asked(&self) -> BTreeMap<(&'static str, String), Asked> {
        self.lock().asked.clone()
    }

    fn count(&self, verb: &'static str, resource: &str, requests: u64, bytes: usize) {
        let mut state = self.lock();
        let asked = state.asked.entry((verb, resource.to_owned())).or_default();
        asked.requests += requests;
        asked.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
    }

    fn answer(&self, connection: &TcpStream) -> Result<()> {
        let mut lines = BufReader::new(connection).lines();
        let first = lines.next().context("no request")??;
        for line in lines.by_ref() {
            if line?.is_empty() {
                break;
            }
        }
        let target = first.split(' ').nth(1).context("no path")?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let resource = path.rsplit('/').next().unwrap_or_default();
        let asks = |what: &str| query.split('&').any(|pair| pair.starts_with(what));
        let is_watch = asks("watch=true");
        let verb = if is_watch { "watch" } else { "list" };
        self.count(verb, resource, 1, 0);
        match (is_watch, resource) {
            (true, _) => self.watch(connection, resource, query, asks("sendInitialEvents=true")),
            (false, "version") => send(
                connection,
                "200 OK",
                r#"{"major":"1","minor":"36","gitVersion":"v1.36.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#,
            ),
            (false, "nodes" | "pods" | "deployments" | "replicasets") => send(
                connection,
                "200 OK",
                r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#,
            ),
            _ => send(
                connection,
                "404 Not Found",
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"NotFound","message":"not found","code":404}"#,
            ),
        }
    }

    fn watch(
        &self,
        mut connection: &TcpStream,
        resource: &str,
        query: &str,
        initial: bool,
    ) -> Result<()> {
        let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        let from: u64 = from.and_then(|version| version.parse().ok()).unwrap_or(0);
        let is_slices = resource == "endpointslices";
        if is_slices && !initial && from < self.lock().oldest {
            return send(
                connection,
                "410 Gone",
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","message":"too old resource version","code":410}"#,
            );
        }
        write!(
            connection,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
        )?;
        let (mut next, born, version) = {
            let state = self.lock();
            (state.events.len(), state.oldest, state.version)
        };
        if initial {
            self.list(connection, resource, version)?;
        }
        loop {
            let news: Vec<Arc<str>> = {
                let state = self.lock();
                let (state, _) = self
                    .0
                    .changed
                    .wait_timeout_while(state, LOOK, |state| {
                        state.events.len() <= next && state.oldest == born
                    })
                    .unwrap_or_else(PoisonError::into_inner);
                if is_slices && state.oldest != born {
                    return Ok(());
                }
                let news = state.events.get(next..).unwrap_or_default().to_vec();
                next = state.events.len();
                news
            };
            if is_slices && !news.is_empty() {
                let text = news.concat();
                connection.write_all(text.as_bytes())?;
                self.count("watch", resource, 0, text.len());
            }
        }
    }

    /// Everything there is, and the bookmark that ends it.
    fn list(&self, mut connection: &TcpStream, resource: &str, version: u64) -> Result<()> {
        let mut text = String::new();
        let mut write = |text: &mut String, at_least: usize| -> Result<()> {
            if text.len() >= at_least {
                connection.write_all(text.as_bytes())?;
                self.count("watch", resource, 0, text.len());
                text.clear();
            }
            Ok(())
        };
        for number in 0..self.0.size.services {
            match resource {
                "services" => text.push_str(&event("ADDED", &service(number))),
                "endpointslices" => {
                    let slice = self.lock().slices.get(number as usize).map(Slice::json);
                    text.push_str(&event("ADDED", &slice.context("a slice")?));
                }
                _ => break,
            }
            write(&mut text, PIECE)?;
        }
        let end = format!(
            r#"{{"kind":"Bookmark","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}"#
        );
        text.push_str(&event("BOOKMARK", &end));
        write(&mut text, 0)?;
        if resource == "endpointslices" {
            self.lock().lists += 1;
            self.0.changed.notify_all();
        }
        Ok(())
    }
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn send(mut connection: &TcpStream, status: &str, body: &str) -> Result<()> {
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .context("answer")
}
