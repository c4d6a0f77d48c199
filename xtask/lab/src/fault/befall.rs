//! What each fault does to the agents' way to the API server, and what they said of themselves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use rollrace_deploy::role::Role;
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

use super::catalogue::{Dials, Fault};
use crate::agent::{Agent, Readiness, ReadinessWatch};
use crate::api::{self, usage::UsageKey};
use crate::net::http_get;
use crate::run::cluster::{AGENTS, Cluster};
use crate::run::progress::Progress;

/// How late a slow server answers.
const SLOW: Duration = Duration::from_secs(2);
/// Between two closings of the watches. Some are longer than what a watch must last to be begun
/// again at once.
const CLOSINGS: [Duration; 3] =
    [Duration::from_millis(1_300), Duration::from_millis(600), Duration::from_millis(1_700)];
/// What agents may not get while rights are missing. A rollout needs the first, and the second where
/// a pod of another node does not answer.
const DENIED: [&str; 2] = ["pods", "nodes"];
/// An agent is ready again within this time of the fault's end: its watches back off up to 30 s,
/// and a connection that is being tried meanwhile may take its 10 s.
pub const READY_AGAIN: Duration = Duration::from_secs(60);
/// After that, until the agents have looked at everything once more: they ask the kernel for its
/// counts twice a second.
const LOOKED_OVER: Duration = Duration::from_secs(2);
/// Between two looks at whether it is.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// A fault, and when.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Which.
    pub fault: Fault,
    /// When, and for how long.
    pub dials: Dials,
}

/// Where an agent can be asked.
#[derive(Debug, Clone)]
pub struct Door {
    /// Its node.
    pub node: String,
    /// `/readyz`
    pub operations: SocketAddr,
    /// `/api/v1`
    pub api: SocketAddr,
}

/// What the agents said of themselves.
#[derive(Debug, Clone, Serialize)]
pub struct Observed {
    /// Which fault.
    pub fault: &'static str,
    /// When it set in.
    pub began: Timestamp,
    /// When it was over.
    pub ended: Timestamp,
    /// By node.
    pub agents: BTreeMap<String, Said>,
}

/// What one agent said.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Said {
    /// Its readiness from before the fault until it was ready after it.
    pub readiness: Vec<Readiness>,
    /// Its status before, at the end of the fault, and after it.
    pub status: [Value; 3],
    /// What the server had refused to get when the fault was about to end.
    pub refused: Vec<String>,
    /// Whether it was ready again in time.
    pub ready_again: bool,
}

impl Plan {
    /// Lets it befall the agents of a cluster in which a rollout begins now.
    pub async fn befall(
        self,
        cluster: &Cluster,
        agents: &[Door],
        out: &Path,
        progress: &Progress,
    ) -> Result<Observed> {
        let older = cluster.api.snapshot();
        let mut said: BTreeMap<String, Said> = BTreeMap::new();
        let mut watches = Vec::new();
        for agent in agents {
            watches.push((agent, ReadinessWatch::start(agent.operations)));
            said.entry(agent.node.clone()).or_default().status[0] = status(agent).await?;
        }
        sleep(Duration::from_secs(self.dials.after)).await;
        cluster.journal.phase(&format!("{} begins", self.fault.name()));
        progress.phase(self.fault.name());
        let began = Timestamp::now();
        let until = Instant::now() + Duration::from_secs(self.dials.lasts);
        self.begin(cluster, older, until).await?;
        tokio::time::sleep_until(until).await;
        for agent in agents {
            let said = said.entry(agent.node.clone()).or_default();
            said.refused = refused(cluster, agent);
            said.status[1] = status(agent).await?;
        }
        let ended = Timestamp::now();
        self.end(cluster).await?;
        cluster.journal.phase(&format!("{} is over", self.fault.name()));
        progress.phase("the fault is over");
        let deadline = Instant::now() + READY_AGAIN;
        for (agent, watch) in watches {
            let said = said.entry(agent.node.clone()).or_default();
            said.ready_again = ready(agent, deadline).await?;
            said.status[2] = status(agent).await?;
            said.readiness = watch.stop().await?;
        }
        sleep(LOOKED_OVER).await;
        let observed = Observed { fault: self.fault.name(), began, ended, agents: said };
        let path = out.join("fault.json");
        let text = serde_json::to_string_pretty(&observed).context("encode what was observed")?;
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(observed)
    }

    async fn begin(
        self,
        cluster: &Cluster,
        older: api::store::Snapshot,
        until: Instant,
    ) -> Result<()> {
        match self.fault {
            Fault::ApiSlow => cluster.api.set_request_delay(AGENTS, SLOW),
            Fault::ApiGone => cluster.agents_entrance.shut().await,
            Fault::ApiSilent => cluster.agents_entrance.set_silent(true).await?,
            Fault::ApiOlder => {
                let listener = TcpListener::bind("127.0.0.1:0").await.context("bind loopback")?;
                let options = api::Options { state: Some(older), ..api::Options::default() };
                let restored = api::start(listener, options);
                restored.bind_role(AGENTS, Role::shipped()?);
                cluster.agents_entrance.lead_to(&restored).await?;
            }
            Fault::ApiDenied => {
                for resource in DENIED {
                    cluster.api.deny(AGENTS, "get", resource);
                }
            }
            Fault::WatchChaos => {
                for (turn, pause) in CLOSINGS.iter().cycle().enumerate() {
                    if Instant::now() + *pause > until {
                        break;
                    }
                    sleep(*pause).await;
                    if turn % 2 == 1 {
                        cluster.api.forget(AGENTS);
                    }
                    cluster.api.close_watches(AGENTS);
                }
            }
        }
        Ok(())
    }

    async fn end(self, cluster: &Cluster) -> Result<()> {
        match self.fault {
            Fault::ApiSlow => cluster.api.set_request_delay(AGENTS, Duration::ZERO),
            Fault::ApiGone | Fault::ApiOlder => {
                cluster.agents_entrance.lead_to(&cluster.api).await?;
            }
            Fault::ApiSilent => cluster.agents_entrance.set_silent(false).await?,
            Fault::ApiDenied => cluster.api.allow_all(AGENTS),
            Fault::WatchChaos => {}
        }
        Ok(())
    }
}

impl Observed {
    /// The fault takes deletions away before the agents can hear of them.
    pub fn loses_history(&self) -> bool {
        self.fault == Fault::WatchChaos.name()
    }
}

impl Door {
    /// Where this agent can be asked.
    pub fn of(agent: &Agent) -> Self {
        let (operations, api) = agent.addresses();
        Self { node: agent.node().to_owned(), operations, api }
    }
}

/// What the server refused this agent to get so far.
fn refused(cluster: &Cluster, agent: &Door) -> Vec<String> {
    let user = format!("{AGENTS}{}", agent.node);
    let of_agent = |key: &UsageKey| key.user == user && key.verb == "get";
    let usage = cluster.api.usage().into_iter();
    usage
        .filter(|(key, usage)| of_agent(key) && usage.refused > 0)
        .map(|(key, _)| key.resource)
        .collect()
}

async fn status(agent: &Door) -> Result<Value> {
    let answer = timeout(Duration::from_secs(5), http_get(agent.api, "/api/v1/status"))
        .await
        .with_context(|| format!("the agent of {} does not answer its status", agent.node))??;
    serde_json::from_str(&answer.body)
        .with_context(|| format!("read the status of the agent of {}", agent.node))
}

async fn ready(agent: &Door, deadline: Instant) -> Result<bool> {
    loop {
        if http_get(agent.operations, "/readyz").await?.status == 200 {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(LOOK_AGAIN).await;
    }
}
