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

async fn metrics(State(engine): State<Engine>) -> Response {
    match ask(&engine, Question::Metrics).await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
            .into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
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
