//! One scenario, from the first link to the verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use jiff::{SignedDuration, Timestamp};

use super::acts;
use super::catalogue::Scenario;
use super::gap::{self, Gap, Restart};
use super::outcome::ScenarioResult;
use super::pods::PodLog;
use super::routes::{RouteListener, Routes};
use super::stage::{Served, Stage};
use super::truth::{KnownRollout, Ledger, Start};
use crate::agent::report::Rollout;
use crate::agent::{Agent, AgentReport};
use crate::app::server::LISTENING;
use crate::cli::RunArgs;
use crate::journal::{Entry, Event};
use crate::run::clients::Clients;
use crate::run::cluster::Cluster;
use crate::run::progress::Progress;
use crate::run::workload::pod_backends;

/// Plays a scenario.
pub async fn play(scenario: Scenario, args: &RunArgs, out: &Path) -> Result<ScenarioResult> {
    let progress = Progress::new();
    progress.phase("building the cluster");
    let mut cluster = Cluster::start(args, out).await?;
    let broken = cluster.broken();
    tokio::select! {
        result = on_stage(scenario, args, out, &cluster, &progress) => result,
        error = broken => Err(error),
    }
}

async fn on_stage(
    scenario: Scenario,
    args: &RunArgs,
    out: &Path,
    cluster: &Cluster,
    progress: &Progress,
) -> Result<ScenarioResult> {
    let stage = Stage::new(cluster, args.setup, args.address_plan());
    let log = PodLog::default();
    let watch = log.start(stage.user("lab-log")?);
    progress.phase("deploying the first revision");
    deploy(scenario, &stage).await?;

    let mut listeners = Vec::new();
    for node in &cluster.nodes {
        listeners.push(RouteListener::start(node, out)?);
    }
    progress.phase("starting the agents");
    let mut agents = start_agents(scenario, args, cluster, out)?;
    for agent in &mut agents {
        agent.ready().await?;
    }
    cluster.journal.phase("agents ready");
    cluster.set_watch_delays(args);

    progress.phase("load");
    let served = stage.served();
    let mut clients = start_clients(cluster, args, out, &served).await?;
    cluster.journal.phase("load started");
    let gap = under_load(scenario, &stage, &clients, progress, &mut agents).await?;
    cluster.journal.phase("load ended");

    progress.phase("waiting for the agents' verdicts");
    let (reports, mut doubts) = collect(agents, out).await?;
    clients.read_logs()?;
    let mut routes = Routes::default();
    for listener in listeners {
        listener.finish(&mut routes).await?;
    }
    watch.abort();
    progress.done();
    let entries = cluster.journal.entries()?;
    let ledger = Ledger {
        pods: log.all(),
        starts: starts(&entries, out)?,
        removals: cluster.api.removals(),
        exits: exits(&entries),
        actions: stage.actions(),
        routes,
        deployed: stage.deployed(),
        dialled: dialled(&served),
        rollouts: known_rollouts(&reports, gap.as_ref()),
        blind: gap.as_ref().map(|gap| (gap.node.clone(), gap.until)),
        agent_delay: SignedDuration::from_millis(i64::try_from(args.agent_watch_delay)?),
    };
    doubts.extend(cluster.api.overstepped());
    let gap = gap.as_ref();
    if let Some(gap) = gap {
        doubts.extend(gap.untold(&reports, out)?);
    }
    Ok(ScenarioResult::new(scenario, &clients, &reports, &ledger, doubts, gap))
}

async fn deploy(scenario: Scenario, stage: &Stage<'_>) -> Result<()> {
    acts::deploy(scenario, stage).await?;
    let mut backends = BTreeSet::new();
    for workload in stage.deployed().into_values() {
        for pod in stage.ready(&workload.application, "1", workload.pods).await? {
            backends.extend(pod_backends(&pod)?);
        }
    }
    stage.cluster.reachable(&backends).await
}

fn start_agents(
    scenario: Scenario,
    args: &RunArgs,
    cluster: &Cluster,
    out: &Path,
) -> Result<Vec<Agent>> {
    let dials = scenario.dials();
    let program = args.agent_program()?;
    let mut agents = Vec::new();
    for node in &cluster.nodes {
        if dials.without_agent == Some(node.addresses.number) {
            continue;
        }
        let (server, mut further) = (&cluster.server, dials.agent_arguments.to_vec());
        let folder = out.join(format!("state-{}", node.addresses.name));
        if scenario.restart() == Some(Restart::Upgraded) {
            further.extend(["--state-dir", folder.to_str().context("a path is not UTF-8")?]);
        }
        let (addresses, namespace) = (&node.addresses, &node.namespace);
        agents.push(Agent::start(&program, addresses, namespace, server, out, &further)?);
    }
    Ok(agents)
}

