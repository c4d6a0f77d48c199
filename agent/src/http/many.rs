//! Many agents as one: the same addresses, each answered with what every agent says.
//!
//! `{"agents": [{"url", "node", "answer"} or {"url", "node", "error", "since"}]}`: one that does not
//! answer is named, so that nobody takes its silence for there being nothing.

use std::{collections::BTreeMap, str::FromStr, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use axum::{
    Router,
    body::{self, Body},
    extract::State,
    http::{StatusCode, Uri, uri::Scheme},
    response::{IntoResponse, Json, Response},
    routing::get,
};
use futures::{FutureExt as _, StreamExt as _, stream};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio::{sync::Mutex, time::timeout};

use super::page;

/// Agents that are asked at the same time.
const AT_ONCE: usize = 32;
/// The longest answer taken: 10,000 failures with their evidence are some 10 MB.
const LONGEST: usize = 64 * 1_024 * 1_024;

/// Where an agent's API is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentUrl(String);

impl FromStr for AgentUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let with_scheme =
            if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = with_scheme.parse().map_err(|error| format!("no URL: {error}"))?;
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err("an agent speaks http:// only".to_owned());
        }
        let authority = uri.authority().ok_or("no host in it")?;
        if authority.port().is_none() {
            return Err(format!("no port in it: an agent's API is at http://{authority}:9466"));
        }
        Ok(Self(format!("http://{authority}{}", uri.path().trim_end_matches('/'))))
    }
}

/// What one agent says.
#[derive(Clone, Debug, Serialize)]
struct Said {
    url: String,
    /// Its node, once it has said it.
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
    agents: Vec<AgentUrl>,
    patience: Duration,
    client: Client<HttpConnector, Body>,
    known: Mutex<BTreeMap<String, Known>>,
}

impl Many {
    /// These agents; each is given `patience` for an answer.
    pub fn new(agents: Vec<AgentUrl>, patience: Duration) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { agents, patience, client, known: Mutex::default() }
    }

    /// Asks each for the same, in parallel.
    async fn ask(&self, path: &str) -> Vec<Said> {
        let mut asked = Vec::with_capacity(self.agents.len());
        for agent in &self.agents {
            asked.push(self.ask_one(agent, path).boxed());
        }
        stream::iter(asked).buffered(AT_ONCE).collect().await
    }

    async fn ask_one(&self, agent: &AgentUrl, path: &str) -> Said {
        let answer = timeout(self.patience, self.get(agent, path)).await;
        let silent = |_| Err(anyhow!("no answer within {} s", self.patience.as_secs_f64()));
        self.told(agent, answer.unwrap_or_else(silent)).await
    }

    /// What it answers; `None` if it has nothing of the kind.
    async fn get(&self, agent: &AgentUrl, path: &str) -> anyhow::Result<Option<Value>> {
        let uri: Uri = format!("{}{path}", agent.0).parse().context("no address")?;
        let response = self.client.get(uri).await.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            anyhow!(cause.unwrap_or_else(|| error.to_string()))
        })?;
        let status = response.status();
        let bytes = body::to_bytes(Body::new(response.into_body()), LONGEST)
            .await
            .context("its answer broke off")?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::OK => {
                Ok(Some(serde_json::from_slice(&bytes).context("its answer is no JSON")?))
            }
            other => bail!("{other}: {}", String::from_utf8_lossy(&bytes).trim()),
        }
    }

    async fn told(&self, agent: &AgentUrl, answer: anyhow::Result<Option<Value>>) -> Said {
        let url = agent.0.clone();
        let mut known = self.known.lock().await;
        let known = known.entry(url.clone()).or_default();
        match answer {
            Ok(answer) => {
                known.silent_since = None;
                let node = answer.as_ref().and_then(|answer| answer["node"].as_str());
                known.node = node.map(str::to_owned).or_else(|| known.node.take());
                Said { url, node: known.node.clone(), answer, error: None, since: None }
            }
            Err(error) => {
                let since = *known.silent_since.get_or_insert_with(Timestamp::now);
                let error = Some(format!("{error:#}"));
                Said { url, node: known.node.clone(), answer: None, error, since: Some(since) }
            }
        }
    }
}

/// The page and `/api/v1/…` for all of them.
pub fn many(agents: Many) -> Router {
    Router::new().route("/api/v1/{what}", get(forward)).with_state(Arc::new(agents)).merge(page())
}

async fn forward(State(agents): State<Arc<Many>>, uri: Uri) -> Response {
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    let agents = agents.ask(path).await;
    if agents.iter().all(|said| said.answer.is_none() && said.error.is_none()) {
        return (StatusCode::NOT_FOUND, "no agent has anything of the kind\n").into_response();
    }
    Json(All { agents }).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_named_by_host_and_port() {
        for (text, url) in [
            ("10.0.0.1:9466", "http://10.0.0.1:9466"),
            ("http://n1.example:9466/", "http://n1.example:9466"),
            ("http://[fd00::1]:9466", "http://[fd00::1]:9466"),
        ] {
            assert_eq!(text.parse(), Ok(AgentUrl(url.to_owned())));
        }
        for text in ["https://n1:9466", "10.0.0.1", "http://n1", "", "http://"] {
            assert!(text.parse::<AgentUrl>().is_err(), "{text}");
        }
    }
}
