//! One agent asked: directly, or through the API server's proxy to its pod.

use std::time::Duration;

use axum::{
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use kube::{Client, Config};
use serde::de::DeserializeOwned;

use super::{
    answers::{self, plain},
    cluster::chain,
};

/// The largest answer that is taken: 10,000 failures with their evidence are some 12 MB.
const LARGEST: usize = 64 << 20;

/// An agent that can be asked.
#[derive(Clone)]
pub struct Agent {
    pub(super) client: Client,
    /// What comes before `/api/v1/…`.
    pub(super) path: String,
    /// What it is called: its pod's name, or its URL.
    pub(super) label: String,
    /// The node that it covers, if that is known beforehand.
    pub(super) node: Option<String>,
    /// The namespace of its pod, if it is asked through the API server.
    pub(super) proxied: Option<String>,
}

impl Agent {
    /// An agent by its URL, as `http://10.0.0.1:9466`.
    ///
    /// # Errors
    /// If that is no URL.
    pub fn at(url: &str, timeout: Duration) -> Result<Self, String> {
        let with_scheme =
            if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri = with_scheme.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
        let mut config = Config::new(uri);
        config.connect_timeout = Some(timeout);
        config.default_retry = false;
        let client = Client::try_from(config).map_err(|error| chain(&error))?;
        let label = with_scheme.trim_end_matches('/').to_owned();
        Ok(Self { client, path: String::new(), label, node: None, proxied: None })
    }

    /// Asks it one thing: `question` is a path with its query, as `/api/v1/status`.
    ///
    /// # Errors
    /// Why there is no answer, for people, with the remedy where there is one.
    pub async fn ask<T: DeserializeOwned>(&self, question: &str) -> Result<T, String> {
        self.ask_for(question).await?.ok_or_else(|| "404: it has nothing of the kind".to_owned())
    }

    /// The same, for what an agent may know nothing of: then `None`.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn ask_for<T: DeserializeOwned>(&self, question: &str) -> Result<Option<T>, String> {
        let path = format!("{}{question}", self.path);
        let request = Request::get(path).body(kube::client::Body::empty());
        let request = request.map_err(|error| error.to_string())?;
        let response = self.client.send(request).await.map_err(|error| chain(&error))?;
        let status = response.status();
        let body = to_bytes(Body::new(response.into_body()), LARGEST).await;
        let body = body.map_err(|error| match chain(&error) {
            text if text.contains("length limit") => {
                format!("its answer is larger than {} MiB", LARGEST >> 20)
            }
            text => text,
        })?;
        // The API server's own "not found" is JSON: then it is the pod that is not there.
        let is_agents = || serde_json::from_slice::<serde_json::Value>(&body).is_err();
        if status == StatusCode::NOT_FOUND && question.contains("?rollout=") && is_agents() {
            return Ok(None);
        }
        if !status.is_success() {
            return Err(self.refused(status.as_u16(), &body));
        }
        answers::read(&body)
            .map(Some)
            .map_err(|error| format!("its answer makes no sense: {error}"))
    }

    /// What it is called: its pod's name, or its URL.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The node that it covers, if that is known beforehand.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    fn refused(&self, code: u16, body: &[u8]) -> String {
        let said: Option<serde_json::Value> = serde_json::from_slice(body).ok();
        let said = said.and_then(|said| said["message"].as_str().map(plain));
        let text = String::from_utf8_lossy(body);
        let text = said.unwrap_or_else(|| plain(text.lines().next().unwrap_or_default()));
        match (code, &self.proxied) {
            (401 | 403, Some(namespace)) => format!(
                "{code}: {text}; you need get on pods/proxy in namespace {namespace} (the viewer's \
                 Role of deploy/base)"
            ),
            (404, Some(_)) => format!("404: {text}; is it an older agent?"),
            (502..=504, Some(_)) => {
                format!("{code}: {text}; can the API server reach port 9466 of its node?")
            }
            _ => format!("{code}: {text}"),
        }
    }
}
