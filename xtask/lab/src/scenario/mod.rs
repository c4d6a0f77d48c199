//! Attribution scenarios: what removes or breaks pods, with and without rollouts. Each failed
//! connection must be blamed on what the lab's own log says, never on what an agent says.
//!
//! # Layout
//! - [`args`]: the command line, [`catalogue`]: the scenarios and their dials
//! - `acts`: what each scenario does to the cluster
//! - `stage`: the running cluster as the acts use it, `objects`: what they create
//! - `gap`: an agent that is killed and started anew
//! - `pods`, `routes`: the log of every pod, and of the backend of each connection
//! - `truth`: from those logs to the cause that each failure must have; pure
//! - `play`: one scenario from the first link to the verdict, `outcome`: its result

pub mod acts;
mod args;
mod catalogue;
mod gap;
mod objects;
mod outcome;
mod play;
mod pods;
mod routes;
pub mod stage;
mod truth;

pub use args::ScenarioArgs;
pub use catalogue::Scenario;
pub use stage::Stage;

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::isolate::{self, Outside};

/// Lists the scenarios, or starts one in namespaces of its own.
pub fn outside(args: &ScenarioArgs) -> Result<ExitCode> {
    let scenario = match args.name {
        Some(scenario) if !args.list => scenario,
        _ => {
            print!("{}", catalogue::table());
            return Ok(ExitCode::SUCCESS);
        }
    };
    let agent = Some(args.run_args()?.agent_binary()?);
    isolate::run(&Outside { name: scenario.name(), out: args.lab.out.as_deref(), agent })
}

/// Plays a scenario as the first process of the lab's own namespaces.
pub fn inside(args: &ScenarioArgs) -> Result<ExitCode> {
    let out = args.lab.out.clone().context("`--inside` needs `--out`")?;
    let scenario = args.name.context("`--inside` needs a scenario")?;
    let result = isolate::play(&out, play::play(scenario, &args.run_args()?, &out))?;
    result.write(&out)?;
    if args.lab.json {
        println!("{}", result.json_line()?);
    } else {
        print!("{}", result.text(&out));
    }
    Ok(if result.agrees() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
