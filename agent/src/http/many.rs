//! Many agents as one: the same addresses, each answered with what every agent says.
//!
//! `{"agents": [{"agent", "node", "answer"} or {"agent", "node", "error", "since"}]}`: one that does
//! not answer is named, so that nobody takes its silence for there being nothing. Only
//! `/api/v1/explain` is answered once, for all of them together.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, Query, State},
    http::{StatusCode, Uri},
    response::{IntoResponse, Json, Response},
    routing::get,
};
use futures::{FutureExt as _, StreamExt as _, stream};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{explain::Of, page};
use crate::oncall::{
    Agent, Asked, Explained, Found, Source, SourceError, case, explained, find, gather_from, query,
};

/// Agents that are asked at the same time.
const AT_ONCE: usize = 64;
/// How often the cluster is asked again who they are.
const FIND_EVERY: Duration = Duration::from_secs(30);
/// What is passed on.
const PASSED_ON: [&str; 4] = ["status", "rollouts", "failures", "lanes"];

/// What one agent says.
#[derive(Clone, Debug, Serialize)]
struct Said {
    agent: String,
    /// Its node, once that is known.
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Since when it has not answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
}

#[derive(Serialize)]
struct All {
    agents: Vec<Said>,
}

/// What is known of an agent beside its answers.
#[derive(Clone, Debug, Default)]
struct Known {
    node: Option<String>,
    silent_since: Option<Timestamp>,
}

/// The agents.
pub struct Many {
    source: Source,
    patience: Duration,
    found: Mutex<Option<(Instant, Found)>>,
    known: Mutex<BTreeMap<String, Known>>,
}

impl Many {
    /// The agents of a source, found at once; each is given `patience` for an answer.
    ///
    /// # Errors
    /// If they cannot be found.
    pub async fn find(source: Source, patience: Duration) -> Result<Self, SourceError> {
        let found = find(&source, patience).await?;
        let found = Mutex::new(Some((Instant::now(), found)));
        Ok(Self { source, patience, found, known: Mutex::default() })
    }

    /// Who they are now.
    async fn found(&self) -> Result<Found, SourceError> {
        let mut known = self.found.lock().await;
        if let Some((at, found)) = &*known
            && at.elapsed() < FIND_EVERY
        {
            return Ok(found.clone());
        }
        let found = find(&self.source, self.patience).await?;
        *known = Some((Instant::now(), found.clone()));
        Ok(found)
    }

    /// Asks each for the same, in parallel.
    async fn ask(&self, question: &str) -> Result<Vec<Said>, SourceError> {
        let Found { agents, missing, .. } = self.found().await?;
        let asked: Vec<_> =
            agents.iter().map(|agent| self.ask_one(agent, question).boxed()).collect();
        let mut said: Vec<Said> = stream::iter(asked).buffered(AT_ONCE).collect().await;
        for one in missing {
            said.push(self.told(one.agent, one.node, Err(one.why)).await);
        }
        self.forget(&said).await;
        Ok(said)
    }

    async fn ask_one(&self, agent: &Agent, question: &str) -> Said {
        let answer = timeout(self.patience, agent.ask_for(question)).await;
        let silent = |_| Err(format!("no answer within {} s", self.patience.as_secs_f64()));
        let node = agent.node().map(str::to_owned);
        self.told(agent.label().to_owned(), node, answer.unwrap_or_else(silent)).await
    }

    async fn told(
        &self,
        agent: String,
        node: Option<String>,
        answer: Result<Option<Value>, String>,
    ) -> Said {
        let mut known = self.known.lock().await;
        let known = known.entry(agent.clone()).or_default();
        let told = answer.as_ref().ok().and_then(Option::as_ref);
        let told = told.and_then(|answer| answer["node"].as_str()).map(str::to_owned);
        known.node = told.or(node).or_else(|| known.node.take());
        let node = known.node.clone();
        match answer {
            Ok(answer) => {
                known.silent_since = None;
                Said { agent, node, answer, error: None, since: None }
            }
            Err(error) => {
                let since = *known.silent_since.get_or_insert_with(Timestamp::now);
                Said { agent, node, answer: None, error: Some(error), since: Some(since) }
            }
        }
    }

    /// Pods come and go; what is known of those that are not there any more is forgotten.
    async fn forget(&self, said: &[Said]) {
        let mut known = self.known.lock().await;
        if known.len() > said.len() {
            known.retain(|agent, _| said.iter().any(|said| said.agent == *agent));
        }
    }

    /// Why connections failed in a rollout, as all of them together know it.
    async fn explain(&self, id: &str) -> Result<Option<Explained>, SourceError> {
        let found = self.found().await?;
        let asked = Asked { rollouts: Some(String::new()), ..Asked::default() };
        let mut gathered = gather_from(found.clone(), &asked, self.patience).await;
        let Some(case) = case(&gathered, id) else { return Ok(None) };
        // Only now is it known whose failures are of interest.
        let workload = [("namespace", case.namespace), ("kind", case.kind), ("name", case.name)];
        let asked = Asked { failures: Some(query::encode(&workload)), ..Asked::default() };
        for answered in gather_from(found, &asked, self.patience).await.answered {
            let mut all = gathered.answered.iter_mut();
            if let Some(known) = all.find(|known| known.agent == answered.agent) {
                known.failures = answered.failures;
            }
        }
        Ok(explained(&gathered, id))
    }
}

/// The page and `/api/v1/…` for all of them.
pub fn many(agents: Many) -> Router {
    Router::new()
        .route("/api/v1/explain", get(explain))
        .route("/api/v1/{what}", get(pass_on))
        .with_state(Arc::new(agents))
        .merge(page())
}

async fn pass_on(State(agents): State<Arc<Many>>, Path(what): Path<String>, uri: Uri) -> Response {
    if !PASSED_ON.contains(&&*what) {
        return (StatusCode::NOT_FOUND, "agents have nothing of the kind\n").into_response();
    }
    let question = uri.path_and_query().map_or("", |question| question.as_str());
    match agents.ask(question).await {
        Ok(agents) => Json(All { agents }).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

async fn explain(State(agents): State<Arc<Many>>, Query(of): Query<Of>) -> Response {
    let id = of.rollout.to_string();
    match agents.explain(&id).await {
        Ok(Some(explained)) => Json(explained).into_response(),
        Ok(None) => {
            (StatusCode::NOT_FOUND, format!("no agent knows a rollout {id}\n")).into_response()
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}
