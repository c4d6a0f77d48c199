//! A soak: every kind of traffic at once, for minutes without a rollout and through an orderly one.
//! Nothing may be reported but what really failed.
//!
//! # Layout
//! - [`args`]: the command lines, [`kind`]: the kinds of traffic
//! - `server`, `serve`: what runs in the pods; `client`, `traffic`: what dials them, one file a kind
//! - `packet`, `tls`: what both sides need
//! - `truth`: what a client writes down
//! - `cluster`: what is created; `result`: the table

mod args;
mod client;
mod cluster;
mod kind;
mod packet;
mod result;
mod serve;
mod server;
mod tls;
mod traffic;
mod truth;

pub use args::{SoakArgs, SoakClientArgs, SoakServerArgs};
pub use client::run as run_client;
pub use server::run as run_server;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use tokio::time::{interval, sleep};

use self::cluster::SoakClient;
use self::result::SoakResult;
use self::truth::Counts;
use crate::cli::RunArgs;
use crate::isolate::{self, Outside};
use crate::run::cluster::Cluster;
use crate::run::progress::Progress;
use crate::scenario::Stage;

/// The traffic goes on so long after the rollout.
const AFTER: Duration = Duration::from_secs(15);

/// Starts it in namespaces of its own.
pub fn outside(args: &SoakArgs) -> Result<ExitCode> {
    let agent = Some(args.run_args()?.agent_binary()?);
    isolate::run(&Outside { name: "soak", out: args.lab.out.as_deref(), agent })
}

/// Soaks, as the first process of the lab's own namespaces.
pub fn inside(args: &SoakArgs) -> Result<ExitCode> {
    isolate::complete()?;
    let out = args.lab.out.clone().context("`--inside` needs `--out`")?;
    crate::run::log_to(&out.join("lab.log"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the lab's runtime")?;
    let result = runtime.block_on(soak(&args.run_args()?, &out))?;
    result.write(&out)?;
    if args.lab.json {
        println!("{}", result.json_line()?);
    } else {
        print!("{}", result.text(&out));
    }
    Ok(if result.agrees() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn soak(args: &RunArgs, out: &Path) -> Result<SoakResult> {
    let progress = Progress::new();
    progress.phase("building the cluster");
    let mut cluster = Cluster::start(args, out).await?;
    let broken = cluster.broken();
    tokio::select! {
        result = on_cluster(args, out, &cluster, &progress) => result,
        error = broken => Err(error),
    }
}

async fn on_cluster(
    args: &RunArgs,
    out: &Path,
    cluster: &Cluster,
    progress: &Progress,
) -> Result<SoakResult> {
    let stage = Stage::new(cluster, args.setup, args.address_plan());
    progress.phase("deploying");
    let targets = cluster::deploy(&stage, args.address_plan()).await?;
    progress.phase("starting the agents");
    let agents = crate::run::start_agents(cluster, args, out).await?;
    let clients = cluster::start_clients(&stage, &targets, out).await?;

    let phases = async {
        progress.phase("no rollout");
        sleep(Duration::from_secs(args.seconds)).await;
        progress.phase("rolling out");
        cluster.journal.phase("rollout started");
        let rollout = Timestamp::now();
        cluster::roll_out(&stage).await?;
        progress.phase("after the rollout");
        sleep(AFTER).await;
        anyhow::Ok(rollout)
    };
    let rollout = tokio::select! {
        rollout = phases => rollout?,
        () = show(&clients, progress) => unreachable!("it is shown for ever"),
    };
    progress.phase("ending the clients");
    cluster::end_clients(&stage, &clients).await?;

    progress.phase("waiting for the agents' verdicts");
    let (mut reports, mut doubts) = (Vec::new(), Vec::new());
    for mut agent in agents {
        if !agent.settled().await? {
            doubts.push(format!("the agent of {} still has undecided failures", agent.node()));
        }
        reports.push(agent.report(out).await?);
        agent.stop().await?;
    }
    progress.done();
    SoakResult::new(args.seconds, rollout, &clients, &reports, doubts)
}

/// Shows how far the clients are, for ever.
async fn show(clients: &[SoakClient], progress: &Progress) {
    let mut ticks = interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        let counts: Counts = clients.iter().map(SoakClient::so_far).sum();
        progress.load(counts.exchanges, counts.failed);
    }
}
