//! `bench loss`: thousands of new connections a second through a Service while a backend leaves,
//! and an agent that must account for every one of them.
//!
//! # Layout
//! - [`world`]: clients, a node with the Service's rules, backends
//! - [`load`]: clients that count what they see
//! - [`api`]: an API server for one agent; [`objects`]: the rollout it tells of
//! - [`told`]: what the agent says
//! - [`verdict`]: the clients' counts against the agent's

pub mod api;
pub mod load;
pub mod objects;
mod told;
mod verdict;
pub mod world;

use std::{path::PathBuf, process::ExitCode, thread, time::Duration};

use anyhow::{Context as _, Result};

use self::{api::ApiServer, load::Load, objects::Shop, told::Told, verdict::Verdict, world::World};
use crate::agent::{self, Agent};

/// The leaving backend refuses for so long, then it is silent for so long, then the rules change.
const REFUSES: Duration = Duration::from_millis(300);
/// See [`REFUSES`].
const SILENT: Duration = Duration::from_millis(300);

/// Options of `loss`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench loss                     as many connections as go, for 20 s
  cargo xtask bench loss --rate 5000 --json loss.json
  cargo xtask bench loss --tiny --seconds 6  ring buffer and maps far too small, on purpose

Exit code: 0 if every connection is accounted for (with --tiny: every loss told), 1 if not, 70 if it
could not be tried. Needs root.")]
pub struct Args {
    /// How long, in seconds; a backend leaves in the middle
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(4..=300))]
    seconds: u64,
    /// New connections a second over all clients; 0 is as many as go
    #[arg(long, value_name = "N", default_value_t = 0)]
    rate: u32,
    /// Threads of each of the four clients
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// A ring buffer of 4 KiB and room for 16 attempts, and the agent is held up for a moment
    #[arg(long)]
    tiny: bool,
    /// Fail if fewer connections a second are reached
    #[arg(long, value_name = "N", default_value_t = 0)]
    at_least: u32,
    /// The rollrace binary [default: the `rollrace` beside this one]
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
    /// Write the result to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs it and compares.
///
/// # Errors
/// If the load cannot be made, or the agent does not answer.
pub fn run(args: &Args) -> Result<ExitCode> {
    let binary = agent::binary(args.agent.as_deref())?;
    let mut world = World::build()?;
    let shop = Shop::new();
    let api = ApiServer::start(&world.node)?;
    api.apply(shop.before());
    let record = agent::folder().join("record.jsonl");
    let mut further = vec!["--record", record.to_str().context("a path is not UTF-8")?];
    if args.tiny {
        further.extend(["--ring-buffer", "4", "--max-attempts", "16"]);
    }
    let mut agent = Agent::start(&binary, &world.node, &further)?;
    agent.ready()?;
    let before = agent.cpu()?;
    let load = Load::start(&world, args.threads, args.rate, Duration::from_secs(args.seconds));
    thread::sleep(Duration::from_secs(args.seconds) / 2);
    api.apply(shop.leaving());
    if args.tiny {
        agent.hold()?;
    }
    world.backends[0].close()?;
    thread::sleep(REFUSES);
    world.backends[0].silence()?;
    thread::sleep(SILENT);
    world.program(1)?;
    if args.tiny {
        agent.go_on()?;
    }
    api.apply(shop.after());
    let truth = load.finish()?;
    let cpu = agent.cpu()? - before;
    let told = Told::of(&agent, &record)?;
    agent.stop()?;
    let verdict = Verdict::new(truth, told, cpu, args.tiny, args.at_least);
    print!("{verdict}");
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&verdict).context("encode the result")?;
        std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))?;
    }
    Ok(if verdict.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
