//! One run, from the first link to the last line.

pub mod clients;
pub mod cluster;
mod control_plane;
mod events;
mod fresh_syns;
mod outcome;
mod outside;
pub mod progress;
mod tail;
pub mod workload;

pub use outcome::{RunResult, Summary, counts_text, not_compared_text};

use std::fs::File;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::sleep;

use self::clients::Clients;
use self::cluster::Cluster;
use self::control_plane::{Meter, Spent};
use self::fresh_syns::FreshSynListener;
use self::progress::Progress;
use self::tail::{Tail, TailWatch};
use self::workload::{RolloutTruth, Workload};
use crate::agent::{Agent, AgentReport};
use crate::cli::{BAD_USAGE, RunArgs};
use crate::fault;
use crate::isolate;
use crate::prometheus::{Expected, Prometheus};

/// Checks the options, and starts the lab in namespaces of its own.
pub fn outside(args: &RunArgs) -> Result<ExitCode> {
    if let Some(reason) = args.contradiction() {
        eprintln!("rollrace-lab: {reason}");
        return Ok(ExitCode::from(BAD_USAGE));
    }
    let agent = if args.no_agent { None } else { Some(args.agent_binary()?) };
    isolate::run(&isolate::Outside { name: args.setup.name(), out: args.out.as_deref(), agent })
}

