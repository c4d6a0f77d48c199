//! What the agents use while nothing rolls out: without any traffic, then under steady traffic.

mod args;
mod result;

pub use args::RestArgs;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::{Instant, sleep_until};

use self::result::{Measured, RestResult};
use crate::agent::{Agent, Usage};
use crate::cli::RunArgs;
use crate::isolate::{self, Outside};
use crate::run::clients::Clients;
use crate::run::cluster::Cluster;
use crate::run::progress::Progress;
use crate::run::workload::Workload;

/// Starts it in namespaces of its own.
pub fn outside(args: &RestArgs) -> Result<ExitCode> {
    let agent = Some(args.run_args()?.agent_binary()?);
    isolate::run(&Outside { name: "rest", out: args.lab.out.as_deref(), agent })
}

/// Measures, as the first process of the lab's own namespaces.
pub fn inside(args: &RestArgs) -> Result<ExitCode> {
    let out = args.lab.out.clone().context("`--inside` needs `--out`")?;
    let result = isolate::play(&out, measure(&args.run_args()?, &out))?;
    let json = serde_json::to_string(&result).context("encode the result")?;
    let path = out.join("result.json");
    std::fs::write(&path, &json).with_context(|| format!("write {}", path.display()))?;
    if args.lab.json {
        println!("{json}");
    } else {
        print!("{}", result.text(&out));
    }
    Ok(if result.is_light() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn measure(args: &RunArgs, out: &Path) -> Result<RestResult> {
    let progress = Progress::new();
    progress.phase("building the cluster");
    let mut cluster = Cluster::start(args, out).await?;
    let broken = cluster.broken();
    tokio::select! {
        result = phases(args, out, &cluster, &progress) => result,
        error = broken => Err(error),
    }
}

async fn phases(
    args: &RunArgs,
    out: &Path,
    cluster: &Cluster,
    progress: &Progress,
) -> Result<RestResult> {
    let workload = Workload::new(cluster.client.clone(), args);
    progress.phase("deploying the workload");
    workload.create().await?;
    workload.completed().await?;
    cluster.backends_reachable(&workload).await?;
    progress.phase("starting the agents");
    let mut agents = crate::run::start_agents(cluster, args, out).await?;
    let mut measured = Vec::new();

    progress.phase("no traffic");
    let before = usages(&agents)?;
    let began = Instant::now();
    sleep_until(began + Duration::from_secs(args.seconds)).await;
    note(&mut measured, "no traffic", &agents, &before, began.elapsed())?;

    progress.phase("steady traffic");
    let before = usages(&agents)?;
    let began = Instant::now();
    let mut clients = Clients::start(cluster, args, out).await?;
    clients.finished(progress).await?;
    note(&mut measured, "steady traffic", &agents, &before, began.elapsed())?;

    clients.read_logs()?;
    let mut reported = 0;
    for agent in &mut agents {
        reported += agent.report(out).await?.failures.failures.len();
    }
    for agent in agents {
        agent.stop().await?;
    }
    progress.done();
    let summaries = clients.summaries.values();
    Ok(RestResult {
        requests: summaries.clone().map(|summary| summary.requests).sum(),
        failed: summaries.map(|summary| summary.failed).sum(),
        reported,
        measured,
    })
}

fn usages(agents: &[Agent]) -> Result<Vec<Usage>> {
    agents.iter().map(Agent::usage).collect()
}

fn note(
    measured: &mut Vec<Measured>,
    phase: &'static str,
    agents: &[Agent],
    before: &[Usage],
    took: Duration,
) -> Result<()> {
    for (agent, before) in agents.iter().zip(before) {
        let after = agent.usage()?;
        let at_ready = agent.usage_at_ready().context("an agent was never ready")?;
        measured.push(Measured {
            node: agent.node().to_owned(),
            phase,
            resident_kib: after.resident_kib,
            peak_at_start_kib: at_ready.peak_resident_kib,
            processor_share: (after.processor_seconds - before.processor_seconds)
                / took.as_secs_f64(),
        });
    }
    Ok(())
}
