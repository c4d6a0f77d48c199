//! One setup: a rollout under load, the advice, and the rollout of what was made of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::sleep;

use super::args::CellArgs;
use super::outcome::{ByMode, Outcome, Suffered};
use crate::agent::Agent;
use crate::cli::{Mode, RunArgs};
use crate::explained::{Asked, Explained};
use crate::isolate::{self, Outside};
use crate::oncall::OnCall;
use crate::run::clients::Clients;
use crate::run::cluster::Cluster;
use crate::run::progress::Progress;
use crate::run::start_agents;
use crate::run::workload::{APPLICATION, SERVICE_PORT, Workload};
use crate::setup::Setup;

/// When the rollout begins, in seconds of load.
const ROLLOUT_AFTER: Duration = Duration::from_secs(3);
/// How long the load lasts: a rollout takes some 12 s, and its last pod is gone some 10 s later.
const LOAD_SECONDS: u64 = 30;
/// What SIGKILL ends 30 s after its deletion.
const LOAD_SECONDS_TO_THE_KILL: u64 = 55;
/// Threads of each client: two modes share the machine.
const THREADS: u64 = 5;

/// Starts the lab in namespaces of its own.
pub fn outside(args: &CellArgs) -> Result<ExitCode> {
    let agent = Some(run_args(args)?.agent_binary()?);
    isolate::run(&Outside { name: args.setup.name(), out: Some(&args.out), agent })
}