/// Runs the lab as the first process of its own namespaces; a fault may befall it.
pub fn inside(args: &RunArgs, fault: Option<&fault::Plan>) -> Result<ExitCode> {
    isolate::complete()?;
    if args.pod.is_some() {
        isolate::unify_cgroups()?;
    }
    let out = args.out.clone().context("`--inside` needs `--out`")?;
    log_to(&out.join("lab.log"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the lab's runtime")?;
    let result = runtime.block_on(run(args, fault, &out))?;
    result.write(&out)?;
    if args.json {
        println!("{}", result.json_line()?);
    } else {
        print!("{}", result.text(&out));
    }
    Ok(if result.agrees() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn run(args: &RunArgs, fault: Option<&fault::Plan>, out: &Path) -> Result<RunResult> {
    let progress = Progress::new();
    progress.phase("building the cluster");
    let mut cluster = Cluster::start(args, out).await?;
    let broken = cluster.broken();
    tokio::select! {
        result = experiment(args, fault, out, &cluster, &progress) => result,
        error = broken => Err(error),
    }
}

/// Everything that was found out, for [`RunResult`].
struct Findings<'a> {
    args: &'a RunArgs,
    cluster: &'a Cluster,
    rollout: RolloutTruth,
    clients: Clients,
    agents: Vec<AgentReport>,
    unsettled: Vec<String>,
    /// What is wrong with what Prometheus makes of it, and with the Kubernetes Events.
    objections: Vec<String>,
    listeners: Vec<FreshSynListener>,
    fault: Option<fault::Observed>,
    tail: Option<Tail>,
    control_plane: Vec<Spent>,
}

async fn experiment(
    args: &RunArgs,
    fault: Option<&fault::Plan>,
    out: &Path,
    cluster: &Cluster,
    progress: &Progress,
) -> Result<RunResult> {
    let journal = &cluster.journal;
    let addresses =
        args.redirected(&cluster.nodes.iter().map(|n| &n.addresses).collect::<Vec<_>>());
    let workload = Workload::new(cluster.client.clone(), args);
    progress.phase("deploying the first revision");
    workload.create().await?;
    workload.completed().await?;
    cluster.backends_reachable(&workload).await?;

    let mut listeners = listen(cluster, &addresses, out)?;
    let mut agents = Vec::new();
    let meter = Meter::start(cluster.api.clone());
    if !args.no_agent {
        progress.phase("starting the agents");
        agents = start_agents(cluster, args, out).await?;
        journal.phase("agents ready");
    }
    let ready = Timestamp::now();
    let prometheus =
        if args.prometheus { Some(Prometheus::start(&agents, out).await?) } else { None };
    cluster.set_watch_delays(args);
    for agent in &mut agents {
        agent.watch_metrics();
    }

    progress.phase("load");
    // A fault may silence an agent: then there is nobody to ask.
    let watches_tail = !args.no_agent && fault.is_none() && !addresses.is_empty();
    let tail = watches_tail
        .then(|| TailWatch::start(&cluster.nodes, &agents, &addresses, out))
        .transpose()?;
    let mut clients = Clients::start(cluster, args, out).await?;
    journal.phase("load started");
    let doors: Vec<fault::Door> = agents.iter().map(fault::Door::of).collect();
    let rolling = Notify::new();
    let under_load = async {
        let rollout = async {
            sleep(Duration::from_secs(args.rollout_after)).await;
            progress.phase("rolling out");
            journal.phase("rollout started");
            let started = Timestamp::now();
            rolling.notify_one();
            workload.roll_out("2").await?;
            workload.completed().await?;
            let completed = Timestamp::now();
            journal.phase("rollout complete");
            progress.phase("rollout complete");
            anyhow::Ok((started, completed))
        };
        let load = clients.finished(progress);
        tokio::pin!(rollout, load);
        tokio::select! {
            times = &mut rollout => {
                let times = times?;
                load.await?;
                anyhow::Ok(Some(times))
            }
            end = &mut load => {
                end?;
                Ok(None)
            }
        }
    };
    let befallen = async {
        let Some(plan) = fault else { return Ok(None) };
        rolling.notified().await;
        plan.befall(cluster, &doors, out, progress).await.map(Some)
    };
    let (rollout, fault) = tokio::try_join!(under_load, befallen)?;
    let (started, completed) = rollout.with_context(|| {
        format!(
            "the rollout was not complete after {} s of load: use --seconds with more",
            args.seconds
        )
    })?;
    journal.phase("load ended");
    let fault_ended = fault.as_ref().map(|fault| fault.ended);
    let control_plane = meter.stop(agents.len(), ready, (started, completed), fault_ended);

    progress.phase("waiting for the agents' verdicts");
    let tail = tail::finish(tail).await?;
    let (reports, unsettled, objections) =
        collect(agents, prometheus.as_ref(), (args, &workload), out).await?;
    clients.read_logs()?;
    for listener in &mut listeners {
        listener.stop().await?;
    }
    let rollout = workload.truth(started, completed).await?;
    progress.done();
    RunResult::new(Findings {
        args,
        cluster,
        rollout,
        clients,
        agents: reports,
        unsettled,
        objections,
        listeners,
        fault,
        tail,
        control_plane,
    })
}

/// Listens on each node for fresh connections to these addresses.
fn listen(cluster: &Cluster, addresses: &[IpAddr], out: &Path) -> Result<Vec<FreshSynListener>> {
    let nodes = cluster.nodes.iter();
    let pairs = nodes.flat_map(|node| addresses.iter().map(move |address| (node, *address)));
    pairs.map(|(node, address)| FreshSynListener::start(node, address, out)).collect()
}

/// Everything that the agents have to say once nothing waits for its verdict, and for which of them
/// that took too long; what is wrong with it in Prometheus; ends the agents.
async fn collect(
    mut agents: Vec<Agent>,
    prometheus: Option<&Prometheus>,
    (args, workload): (&RunArgs, &Workload),
    out: &Path,
) -> Result<(Vec<AgentReport>, Vec<String>, Vec<String>)> {
    let mut reports = Vec::new();
    let mut unsettled = Vec::new();
    for agent in &agents {
        if !agent.settled().await? {
            unsettled.push("an agent still has undecided failures at the deadline".to_owned());
        }
    }
    for agent in agents.iter().filter(|_| args.await_events) {
        if !agent.events_written().await? {
            unsettled.push(format!("the agent of {} has not written its Event", agent.node()));
        }
    }
    let mut objections = Vec::new();
    if let Some(prometheus) = prometheus {
        let found = prometheus.objections(&Expected::of(&agents).await?).await?;
        objections.extend(found.into_iter().map(|what| format!("Prometheus: {what}")));
    }
    for agent in &mut agents {
        reports.push(agent.report(out).await?);
    }
    if !agents.is_empty() {
        let events = workload.events().await?;
        objections.extend(events::objections(&events, &reports, args.await_events));
    }
    for agent in agents {
        agent.stop().await?;
    }
    Ok((reports, unsettled, objections))
}

/// Starts an agent on each node, and waits until all are ready.
pub async fn start_agents(cluster: &Cluster, args: &RunArgs, out: &Path) -> Result<Vec<Agent>> {
    let program = args.agent_program()?;
    let server = cluster.agents_entrance.url();
    let mut agents = Vec::new();
    for node in &cluster.nodes {
        let mut further = vec!["--evict-stale", &args.evict_stale];
        // In its pod the manifest says where.
        let state = out.join(format!("state-{}", node.addresses.name));
        let ranges = args.address_plan().ranges().join(",");
        if args.outside {
            further.extend(["--cluster-cidrs", &ranges]);
        }
        if args.pod.is_none() {
            further.extend(["--state-dir", state.to_str().context("a path is not UTF-8")?]);
        }
        agents.push(Agent::start(
            &program,
            &node.addresses,
            &node.namespace,
            &server,
            out,
            &further,
        )?);
    }
    for agent in &mut agents {
        agent.ready().await?;
    }
    Ok(agents)
}

/// Sends the lab's own log to a file.
pub fn log_to(path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(file).init();
    Ok(())
}