async fn start_clients(
    cluster: &Cluster,
    args: &RunArgs,
    out: &Path,
    served: &[Served],
) -> Result<Clients> {
    let targets: Vec<_> =
        served.iter().map(|s| (suffix(s), s.addresses.clone(), s.application.as_str())).collect();
    Clients::start_towards(cluster, args, out, &targets).await
}

fn suffix(served: &Served) -> String {
    format!("-{}", served.service)
}

fn dialled(served: &[Served]) -> BTreeMap<String, Served> {
    let names = |s: &Served| ["client", "client-host"].map(|name| format!("{name}{}", suffix(s)));
    served.iter().flat_map(|s| names(s).map(|name| (name, s.clone()))).collect()
}

/// The act has to end before the load does: else nobody would suffer from it.
async fn under_load(
    scenario: Scenario,
    stage: &Stage<'_>,
    clients: &Clients,
    progress: &Progress,
    agents: &mut [Agent],
) -> Result<Option<Gap>> {
    let restart = async {
        let nodes = &stage.cluster.nodes;
        match (scenario.restart(), agents.first_mut(), nodes.first()) {
            (Some(how), Some(agent), Some(node)) => {
                gap::restart(stage, agent, &node.namespace, how).await.map(Some)
            }
            _ => Ok(None),
        }
    };
    let act = async {
        let ((), gap) = tokio::try_join!(acts::act(scenario, stage), restart)?;
        stage.cluster.journal.phase("the act has ended");
        progress.phase("the act has ended");
        anyhow::Ok(gap)
    };
    let load = clients.finished(progress);
    tokio::pin!(act, load);
    tokio::select! {
        end = &mut act => {
            let gap = end?;
            load.await?;
            Ok(gap)
        }
        end = &mut load => {
            end?;
            bail!("the load ended before the act: the scenario needs more seconds")
        }
    }
}

async fn collect(agents: Vec<Agent>, out: &Path) -> Result<(Vec<AgentReport>, Vec<String>)> {
    let (mut reports, mut doubts) = (Vec::new(), Vec::new());
    for agent in &agents {
        if !agent.settled().await? {
            doubts.push("an agent still has undecided failures at the deadline".to_owned());
        }
    }
    for mut agent in agents {
        reports.push(agent.report(out).await?);
        agent.stop().await?;
    }
    Ok((reports, doubts))
}

fn starts(entries: &[Entry], out: &Path) -> Result<Vec<Start>> {
    let mut starts = Vec::new();
    for entry in entries {
        let Event::PodStarted { node, pod, uid, addresses } = &entry.event else { continue };
        starts.push(Start {
            at: entry.at,
            uid: uid.clone(),
            node: node.clone(),
            addresses: addresses.clone(),
            listened: listened(&out.join("pods").join(format!("{}.log", pod.replace('/', "_"))))?,
        });
    }
    Ok(starts)
}

/// When a server first listened, by its own output.
fn listened(log: &Path) -> Result<Option<Timestamp>> {
    let text = std::fs::read_to_string(log).with_context(|| format!("read {}", log.display()))?;
    let first = text.lines().find_map(|line| line.strip_prefix(LISTENING));
    first
        .map(str::parse)
        .transpose()
        .with_context(|| format!("read when the server listened: {}", log.display()))
}

fn exits(entries: &[Entry]) -> Vec<(Timestamp, String)> {
    let exited = entries.iter().filter_map(|entry| match &entry.event {
        Event::ContainerExited { pod, .. } => {
            let name = pod.split_once('/').map_or(pod.as_str(), |(_, name)| name);
            Some((entry.at, name.to_owned()))
        }
        _ => None,
    });
    exited.collect()
}

fn known_rollouts(
    reports: &[AgentReport],
    gap: Option<&Gap>,
) -> BTreeMap<(String, String), KnownRollout> {
    let killed = gap.map(|gap| (&gap.node, &gap.rollouts));
    let others = reports.iter().map(|report| (&report.node, &report.rollouts.rollouts));
    let of = |(node, rollouts): (&String, &Vec<Rollout>)| {
        let node = node.clone();
        rollouts.clone().into_iter().map(move |rollout| {
            let known = KnownRollout {
                hash: rollout.to.hash.unwrap_or_default(),
                started: rollout.started,
            };
            ((node.clone(), rollout.id), known)
        })
    };
    killed.into_iter().chain(others).flat_map(of).collect()
}