/// Plays it, as the first process of the lab's own namespaces.
pub fn inside(args: &CellArgs) -> Result<ExitCode> {
    let outcome = isolate::play(&args.out, play(&run_args(args)?, &args.out))?.judged();
    let json = serde_json::to_string(&outcome).context("encode the outcome")?;
    let path = args.out.join("result.json");
    std::fs::write(&path, &json).with_context(|| format!("write {}", path.display()))?;
    println!("{json}");
    Ok(if outcome.objections.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn run_args(args: &CellArgs) -> Result<RunArgs> {
    let seconds = match args.setup {
        Setup::Ignore => LOAD_SECONDS_TO_THE_KILL,
        _ => LOAD_SECONDS,
    };
    let options = [
        ("setup", args.setup.name().to_owned()),
        ("mode", Mode::Fresh.name().to_owned()),
        ("seconds", seconds.to_string()),
        ("threads", THREADS.to_string()),
        ("kubernetes", args.kubernetes.clone()),
        ("lab-number", args.lab_number.to_string()),
    ];
    RunArgs::of_options(&options, args.agent.as_deref())
}

async fn play(args: &RunArgs, out: &Path) -> Result<Outcome> {
    let progress = Progress::new();
    progress.phase("building the cluster");
    let mut cluster = Cluster::start(args, out).await?;
    let broken = cluster.broken();
    tokio::select! {
        outcome = follow_the_advice(args, out, &cluster, &progress) => outcome,
        error = broken => Err(error),
    }
}

async fn follow_the_advice(
    args: &RunArgs,
    out: &Path,
    cluster: &Cluster,
    progress: &Progress,
) -> Result<Outcome> {
    let workload = Workload::new(cluster.client.clone(), args);
    progress.phase("deploying the first revision");
    workload.create().await?;
    workload.completed().await?;
    cluster.backends_reachable(&workload).await?;
    let agents = start_agents(cluster, args, out).await?;
    let stage = Stage { out, cluster, workload: &workload, progress };

    let (before, mut doubts) = Box::pin(stage.roll_out_under_load(args, "before", "2")).await?;
    settle(&agents, &mut doubts).await?;
    let on_call = OnCall::new(cluster, &args.agent_binary()?, out).await?;
    let asked = Asked { on_call: &on_call, deployment: APPLICATION };
    let explained = Explained::of(&asked, out, "explained").await?;
    let patch = explained.patch_value()?;
    let mut outcome = Outcome {
        setup: args.setup.name().to_owned(),
        before,
        explained,
        after: None,
        explained_after: None,
        doubts,
        objections: Vec::new(),
    };
    if patch.is_some() || outcome.explained.needs_drain {
        progress.phase("doing what explain advises");
        cluster.journal.phase("the advice is followed");
        if let Some(patch) = patch {
            workload.patch_strategically(&patch).await.context("apply the printed patch")?;
        }
        if outcome.explained.needs_drain {
            workload.drain().await?;
        }
        end_the_tail(cluster, &outcome.explained).await?;
        workload.completed().await?;
        workload.old_pods_gone().await?;
        cluster.only_backends_reachable(&workload).await?;
        // Pods that drain are not killed any more.
        let args = RunArgs { seconds: LOAD_SECONDS, ..args.clone() };
        let (after, further) = Box::pin(stage.roll_out_under_load(&args, "after", "3")).await?;
        outcome.after = Some(after);
        outcome.doubts.extend(further);
        settle(&agents, &mut outcome.doubts).await?;
        let said = Explained::of(&asked, out, "explained-after").await?;
        outcome.explained_after = Some(said);
    }
    outcome.doubts.extend(on_call.objections(cluster).await?);
    for mut agent in agents {
        agent.report(out).await?;
        agent.stop().await?;
    }
    progress.done();
    Ok(outcome)
}

/// What the rollouts have in common.
struct Stage<'a> {
    out: &'a Path,
    cluster: &'a Cluster,
    workload: &'a Workload,
    progress: &'a Progress,
}

impl Stage<'_> {
    /// Rolls a version out under load of both modes; what the clients suffered, and what is doubtful.
    async fn roll_out_under_load(
        &self,
        args: &RunArgs,
        name: &str,
        version: &str,
    ) -> Result<(ByMode, Vec<String>)> {
        self.progress.phase(&format!("load, {name}"));
        let addresses = args.address_plan().service();
        let targets: Vec<SocketAddr> =
            addresses.iter().map(|address| SocketAddr::new(*address, SERVICE_PORT)).collect();
        let mut clients = Vec::new();
        for mode in [Mode::Fresh, Mode::Keepalive] {
            let args = RunArgs { mode, ..args.clone() };
            let suffix = format!("-{}-{name}", mode.name());
            let target = [(suffix, targets.clone(), APPLICATION)];
            let started = Clients::start_towards(self.cluster, &args, self.out, &target).await?;
            clients.push((mode, started));
        }
        let rollout = async {
            sleep(ROLLOUT_AFTER).await;
            self.cluster.journal.phase(&format!("rollout to version {version}"));
            self.workload.roll_out(version).await?;
            self.workload.completed().await?;
            self.workload.old_pods_gone().await
        };
        let mut doubts = Vec::new();
        {
            let finished = clients.iter().map(|(_, clients)| clients.finished(self.progress));
            let load = futures::future::try_join_all(finished);
            tokio::pin!(rollout, load);
            tokio::select! {
                end = &mut rollout => {
                    end?;
                    load.await?;
                }
                end = &mut load => {
                    end?;
                    doubts.push(format!("the load ended before the rollout to version {version}"));
                    rollout.await?;
                }
            }
        }
        let mut suffered = BTreeMap::new();
        for (mode, mut clients) in clients {
            clients.read_logs()?;
            suffered.insert(mode.name().to_owned(), of(&clients));
        }
        Ok((suffered, doubts))
    }
}

/// The patch prevents stale entries; of those that are there explain says how they end at once.
async fn end_the_tail(cluster: &Cluster, explained: &Explained) -> Result<()> {
    for node in &cluster.nodes {
        for address in explained.stale.get(&node.addresses.name).into_iter().flatten() {
            let mut conntrack = node.namespace.command("conntrack");
            conntrack.args(["-D", "-p", "tcp", "--state", "SYN_SENT", "--reply-src"]);
            conntrack.arg(address.to_string()).stdin(Stdio::null());
            conntrack.stdout(Stdio::null()).stderr(Stdio::null());
            // It fails where there is nothing left to delete.
            conntrack.status().await.context("run conntrack")?;
        }
    }
    Ok(())
}

fn of(clients: &Clients) -> Suffered {
    let mut failed = BTreeMap::new();
    for truth in &clients.truth {
        crate::compare::add(&mut failed, truth.failure.class.name());
    }
    Suffered { requests: clients.summaries.values().map(|s| s.requests).sum(), failed }
}

/// Waits for the verdicts.
async fn settle(agents: &[Agent], doubts: &mut Vec<String>) -> Result<()> {
    for agent in agents {
        if !agent.settled().await? {
            doubts.push(format!("the agent of {} still has undecided failures", agent.node()));
        }
    }
    if agents.is_empty() {
        bail!("there is no agent to explain anything");
    }
    Ok(())
}
