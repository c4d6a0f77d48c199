//! What the on-call commands share: whom to ask, and how to show the answer.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, anyhow};

use super::Failed;
use crate::oncall::{
    AGENT_LABELS, Asked, ClusterOptions, Gathered, Source, gather,
    show::{Style, Times},
};

/// Where the answers come from; by default the agents of the kubeconfig's cluster.
#[derive(Clone, Debug, clap::Args)]
pub struct From {
    /// Ask this agent, as 10.0.0.1:9466; may be repeated
    #[arg(
        long = "agent",
        value_name = "URL",
        conflicts_with = "recordings",
        help_heading = "Whom to ask"
    )]
    agents: Vec<String>,
    /// Ask nobody: replay this recording of an agent to its end; may be repeated, for other nodes
    #[arg(long = "recording", value_name = "FILE", help_heading = "Whom to ask")]
    recordings: Vec<PathBuf>,
    /// Kubeconfig, as for kubectl
    #[arg(long, value_name = "FILE", help_heading = "Whom to ask")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, as for kubectl
    #[arg(long, value_name = "NAME", help_heading = "Whom to ask")]
    context: Option<String>,
    /// Namespace that the agents run in
    #[arg(long, value_name = "NAME", default_value = "rollrace", help_heading = "Whom to ask")]
    agents_namespace: String,
    /// Labels of the agents' pods
    #[arg(long, value_name = "SELECTOR", default_value = AGENT_LABELS, help_heading = "Whom to ask")]
    agents_labels: String,
    /// How long to wait for an agent, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300), help_heading = "Whom to ask")]
    timeout: u64,
}

impl From {
    /// Whom to ask.
    pub fn source(&self) -> Source {
        if !self.recordings.is_empty() {
            return Source::Recordings(self.recordings.clone());
        }
        if !self.agents.is_empty() {
            return Source::Agents(self.agents.clone());
        }
        Source::Cluster(self.cluster())
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterOptions {
        ClusterOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            agents_namespace: self.agents_namespace.clone(),
            agents_labels: self.agents_labels.clone(),
        }
    }

    /// How long to wait for one answer.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// Asks all of them.
    pub async fn gather(&self, asked: &Asked) -> Result<Gathered, Failed> {
        gather(&self.source(), asked, self.timeout()).await.map_err(Failed::could_not_tell)
    }
}

/// Which namespaces.
#[derive(Clone, Debug, clap::Args)]
pub struct Within {
    /// Namespace of the workload; without it the context's, or all where no cluster is asked
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
}

impl Within {
    /// The one namespace of interest; `None`: all.
    pub fn namespace(&self, gathered: &Gathered) -> Option<String> {
        if self.all_namespaces {
            return None;
        }
        self.namespace.clone().or_else(|| gathered.namespace.clone())
    }

    /// What was asked for on the command line, before any context is known.
    pub fn named(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

/// How to show times.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Zone {
    /// Show times in UTC; JSON and YAML always do
    #[arg(long)]
    utc: bool,
}

impl Zone {
    /// Times in that zone.
    pub fn times(self) -> Times {
        Times::new(self.utc)
    }
}

/// Runs to the end of a future on a runtime of its own.
pub fn block_on<T>(future: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(future);
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

/// Prints to standard output; whoever closes it early (`| head`) has seen enough.
pub fn print(text: &str) -> Result<(), Failed> {
    use std::io::Write as _;

    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(anyhow!(error).context("cannot write the output").into())
        }
        _ => Ok(()),
    }
}

/// Nobody answered: there is nothing to tell from.
pub fn require_an_answer(gathered: &Gathered) -> Result<(), Failed> {
    if !gathered.answered.is_empty() {
        return Ok(());
    }
    let first = gathered.missing.first();
    let why = first.map_or_else(String::new, |one| format!(": {}: {}", one.covers(), one.why));
    Err(Failed::could_not_tell(anyhow!("none of {} agents answered{why}", gathered.missing.len())))
}

/// Colour for standard output.
pub fn style() -> Style {
    Style::of_stdout()
}
