//! The rollouts: all at once, and one alone while a proxy is slow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::sleep;

use super::catalogue::App;
use super::crowd::crowd;
use crate::agent::Agent;
use crate::cli::{Mode, RunArgs};
use crate::explained::{Asked, Explained};
use crate::oncall::OnCall;
use crate::run::clients::Clients;
use crate::run::cluster::{Cluster, NAMESPACE};
use crate::run::progress::Progress;
use crate::run::workload::pod_backends;
use crate::scenario::acts::faults;
use crate::scenario::stage::Stage;

/// How long the load lasts: the rollouts, then what befalls single pods.
pub const LOAD_SECONDS: u64 = 50;
/// The load on the one that rolls out later.
const SLOW_LOAD_SECONDS: u64 = 32;
/// Threads of each client: there are some two dozen.
const THREADS: usize = 2;
/// When rollouts begin, in seconds of load.
const ROLLOUT_AFTER: Duration = Duration::from_secs(3);
/// How long a replica must have failed to be a bad one, in seconds.
const BAD_AFTER: &str = "5";
/// A proxy that is as slow as this is much slower than the others, and slower than a preStop of 5 s.
const SLOW: Duration = Duration::from_secs(8);
/// The slow one.
const SLOW_PROXY: &str = "lab-proxy-n2";

/// Plays it; what explain says of each.
pub async fn play(args: &RunArgs, out: &Path) -> Result<BTreeMap<App, Explained>> {
    let progress = Progress::new();
    progress.phase("building the cluster");
    let mut cluster = Cluster::start(args, out).await?;
    let broken = cluster.broken();
    tokio::select! {
        said = on_stage(args, out, &cluster, &progress) => said,
        error = broken => Err(error),
    }
}

async fn on_stage(
    args: &RunArgs,
    out: &Path,
    cluster: &Cluster,
    progress: &Progress,
) -> Result<BTreeMap<App, Explained>> {
    let stage = Stage::new(cluster, args.setup, args.address_plan());
    progress.phase("deploying");
    deploy(&stage).await?;
    let agents = start_agents(args, cluster, out).await?;
    let on_call = OnCall::new(cluster, &args.agent_binary()?, out).await?;

    let at_once: Vec<App> = App::ALL.into_iter().filter(|app| *app != App::Slow).collect();
    progress.phase("load");
    let load = Load::start(&stage, args, out, &at_once).await?;
    let act = async {
        sleep(ROLLOUT_AFTER).await;
        for app in &at_once {
            roll_out(&stage, *app).await?;
        }
        for app in &at_once {
            stage.settled(app.name(), "2", pods(*app)?).await?;
        }
        delete_one(&stage, App::Plain).await?;
        faults::make_bad(&stage, App::Bad.name(), "2").await
    };
    load.while_it_lasts(act, progress).await?;
    let mut said = BTreeMap::new();
    explain(&at_once, &agents, &on_call, out, &mut said).await?;

    progress.phase("load, while a proxy is slow");
    cluster.api.set_watch_delay(SLOW_PROXY, SLOW);
    let slow = RunArgs { seconds: SLOW_LOAD_SECONDS, ..args.clone() };
    let load = Load::start(&stage, &slow, out, &[App::Slow]).await?;
    let act = async {
        sleep(ROLLOUT_AFTER).await;
        roll_out(&stage, App::Slow).await?;
        stage.settled(App::Slow.name(), "2", pods(App::Slow)?).await
    };
    load.while_it_lasts(act, progress).await?;
    let slow = cluster.nodes.iter().zip(&agents).last().context("a node")?;
    crowd(slow.0).await?;
    ensure!(slow.1.crowded().await?, "an agent does not tell of a crowded conntrack table");
    explain(&[App::Slow], &agents, &on_call, out, &mut said).await?;
    for mut agent in agents {
        agent.report(out).await?;
        agent.stop().await?;
    }
    progress.done();
    Ok(said)
}

fn pods(app: App) -> Result<usize> {
    usize::try_from(app.replicas()).context("a number of replicas")
}

