//! The command line of `fault`.

use anyhow::{Context, Result};
use clap::Args;

use super::catalogue::{Dials, Fault};
use crate::cli::{ProxyMode, RunArgs};
use crate::isolate::LabArgs;

const EXAMPLES: &str = "\
Examples:
  What there is:
    rollrace-lab fault --list

  An API server whose packets are dropped for a minute in the middle of a rollout, and a JSON object
  as the last line:
    rollrace-lab fault api-silent --json

Exit code: 0 when clients and agents agree as in `run`, and the agents' readiness and status told
the truth all the while, 1 when not, 64 for bad usage, 69 without the rights or the agent that it
needs, 70 when the lab itself failed. Needs root.";

/// Options of `fault`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct FaultArgs {
    /// Which one
    #[arg(value_enum, required_unless_present = "list")]
    pub name: Option<Fault>,
    /// List the faults and what each is
    #[arg(long)]
    pub list: bool,
    /// How long the fault lasts, in seconds [default: its own]
    #[arg(long, value_name = "SECONDS")]
    pub lasts: Option<u64>,
    /// What the proxies program
    #[arg(long, value_enum, default_value_t = ProxyMode::Iptables)]
    pub proxy: ProxyMode,
    /// Where it is played, and with what.
    #[command(flatten)]
    pub lab: LabArgs,
}

impl FaultArgs {
    /// The fault with its dials.
    pub fn fault(&self) -> Result<(Fault, Dials)> {
        let fault = self.name.context("no fault was named: see --list")?;
        let dials = fault.dials();
        Ok((fault, Dials { lasts: self.lasts.unwrap_or(dials.lasts), ..dials }))
    }

    /// The options of the run that the fault befalls.
    pub fn run_args(&self) -> Result<RunArgs> {
        let (_, dials) = self.fault()?;
        let options = [
            ("setup", "readiness".to_owned()),
            ("mode", "fresh".to_owned()),
            ("seconds", dials.load.to_string()),
            ("proxy", self.proxy.name().to_owned()),
            ("lab-number", self.lab.number.to_string()),
        ];
        let args = RunArgs::of_options(&options, self.lab.agent.as_deref())?;
        Ok(RunArgs { out: self.lab.out.clone(), ..args })
    }
}
