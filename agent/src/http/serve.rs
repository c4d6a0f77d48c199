//! The routes.

use std::net::SocketAddr;

use anyhow::Context as _;
use axum::{
    Router,
    extract::{Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Json, Response},
    routing::get,
};
use serde::Serialize;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use super::{
    answer::{Answer, Query as Question},
    explain::{self, Of},
    page,
    wanted::Wanted,
};
use crate::{model::RolloutId, oncall::Explained};

/// The engine's task as the routes see it.
type Engine = mpsc::Sender<Question>;

/// `/metrics`, `/livez`, `/readyz`.
pub fn operations(engine: Engine) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(engine)
}

/// The page and `/api/v1/…`.
pub fn api(engine: Engine) -> Router {
    Router::new()
        .route("/api/v1/status", get(|State(engine): State<Engine>| json(engine, Question::Status)))
        .route(
            "/api/v1/rollouts",
            get(|State(engine): State<Engine>, Query(wanted): Query<Wanted>| {
                json(engine, |reply| Question::Rollouts(wanted, reply))
            }),
        )
        .route("/api/v1/failures", get(failures))
        .route("/api/v1/lanes", get(lanes))
        .route("/api/v1/explain", get(explained))
        .with_state(engine)
        .merge(page())
}

async fn failures(State(engine): State<Engine>, Query(wanted): Query<Wanted>) -> Response {
    json(engine, |reply| Question::Failures(wanted, reply)).await
}

async fn lanes(State(engine): State<Engine>, Query(of): Query<Of>) -> Response {
    let id = of.rollout.clone();
    match ask(&engine, |reply| Question::Lanes(of.rollout, reply)).await {
        Ok(Some(answer)) => Json(answer).into_response(),
        Ok(None) => unknown(&id),
        Err(error) => unavailable(&error),
    }
}

async fn explained(State(engine): State<Engine>, Query(of): Query<Of>) -> Response {
    match explain(&engine, &of.rollout).await {
        Ok(Some(explained)) => Json(explained).into_response(),
        Ok(None) => unknown(&of.rollout),
        Err(error) => unavailable(&error),
    }
}

async fn explain(engine: &Engine, id: &RolloutId) -> Answer<Option<Explained>> {
    let status = ask(engine, Question::Status).await?;
    let all = Wanted::default();
    let rollouts = ask(engine, |reply| Question::Rollouts(all, reply)).await?;
    let Some(wanted) = explain::wanted(&rollouts, id) else { return Ok(None) };
    let failures = ask(engine, |reply| Question::Failures(wanted, reply)).await?;
    Ok(explain::explain(id, &status, &rollouts, &failures))
}

fn unknown(id: &RolloutId) -> Response {
    let text = format!("this agent knows no rollout {id}: /api/v1/rollouts lists those it knows\n");
    (StatusCode::NOT_FOUND, text).into_response()
}

fn unavailable(error: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response()
}

/// Serves until `shutdown`.
///
/// # Errors
/// If the server fails.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let address = listener.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
    axum::serve(listener, router)
        .with_graceful_shutdown(async move { shutdown.cancelled().await })
        .await
        .with_context(|| format!("serving HTTP on {address} failed"))
}

async fn ask<T>(
    engine: &Engine,
    query: impl FnOnce(oneshot::Sender<Answer<T>>) -> Question,
) -> Answer<T> {
    let (reply, answer) = oneshot::channel();
    engine.send(query(reply)).await.map_err(|_| "the agent is shutting down".to_owned())?;
    answer.await.map_err(|_| "the agent is shutting down".to_owned())?
}

/// Encoding takes a while where there are many series: it stalls neither the engine nor the tasks that
/// share a thread with this one.
async fn metrics(State(engine): State<Engine>) -> Response {
    let encode = match ask(&engine, Question::Metrics).await {
        Ok(encode) => encode,
        Err(error) => return unavailable(&error),
    };
    match tokio::task::spawn_blocking(encode).await {
        Ok(Ok(text)) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
                .into_response()
        }
        Ok(Err(error)) => unavailable(&error),
        Err(error) => unavailable(&error.to_string()),
    }
}

async fn ready(State(engine): State<Engine>) -> Response {
    match ask(&engine, Question::Status).await {
        Ok(status) if status.ready => "ok\n".into_response(),
        Ok(status) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", status.not_ready.join("\n")))
                .into_response()
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

async fn json<T: Serialize>(
    engine: Engine,
    query: impl FnOnce(oneshot::Sender<Answer<T>>) -> Question,
) -> Response {
    match ask(&engine, query).await {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use tower::ServiceExt as _;

    use super::*;

    /// One thread for everything, so that whatever waits in it holds up all the rest.
    #[tokio::test(flavor = "current_thread")]
    async fn while_a_scrape_is_encoded_the_engine_and_the_other_tasks_go_on() {
        let (queries, mut asked) = mpsc::channel(4);
        let (finish, encoding) = std::sync::mpsc::channel::<&str>();
        let (begun, begins) = oneshot::channel();
        let engine = tokio::spawn(async move {
            let (mut once, mut begun) = (Some(encoding), Some(begun));
            while let Some(question) = asked.recv().await {
                match question {
                    Question::Metrics(reply) => {
                        let (encoding, begun) = (once.take().unwrap(), begun.take().unwrap());
                        let encode = move || {
                            begun.send(()).unwrap();
                            Ok(encoding.recv().unwrap().as_bytes().to_vec())
                        };
                        assert!(reply.send(Ok(Box::new(encode))).is_ok());
                    }
                    Question::Status(reply) => drop(reply.send(Err("I am here".to_owned()))),
                    _ => panic!("nobody asked for it"),
                }
            }
        });
        let router = operations(queries);
        let get = |path: &str| {
            router.clone().oneshot(Request::get(path).body(Body::empty()).expect("a request"))
        };
        let body = async |answer: Response| {
            let bytes = axum::body::to_bytes(answer.into_body(), 1_000).await.expect("a body");
            String::from_utf8(bytes.to_vec()).expect("text")
        };
        let scrape = tokio::spawn(get("/metrics"));
        begins.await.expect("it is being encoded");
        let ready = get("/readyz").await.expect("an answer");
        assert_eq!(body(ready).await, "I am here\n");
        assert!(!scrape.is_finished(), "it is still being encoded");
        finish.send("x 1\n").expect("it waits for it");
        let scraped = scrape.await.expect("no panic").expect("an answer");
        assert_eq!((scraped.status(), body(scraped).await), (StatusCode::OK, "x 1\n".to_owned()));
        engine.abort();
    }
}
