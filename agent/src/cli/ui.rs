//! `rollrace ui`

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::anyhow;

use super::{Failed, ask::From, local};
use crate::{
    http::{Many, many},
    oncall::Source,
};

/// Arguments of `ui`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  kubectl rollrace ui                                     # the agents of the kubeconfig's cluster
  rollrace ui --agent 10.0.0.1:9466 --agent 10.0.0.2:9466

It is served to this machine only, until Ctrl-C.
Exit codes: 0 stopped, 2 the agents cannot be found, 64 bad usage, 69 the port is taken, 70 internal error")]
pub struct Args {
    /// Port on this machine; 0: any that is free
    #[arg(long, value_name = "PORT", default_value_t = 9467)]
    port: u16,
    #[command(flatten)]
    from: From,
}

/// Serves until Ctrl-C.
pub fn run(args: &Args) -> Result<(), Failed> {
    let source = args.from.source();
    if matches!(source, Source::Recordings(_)) {
        return Err(Failed::usage(anyhow!(
            "a recording is shown by `rollrace replay FILE --serve`, not by ui"
        )));
    }
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), args.port);
    local::serve(address, "--port", async |_| {
        let agents = Many::find(source, args.from.timeout()).await;
        agents.map(many).map_err(Failed::could_not_tell)
    })
}
