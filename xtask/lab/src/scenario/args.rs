//! The command line of `scenario`.

use anyhow::{Context, Result};
use clap::Args;

use super::catalogue::Scenario;
use crate::cli::{ProxyMode, RunArgs};
use crate::isolate::LabArgs;
use crate::net::IpFamily;

const EXAMPLES: &str = "\
Examples:
  What there is:
    rollrace-lab scenario --list

  A rollback in the middle of a rollout, and a JSON object as the last line:
    rollrace-lab scenario rollback --json

Exit code: 0 when every failed connection was found and blamed on what the lab's own log says,
1 when not, 64 for bad usage, 69 without the rights or the agent that it needs, 70 when the lab
itself failed. Needs root.";

/// Options of `scenario`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ScenarioArgs {
    /// Which one
    #[arg(value_enum, required_unless_present = "list")]
    pub name: Option<Scenario>,
    /// List the scenarios and what each does
    #[arg(long)]
    pub list: bool,
    /// How much later the agents see each watch event, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub agent_watch_delay: u64,
    /// How much later the proxies see each watch event, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub proxy_watch_delay: u64,
    /// What the proxies program
    #[arg(long, value_enum, default_value_t = ProxyMode::Iptables)]
    pub proxy: ProxyMode,
    /// The addresses of nodes, pods and Services
    #[arg(long, value_enum, default_value_t = IpFamily::Ipv4)]
    pub ip_family: IpFamily,
    /// Where it is played, and with what.
    #[command(flatten)]
    pub lab: LabArgs,
}

impl ScenarioArgs {
    /// The options of a run with the scenario's dials: a scenario has the cluster of a run.
    pub fn run_args(&self) -> Result<RunArgs> {
        let scenario = self.name.context("no scenario was named: see --list")?;
        let dials = scenario.dials();
        let mut options = vec![
            ("setup", dials.setup.name().to_owned()),
            ("mode", "fresh".to_owned()),
            ("seconds", dials.seconds.to_string()),
            ("threads", dials.threads.to_string()),
            ("nodes", dials.nodes.to_string()),
            ("agent-watch-delay", self.agent_watch_delay.to_string()),
            ("proxy-watch-delay", self.proxy_watch_delay.to_string()),
            ("ip-family", self.ip_family.name().to_owned()),
            ("proxy", self.proxy.name().to_owned()),
            ("lab-number", self.lab.number.to_string()),
        ];
        options.extend(dials.source_ports.map(|ports| ("source-ports", ports.to_string())));
        RunArgs::of_options(&options, self.lab.agent.as_deref())
    }
}
