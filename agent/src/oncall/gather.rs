//! All agents asked at once, within bounds, and who did not answer.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use futures::StreamExt as _;

use super::{
    answers::{Failures, Rollouts, Status},
    cluster::{Access, AccessError, ClusterOptions},
    fetch::Agent,
    recording,
};
use crate::{advise::facts::Missing, record::RecordError};

/// Agents asked at a time: each answer is held only until it is joined.
const AT_A_TIME: usize = 64;

/// Where the answers come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// These agents.
    Agents(Vec<String>),
    /// Recordings of agents.
    Recordings(Vec<PathBuf>),
    /// The agents of a cluster.
    Cluster(ClusterOptions),
}

/// Why nobody can be asked.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// An `--agent` is none.
    #[error("--agent: {0}")]
    Url(String),
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordError),
    /// The cluster's agents cannot be found.
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// What each agent is asked; the queries select what is of interest.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Query of `/api/v1/rollouts`, without `?`; `None`: not asked.
    pub rollouts: Option<String>,
    /// Query of `/api/v1/failures`; `None`: not asked.
    pub failures: Option<String>,
    /// By agent, the number of the first failure that is of interest.
    pub since: BTreeMap<String, u64>,
}

/// One agent's answers.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    /// What it is called.
    pub agent: String,
    /// Its status.
    pub status: Status,
    /// Its rollouts.
    pub rollouts: Rollouts,
    /// Its failures.
    pub failures: Failures,
}

/// What all of them answered.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// Those that answered, by node.
    pub answered: Vec<Answered>,
    /// Those that did not.
    pub missing: Vec<Missing>,
    /// What else should be known: versions, a recording that was cut off.
    pub notes: Vec<String>,
    /// The namespace of the kubeconfig's context; `None` without a cluster.
    pub namespace: Option<String>,
}

/// Who can be asked.
#[derive(Clone, Default)]
pub struct Found {
    /// The agents.
    pub agents: Vec<Agent>,
    /// Pods of agents that cannot be asked.
    pub missing: Vec<Missing>,
    /// The namespace of the kubeconfig's context; `None` without a cluster.
    pub namespace: Option<String>,
}

/// Finds the agents. A recording is none.
///
/// # Errors
/// If they cannot be looked for.
pub async fn find(source: &Source, timeout: Duration) -> Result<Found, SourceError> {
    match source {
        Source::Recordings(_) => Ok(Found::default()),
        Source::Agents(urls) => {
            let agents: Result<Vec<Agent>, String> =
                urls.iter().map(|url| Agent::at(url, timeout)).collect();
            Ok(Found { agents: agents.map_err(SourceError::Url)?, ..Found::default() })
        }
        Source::Cluster(options) => {
            let access = Access::new(options, timeout).await?;
            let (agents, missing) = access.agents(options, timeout).await?;
            Ok(Found { agents, missing, namespace: Some(access.namespace) })
        }
    }
}

/// Finds and asks them.
///
/// # Errors
/// If there is nobody to ask; that one or all do not answer is no error.
pub async fn gather(
    source: &Source,
    asked: &Asked,
    timeout: Duration,
) -> Result<Gathered, SourceError> {
    if let Source::Recordings(paths) = source {
        return Ok(recording::gather(paths)?);
    }
    Ok(gather_from(find(source, timeout).await?, asked, timeout).await)
}

/// Asks those that were found.
pub async fn gather_from(found: Found, asked: &Asked, timeout: Duration) -> Gathered {
    let mut gathered = ask_all(found.agents, asked, timeout).await;
    gathered.missing.extend(found.missing);
    gathered.namespace = found.namespace;
    gathered.answered.sort_by(|one, other| one.status.node.cmp(&other.status.node));
    gathered.missing.sort_by(|one, other| one.covers().cmp(other.covers()));
    let versions = versions(&gathered.answered);
    gathered.notes.extend(versions);
    gathered
}

async fn ask_all(agents: Vec<Agent>, asked: &Asked, timeout: Duration) -> Gathered {
    let answers = futures::stream::iter(agents).map(|agent| async move {
        let answer = tokio::time::timeout(timeout, ask(&agent, asked)).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(format!(
                "no answer within {} (--timeout)",
                crate::advise::duration(timeout.as_secs_f64())
            ))
        });
        answer.map_err(|why| Missing { agent: agent.label, node: agent.node, why })
    });
    let mut gathered = Gathered::default();
    let mut answers = answers.buffer_unordered(AT_A_TIME);
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(answered) => gathered.answered.push(answered),
            Err(missing) => gathered.missing.push(missing),
        }
    }
    gathered
}

async fn ask(agent: &Agent, asked: &Asked) -> Result<Answered, String> {
    let path = |what: &str, query: &str| match query {
        "" => format!("/api/v1/{what}"),
        query => format!("/api/v1/{what}?{query}"),
    };
    let mut status: Status = agent.ask("/api/v1/status").await?;
    if status.node.is_empty() {
        status.node = agent.node.clone().unwrap_or_else(|| agent.label.clone());
    }
    let mut answered = Answered { agent: agent.label.clone(), status, ..Answered::default() };
    if let Some(query) = &asked.rollouts {
        answered.rollouts = agent.ask(&path("rollouts", query)).await?;
    }
    if let Some(query) = &asked.failures {
        let query = match (asked.since.get(&agent.label), &**query) {
            (None, query) => query.to_owned(),
            (Some(since), "") => format!("since={since}"),
            (Some(since), query) => format!("{query}&since={since}"),
        };
        answered.failures = agent.ask(&path("failures", &query)).await?;
    }
    Ok(answered)
}

/// Agents of another version than this: what both know is joined.
fn versions(answered: &[Answered]) -> Option<String> {
    let own = env!("CARGO_PKG_VERSION");
    let others: Vec<&Answered> =
        answered.iter().filter(|answer| answer.status.version != own).collect();
    let first = others.first()?;
    let version = &first.status.version;
    let more = match others.len() {
        1 => String::new(),
        many => format!(" and {} more", many - 1),
    };
    Some(format!(
        "the agent on {}{more} is of version {version}, this is {own}: joined as far as both know",
        first.status.node
    ))
}
