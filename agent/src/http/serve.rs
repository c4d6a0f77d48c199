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
use serde::{Deserialize, Serialize};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use super::{
    answer::{Answer, Query as Question},
    page,
    wanted::Wanted,
};
use crate::model::RolloutId;

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
        .route("/api/v1/explain", get(explain))
        .with_state(engine)
        .merge(page())
}

async fn failures(State(engine): State<Engine>, Query(wanted): Query<Wanted>) -> Response {
    json(engine, |reply| Question::Failures(wanted, reply)).await
}

/// Which rollout is asked about.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RolloutOf {
    rollout: RolloutId,
}

async fn lanes(State(engine): State<Engine>, Query(of): Query<RolloutOf>) -> Response {
    of_rollout(&engine, of.rollout, Question::Lanes).await
}

async fn explain(State(engine): State<Engine>, Query(of): Query<RolloutOf>) -> Response {
    of_rollout(&engine, of.rollout, Question::Explain).await
}

async fn of_rollout<T: Serialize>(
    engine: &Engine,
    id: RolloutId,
    question: impl FnOnce(RolloutId, oneshot::Sender<Answer<Option<T>>>) -> Question,
) -> Response {
    match ask(engine, |reply| question(id.clone(), reply)).await {
        Ok(Some(answer)) => Json(answer).into_response(),
        Ok(None) => {
            let unknown = format!(
                "this agent knows no rollout {id}: /api/v1/rollouts lists those it knows\n"
            );
            (StatusCode::NOT_FOUND, unknown).into_response()
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
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
