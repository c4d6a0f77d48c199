//! A scripted API server on 127.0.0.1: each call is answered by the test's own function.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Query, Request},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// One request as the server read it.
#[derive(Clone, Debug)]
pub struct Call {
    /// `pods`, or `pods/NAME`.
    pub resource: String,
    /// Namespace, if the path has one.
    pub namespace: Option<String>,
    /// Query parameters.
    pub query: BTreeMap<String, String>,
    /// `User-Agent`.
    pub agent: String,
    /// What is to be created; null where nothing is.
    pub created: Value,
    /// Calls to the same resource, by the same verb, before this one.
    pub before: usize,
}

impl Call {
    /// A watch of any kind.
    pub fn is_watch(&self) -> bool {
        self.query.get("watch").is_some_and(|watch| watch == "true")
    }

    /// A request to create something.
    pub fn is_create(&self) -> bool {
        !self.created.is_null()
    }

    /// A watch that begins with a list.
    pub fn is_streamed_list(&self) -> bool {
        self.is_watch() && self.query.contains_key("sendInitialEvents")
    }

    /// One query parameter; empty if it is not there.
    pub fn param(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }
}

/// One step of a watch's answer.
#[derive(Clone, Debug)]
pub enum Step {
    /// A line.
    Line(Value),
    /// Time passes.
    Wait(Duration),
    /// Nothing more, with the connection open. Without it, the end of the steps closes the watch.
    Hold,
}

/// An answer.
#[derive(Clone, Debug)]
pub enum Reply {
    /// 200 and this object.
    Object(Value),
    /// 201 and this object.
    Created(Value),
    /// This code, with a status object.
    Status(u16, &'static str),
    /// 200 and these lines.
    Watch(Vec<Step>),
    /// This, so much later.
    Late(Duration, Box<Reply>),
}

impl Reply {
    /// A list as the first part of a watch, which then goes on with `then`.
    pub fn streamed(items: &[Value], version: &str, then: &[Step]) -> Self {
        let added = items.iter().map(|item| event("ADDED", item));
        let end = json!({"kind": "Bookmark", "apiVersion": "v1", "metadata": {
            "resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}}});
        let end = [event("BOOKMARK", &end)];
        Self::Watch(added.chain(end).chain(then.iter().cloned()).collect())
    }

    /// A list, or a page of one.
    pub fn list(items: &[Value], version: &str, token: Option<&str>) -> Self {
        Self::Object(json!({"kind": "List", "apiVersion": "v1", "items": items,
            "metadata": {"resourceVersion": version, "continue": token}}))
    }

    /// What an empty cluster answers to anything.
    pub fn nothing(call: &Call) -> Self {
        if call.is_streamed_list() {
            Self::streamed(&[], "1", &[Step::Hold])
        } else if call.is_create() {
            Self::Created(call.created.clone())
        } else if call.is_watch() {
            Self::Watch(vec![Step::Hold])
        } else if call.resource.contains('/') {
            Self::Status(404, "not found")
        } else {
            Self::list(&[], "1", None)
        }
    }
}

/// One event of a watch.
pub fn event(kind: &str, object: &Value) -> Step {
    Step::Line(json!({"type": kind, "object": object}))
}

/// An error as an event of a watch.
pub fn error_event(code: u16, message: &str) -> Step {
    event(
        "ERROR",
        &json!({"kind": "Status", "status": "Failure", "code": code, "message": message}),
    )
}

/// The server: it ends with the runtime of its test.
pub struct ApiServer {
    /// Where it listens.
    pub address: SocketAddr,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl ApiServer {
    /// Listens on a free port and answers with `script`.
    pub async fn start(script: impl Fn(&Call) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), script).await
    }

    /// Listens on this address.
    pub async fn start_at(
        address: SocketAddr,
        script: impl Fn(&Call) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (script, log) = (Arc::new(script), calls.clone());
        let router = Router::new().fallback(move |query: Query<_>, request: Request| {
            let (log, script) = (log.clone(), script.clone());
            async move {
                let call = read(&log, query.0, request).await;
                let mut reply = script(&call);
                while let Reply::Late(time, then) = reply {
                    tokio::time::sleep(time).await;
                    reply = *then;
                }
                respond(reply)
            }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, calls }
    }

    /// The calls so far that fit.
    pub fn calls(&self, fits: impl Fn(&Call) -> bool) -> Vec<Call> {
        self.calls.lock().unwrap().iter().filter(|call| fits(call)).cloned().collect()
    }
}

async fn read(log: &Mutex<Vec<Call>>, query: BTreeMap<String, String>, request: Request) -> Call {
    // /api/v1/… or /apis/GROUP/VERSION/…, then perhaps namespaces/NAME/, then the resource.
    let parts: Vec<_> = request.uri().path().split('/').skip(1).map(str::to_owned).collect();
    let rest = &parts[if parts[0] == "api" { 2 } else { 3 }.min(parts.len())..];
    let (namespace, rest) = match rest {
        [word, namespace, rest @ ..] if word == "namespaces" => (Some(namespace.clone()), rest),
        rest => (None, rest),
    };
    let agent = request.headers().get("user-agent").and_then(|value| value.to_str().ok());
    let agent = agent.unwrap_or_default().to_owned();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let mut call = Call {
        resource: rest.join("/"),
        namespace,
        query,
        agent,
        created: serde_json::from_slice(&body).unwrap_or_default(),
        before: 0,
    };
    let mut log = log.lock().unwrap();
    let verb = |c: &Call| (c.is_watch(), c.is_create());
    let alike = |c: &&Call| c.resource == call.resource && verb(c) == verb(&call);
    call.before = log.iter().filter(alike).count();
    log.push(call.clone());
    call
}

fn respond(reply: Reply) -> Response {
    match reply {
        Reply::Object(object) => axum::Json(object).into_response(),
        Reply::Created(object) => (StatusCode::CREATED, axum::Json(object)).into_response(),
        Reply::Status(code, message) => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code, "message": message, "reason": ""});
            (StatusCode::from_u16(code).unwrap(), axum::Json(status)).into_response()
        }
        Reply::Watch(steps) => {
            let lines = futures::stream::iter(steps).filter_map(async |step| match step {
                Step::Line(line) => Some(Ok::<_, std::io::Error>(format!("{line}\n"))),
                Step::Wait(time) => {
                    tokio::time::sleep(time).await;
                    None
                }
                Step::Hold => std::future::pending().await,
            });
            Body::from_stream(lines).into_response()
        }
        Reply::Late(_, then) => respond(*then),
    }
}
