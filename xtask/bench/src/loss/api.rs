//! An API server for one agent: lists, streamed lists and watches over a log of changes.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::objects::Change;
use crate::{agent::API_SERVER, namespace::Namespace};

/// A watch looks at its connection at least so often.
const LOOK: Duration = Duration::from_secs(1);

/// The server; its threads end with the process.
pub struct ApiServer {
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    changes: Mutex<Vec<Change>>,
    grown: Condvar,
}

impl ApiServer {
    /// Listens in the node's namespace.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn start(node: &Namespace) -> Result<Self> {
        let listener = node.run(|| {
            TcpListener::bind(API_SERVER).with_context(|| format!("listen on {API_SERVER}"))
        })?;
        let log = Arc::new(Log::default());
        let server = Self { log: Arc::clone(&log) };
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let log = Arc::clone(&log);
                thread::spawn(move || {
                    // A client that hangs up ends its watch: no error of the server's.
                    drop(answer(&log, &connection));
                });
            }
        });
        Ok(server)
    }

    /// Makes changes: their versions are their places in the log.
    pub fn apply(&self, changes: Vec<Change>) {
        let mut log = self.log.changes.lock().unwrap_or_else(PoisonError::into_inner);
        for mut change in changes {
            change.object["metadata"]["resourceVersion"] = json!((log.len() + 1).to_string());
            log.push(change);
        }
        self.log.grown.notify_all();
    }
}

struct Request {
    resource: String,
    query: BTreeMap<String, String>,
}

fn answer(log: &Log, connection: &TcpStream) -> Result<()> {
    let mut lines = BufReader::new(connection).lines();
    let first = lines.next().context("no request")??;
    for line in lines.by_ref() {
        if line?.is_empty() {
            break;
        }
    }
    let request = parse(first.split(' ').nth(1).context("no path")?);
    let changes: Vec<Change> = log.changes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let watch = request.query.get("watch").is_some_and(|watch| watch == "true");
    if watch {
        return stream(log, connection, &request);
    }
    if let Some((resource, name)) = request.resource.split_once('/') {
        let found = current(&changes, resource, &request).remove(name);
        return match found {
            Some(object) => send(connection, "200 OK", &object),
            None => send(
                connection,
                "404 Not Found",
                &json!({"kind": "Status", "apiVersion": "v1",
                "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404}),
            ),
        };
    }
    let items: Vec<Value> = current(&changes, &request.resource, &request).into_values().collect();
    let list = json!({"kind": "List", "apiVersion": "v1", "items": items,
        "metadata": {"resourceVersion": changes.len().to_string()}});
    send(connection, "200 OK", &list)
}

fn send(mut connection: &TcpStream, status: &str, body: &Value) -> Result<()> {
    let body = body.to_string();
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .context("answer")
}

/// A watch, with the list before it if it is asked for.
fn stream(log: &Log, mut connection: &TcpStream, request: &Request) -> Result<()> {
    write!(
        connection,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    )?;
    let mut changes = log.changes.lock().unwrap_or_else(PoisonError::into_inner);
    let mut next = if request.query.contains_key("sendInitialEvents") {
        let mut text = Vec::new();
        for object in current(&changes, &request.resource, request).into_values() {
            writeln!(text, "{}", json!({"type": "ADDED", "object": object}))?;
        }
        let end = json!({"kind": "Bookmark", "apiVersion": "v1", "metadata": {
            "resourceVersion": changes.len().to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"}}});
        writeln!(text, "{}", json!({"type": "BOOKMARK", "object": end}))?;
        connection.write_all(&text)?;
        changes.len()
    } else {
        request.query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0)
    };
    loop {
        let news: Vec<String> = changes[next.min(changes.len())..]
            .iter()
            .filter(|change| {
                change.resource == request.resource && concerns(&change.object, request)
            })
            .map(|change| format!("{}\n", json!({"type": change.kind, "object": change.object})))
            .collect();
        next = changes.len();
        if !news.is_empty() {
            drop(changes);
            connection.write_all(news.concat().as_bytes())?;
            changes = log.changes.lock().unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        (changes, _) =
            log.grown.wait_timeout(changes, LOOK).unwrap_or_else(PoisonError::into_inner);
    }
}

/// The objects of a resource as they stand, by name.
fn current(changes: &[Change], resource: &str, request: &Request) -> BTreeMap<String, Value> {
    let mut objects = BTreeMap::new();
    for change in changes.iter().filter(|change| change.resource == resource) {
        let name = change.object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if change.kind == "DELETED" {
            objects.remove(&name);
        } else if concerns(&change.object, request) {
            objects.insert(name, change.object.clone());
        }
    }
    objects
}

/// Selectors by field: the node's own pods, or one object by name.
fn concerns(object: &Value, request: &Request) -> bool {
    let Some(selector) = request.query.get("fieldSelector") else { return true };
    if let Some(node) = selector.strip_prefix("spec.nodeName=") {
        return object["spec"]["nodeName"] == node;
    }
    selector.strip_prefix("metadata.name=").is_none_or(|name| object["metadata"]["name"] == name)
}

fn parse(target: &str) -> Request {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    // /api/v1/… or /apis/GROUP/VERSION/…, then perhaps namespaces/NAME/, then the resource.
    let skip = if parts.first() == Some(&"api") { 2 } else { 3 };
    let rest = parts.get(skip..).unwrap_or_default();
    let rest = match rest {
        [word, _, rest @ ..] if *word == "namespaces" && !rest.is_empty() => rest,
        rest => rest,
    };
    let query = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.replace("%3D", "=").replace("%2C", ",")))
        .collect();
    Request { resource: rest.join("/"), query }
}
