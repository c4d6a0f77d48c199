//! `bench scale`: what an agent takes in a large cluster.
//!
//! # Layout
//! - [`objects`]: Services and slices as an API server writes them, managed fields and all
//! - [`server`]: the API server, with a change at a time and a history that can be forgotten

mod objects;
mod server;

use std::{
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use self::{objects::Size, server::Server};
use crate::{
    agent::{self, Agent, LOOK_AGAIN, PATIENCE},
    figures::{Bar, Figures, Output},
    namespace::Namespace,
};

/// Resident memory at most, in MiB, by endpoints.
const RESIDENT_MIB: [(u32, f64); 3] = [(1_000, 25.0), (10_000, 40.0), (150_000, 128.0)];
/// BPF maps at most, in MiB.
const MAPS_MIB: f64 = 24.0;
/// Ready within so many seconds, at any size.
const READY_SECONDS: f64 = 10.0;
/// Of one core, in percent, while endpoints change.
const BUSY_PERCENT: f64 = 5.0;
/// Between two slices that change: a prime, so that all of them have their turn.
const STRIDE: usize = 7_919;

/// Options of `scale`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench scale --json before.json
  cargo xtask bench scale --endpoints 150000 --seconds 60

Exit code: 0 if every bar is met, 1 if one is missed, 70 if it could not be measured. Needs root.")]
pub struct Args {
    /// Sizes: endpoints of all Services together
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1_000, 10_000, 150_000])]
    endpoints: Vec<u32>,
    /// Services
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    services: u32,
    /// Changes of endpoints a second
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    changes: u32,
    /// How long they last, in seconds
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..=3_600))]
    seconds: u64,
    /// The rollrace binary [default: the `rollrace` beside this one]
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Measures each size with an agent of its own.
///
/// # Errors
/// If it cannot be measured.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut figures = Figures::default();
    for endpoints in &args.endpoints {
        let size = Size { services: args.services, endpoints: *endpoints };
        measure(args, size, &mut figures).with_context(|| format!("with {endpoints} endpoints"))?;
    }
    figures.finish(&args.output)
}

fn measure(args: &Args, size: Size, figures: &mut Figures) -> Result<()> {
    let name = |what: &str| format!("{} endpoints: {what}", size.endpoints);
    let node = Namespace::new()?;
    let server = Server::start(&node, size)?;
    let started = Instant::now();
    let mut agent = Agent::start(&agent::binary(args.agent.as_deref())?, &node, &[])?;
    agent.ready()?;
    let ready = started.elapsed().as_secs_f64();
    figures.barred(name("start to ready"), ready, "s", Bar::AtMost(READY_SECONDS));
    figures.add(name("processor time until ready"), agent.cpu()?, "s");

    let before = agent.cpu()?;
    let began = Instant::now();
    let count = u64::from(args.changes) * args.seconds;
    for number in 0..count {
        // The rate is kept, however long a change takes.
        let due = began + Duration::from_secs(1) * u32::try_from(number)? / args.changes;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // Those without endpoints cannot change: with few endpoints only the first slices have some.
        let slices = usize::try_from(size.services.min(size.endpoints))?;
        server.change(usize::try_from(number)? * STRIDE % slices);
    }
    let took = began.elapsed().as_secs_f64();
    let busy = (agent.cpu()? - before) / took * 100.0;
    let what = format!("{} changes a second", args.changes);
    figures.barred(name(&what), busy, "% of a core", Bar::AtMost(BUSY_PERCENT));
    let memory = agent.memory()?;
    let bar = RESIDENT_MIB.iter().find(|(endpoints, _)| *endpoints >= size.endpoints);
    match bar {
        Some((_, bar)) => {
            figures.barred(name("resident"), memory.resident_mib, "MiB", Bar::AtMost(*bar));
        }
        None => figures.add(name("resident"), memory.resident_mib, "MiB"),
    }
    figures.add(name("resident, at most until then"), memory.peak_mib, "MiB");
    figures.barred(name("BPF maps"), agent.maps_mib()?, "MiB", Bar::AtMost(MAPS_MIB));

    let before = agent.cpu()?;
    let began = Instant::now();
    server.expire();
    server.await_lists(2, PATIENCE)?;
    in_step(&agent)?;
    figures.add(name("one relist"), began.elapsed().as_secs_f64(), "s");
    figures.add(name("processor time of a relist"), agent.cpu()? - before, "s");
    let memory = agent.memory()?;
    figures.add(name("resident after a relist"), memory.resident_mib, "MiB");
    figures.add(name("resident, at most with a relist"), memory.peak_mib, "MiB");
    let bytes: u64 = server.asked().values().map(|asked| asked.bytes).sum();
    #[expect(clippy::cast_precision_loss, reason = "less than 2^52 bytes")]
    figures.add(name("sent to the agent"), bytes as f64 / f64::from(1 << 20), "MiB");
    agent.stop()
}

/// Waits until the watch of slices follows again.
fn in_step(agent: &Agent) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = agent.json("/api/v1/status")?;
        if status["ready"] == true
            && status["cluster"]["watches"]["endpointslices"]["state"] == "synced"
        {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the watches are not in step again: {status}");
        thread::sleep(LOOK_AGAIN);
    }
}
