//! `rollrace ui`

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use super::{Failed, local};
use crate::http::{AgentUrl, Many, many};

/// Arguments of `ui`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rollrace ui --agent 10.0.0.1:9466 --agent 10.0.0.2:9466
  kubectl -n rollrace port-forward pod/rollrace-x7k2p 9466 & rollrace ui --agent localhost:9466

It is served to this machine only, until Ctrl-C.
Exit codes: 0 stopped, 64 bad usage, 69 something needed is unavailable, 70 internal error")]
pub struct Args {
    /// An agent's API; once for each
    #[arg(long = "agent", value_name = "URL", required = true)]
    agents: Vec<AgentUrl>,
    /// Port on this machine; 0: any that is free
    #[arg(long, value_name = "PORT", default_value_t = 9467)]
    port: u16,
    /// How long an agent is given for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
}

/// Serves until Ctrl-C.
pub fn run(args: Args) -> Result<(), Failed> {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), args.port);
    let agents = Many::new(args.agents, Duration::from_secs(args.timeout));
    local::serve(address, "--port", |_| many(agents))
}
