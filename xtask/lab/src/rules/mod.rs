//! Whether each rule of `rollrace explain` is found where it should be, and not where it should not: a
//! dozen applications, each wrong in its own way, roll out at once.
//!
//! # Layout
//! - [`catalogue`]: the applications, and which rule is found in which
//! - `crowd`: a full conntrack table
//! - `play`: the rollouts
//! - here: the command line, and the verdict

mod catalogue;
mod crowd;
mod play;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::json;

use self::catalogue::{App, CELLS, RuleCell};
use crate::cli::{Mode, RunArgs};
use crate::explained::Explained;
use crate::isolate::{self, LabArgs, Outside};
use crate::setup::Setup;

/// So late a proxy programs a change: longer than the shortest preStop, and shorter than the good ones.
const PROGRAM_DELAY_MS: u64 = 1_500;

const EXAMPLES: &str = "\
Examples:
  Which rule is found where:
    rollrace-lab rules

Exit code: 0 only if each rule is found in its application and not in the one that comes near, 1 when not,
69 without the rights or the agent that it needs, 70 when the lab itself failed. Needs root.";

/// Options of `rules`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct RulesArgs {
    /// Where it is played, and with what.
    #[command(flatten)]
    pub lab: LabArgs,
}

impl RulesArgs {
    fn run_args(&self) -> Result<RunArgs> {
        let options = [
            // Of the cluster; each application has its own.
            ("setup", Setup::PrestopDrain.name().to_owned()),
            ("mode", Mode::Fresh.name().to_owned()),
            ("seconds", play::LOAD_SECONDS.to_string()),
            ("proxy-program-delay", PROGRAM_DELAY_MS.to_string()),
            ("lab-number", self.lab.number.to_string()),
        ];
        RunArgs::of_options(&options, self.lab.agent.as_deref())
    }
}

/// Starts the lab in namespaces of its own.
pub fn outside(args: &RulesArgs) -> Result<ExitCode> {
    let agent = Some(args.run_args()?.agent_binary()?);
    isolate::run(&Outside { name: "rules", out: args.lab.out.as_deref(), agent })
}

/// Plays it, as the first process of the lab's own namespaces.
pub fn inside(args: &RulesArgs) -> Result<ExitCode> {
    let out = args.lab.out.clone().context("`--inside` needs `--out`")?;
    let said = isolate::play(&out, play::play(&args.run_args()?, &out))?;
    let objections: Vec<String> = CELLS.iter().filter_map(|cell| objection(cell, &said)).collect();
    let by_name: BTreeMap<&str, &Explained> =
        said.iter().map(|(app, explained)| (app.name(), explained)).collect();
    let json = json!({"explained": by_name, "objections": objections}).to_string();
    let path = out.join("result.json");
    std::fs::write(&path, &json).with_context(|| format!("write {}", path.display()))?;
    if args.lab.json {
        println!("{json}");
    } else {
        println!("{}", table(&said));
        for objection in &objections {
            println!("{objection}");
        }
        println!("everything: {}", out.display());
    }
    Ok(if objections.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What is wrong with where a rule was found.
fn objection(cell: &RuleCell, said: &BTreeMap<App, Explained>) -> Option<String> {
    let (rule, triggers, silent) = cell;
    let finds = |app: &App| said.get(app).is_some_and(|explained| explained.finds(rule));
    match (finds(triggers), finds(silent)) {
        (true, false) => None,
        (false, _) => Some(format!("{rule} is not found in {}", triggers.name())),
        (true, true) => Some(format!("{rule} is found in {}, too", silent.name())),
    }
}

fn table(said: &BTreeMap<App, Explained>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["rule", "must be found in", "and not in", "found in", ""]);
    for cell in &CELLS {
        let (rule, triggers, silent) = cell;
        let found = said.iter().filter(|(_, explained)| explained.finds(rule));
        let found: Vec<&str> = found.map(|(app, _)| app.name()).collect();
        let good = if objection(cell, said).is_none() { "as it should be" } else { "NOT" };
        table.add_row([*rule, triggers.name(), silent.name(), &found.join(", "), good]);
    }
    table
}