async fn deploy(stage: &Stage<'_>) -> Result<()> {
    for app in App::ALL {
        stage.serve(app.name(), app.name()).await?;
        if app == App::Published {
            let published = json!({"spec": {"publishNotReadyAddresses": true}});
            stage.patch("Service", "v1", app.name(), &published).await?;
        }
        stage.deploy("Deployment", "apps/v1", app.deployment(), pods(app)?).await?;
    }
    let mut backends = BTreeSet::new();
    for app in App::ALL {
        for pod in stage.ready(app.name(), "1", pods(app)?).await? {
            backends.extend(pod_backends(&pod)?);
        }
    }
    stage.cluster.reachable(&backends).await
}

async fn start_agents(args: &RunArgs, cluster: &Cluster, out: &Path) -> Result<Vec<Agent>> {
    let program = args.agent_program()?;
    let further = ["--bad-backend-after", BAD_AFTER];
    let mut agents = Vec::new();
    for node in &cluster.nodes {
        let (addresses, namespace) = (&node.addresses, &node.namespace);
        let agent = Agent::start(&program, addresses, namespace, &cluster.server, out, &further)?;
        agents.push(agent);
    }
    for agent in &mut agents {
        agent.ready().await?;
    }
    Ok(agents)
}

async fn roll_out(stage: &Stage<'_>, app: App) -> Result<()> {
    let container = crate::setup::Setup::version(app.name(), "2");
    let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    let deployments: Api<Deployment> = Api::namespaced(stage.cluster.client.clone(), NAMESPACE);
    deployments
        .patch(app.name(), &PatchParams::default(), &Patch::Strategic(patch))
        .await
        .with_context(|| format!("roll {} out", app.name()))?;
    Ok(())
}

async fn delete_one(stage: &Stage<'_>, app: App) -> Result<()> {
    let ready = stage.ready(app.name(), "2", pods(app)?).await?;
    let name = ready.first().context("a ready pod")?.name_any();
    let api: Api<Pod> = Api::namespaced(stage.user("lab-delete")?, NAMESPACE);
    api.delete(&name, &DeleteParams::default())
        .await
        .with_context(|| format!("delete the pod {name}"))?;
    Ok(())
}

async fn explain(
    apps: &[App],
    agents: &[Agent],
    on_call: &OnCall,
    out: &Path,
    said: &mut BTreeMap<App, Explained>,
) -> Result<()> {
    for agent in agents {
        ensure!(agent.settled().await?, "an agent still has undecided failures");
    }
    for app in apps {
        let asked = Asked { on_call, deployment: app.name() };
        let name = format!("explained-{}", app.name());
        said.insert(*app, Explained::of(&asked, out, &name).await?);
    }
    Ok(())
}

/// The clients of some applications.
struct Load(Vec<Clients>);

impl Load {
    async fn start(stage: &Stage<'_>, args: &RunArgs, out: &Path, apps: &[App]) -> Result<Self> {
        let mut starts = Vec::new();
        for app in apps {
            let served = stage.served().into_iter().find(|one| one.application == app.name());
            let served = served.with_context(|| format!("{} is not served", app.name()))?;
            let modes = [(Mode::Fresh, true), (Mode::Keepalive, app.is_kept_alive())];
            for (mode, _) in modes.into_iter().filter(|(_, wanted)| *wanted) {
                let args = RunArgs { mode, threads: THREADS, ..args.clone() };
                let suffix = format!("-{}-{}", app.name(), mode.name());
                let target = [(suffix, served.addresses.clone(), app.name())];
                // All at once: the load begins with the first, and the rollouts with the last.
                starts.push(async move {
                    Clients::start_towards(stage.cluster, &args, out, &target).await
                });
            }
        }
        let clients = futures::future::try_join_all(starts).await?;
        Ok(Self(clients))
    }

    /// Waits for both; what is done after the load shows nothing.
    async fn while_it_lasts(
        &self,
        act: impl Future<Output = Result<()>>,
        progress: &Progress,
    ) -> Result<()> {
        let finished = self.0.iter().map(|clients| clients.finished(progress));
        let load = futures::future::try_join_all(finished);
        tokio::pin!(act, load);
        tokio::select! {
            end = &mut act => {
                end?;
                load.await.map(drop)
            }
            end = &mut load => {
                end?;
                bail!("the load ended before the rollouts did: the machine is too busy for this")
            }
        }
    }
}
