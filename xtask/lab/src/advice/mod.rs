//! Whether the advice works: each setup rolls out under load of both kinds, what `explain` prints is
//! done to the letter, and the patched pods roll out once more.
//!
//! # Layout
//! - `args`: the command line
//! - `cell`: one setup in a lab of its own
//! - `outcome`: what came of it, and whether it is as it should be; pure
//! - `table`: all of them, for people

mod args;
mod cell;
mod outcome;
mod table;

pub use args::{AdviceArgs, CellArgs};
pub use cell::{inside, outside};

use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};

use anyhow::{Context, Result, bail};

use self::outcome::Outcome;
use crate::isolate::{die_with_parent, fresh_out_dir};
use crate::setup::Setup;

/// Plays the setups, some at a time.
pub fn run(args: &AdviceArgs) -> Result<ExitCode> {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => fresh_out_dir("advice")?,
    };
    let setups = args.setups();
    let queue: Mutex<VecDeque<Setup>> = Mutex::new(setups.iter().copied().collect());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (tell, told) = mpsc::sync_channel(setups.len());
    let mut outcomes = std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            let (tell, next, out) = (tell.clone(), &next, &out);
            scope.spawn(move || {
                while let Some(setup) = next() {
                    eprintln!("{}: begins", setup.name());
                    if tell.send(play(setup, args, &out.join(setup.name()))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(tell);
        let ended = told.into_iter().inspect(|outcome| {
            if let Ok(outcome) = outcome {
                eprintln!("{}: {}", outcome.setup, outcome.verdict());
            }
        });
        ended.collect::<Result<Vec<Outcome>>>()
    })?;
    outcomes.sort_by_key(|outcome| setups.iter().position(|setup| setup.name() == outcome.setup));
    let good = outcomes.iter().all(|outcome| outcome.objections.is_empty());
    if args.json {
        println!("{}", serde_json::to_string(&outcomes).context("encode the outcomes")?);
    } else {
        println!("{}", table::table(&outcomes));
        for outcome in &outcomes {
            for objection in &outcome.objections {
                println!("{}: {objection}", outcome.setup);
            }
        }
        println!("everything: {}", out.display());
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// A lab needs a process of its own, since that process makes the namespaces.
fn play(setup: Setup, args: &AdviceArgs, out: &Path) -> Result<Outcome> {
    std::fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    let progress = out.join("progress.txt");
    let stderr =
        File::create(&progress).with_context(|| format!("create {}", progress.display()))?;
    let mut command = Command::new("/proc/self/exe");
    command.args(["advice-cell", "--setup", setup.name(), "--kubernetes", &args.kubernetes]);
    command.arg("--out").arg(out);
    if let Some(agent) = &args.agent {
        let agent = std::path::absolute(agent)
            .with_context(|| format!("resolve the agent's path {}", agent.display()))?;
        command.arg("--agent").arg(agent);
    }
    command.stdin(Stdio::null()).stderr(stderr);
    die_with_parent(&mut command);
    let output = command.output().context("start the lab")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match output.status.code() {
        Some(0 | 1) => serde_json::from_str(text.lines().last().unwrap_or_default())
            .with_context(|| format!("read the outcome of {}", setup.name())),
        _ => bail!("the lab of {} failed ({}): see {}", setup.name(), output.status, out.display()),
    }
}
