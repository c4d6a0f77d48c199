//! `rollrace doctor`

use std::{path::Path, process::ExitCode};

use clap::ValueEnum;

use super::{
    Exit, Failed,
    ask::{From, block_on, print, style},
};
use crate::oncall::{
    doctor::{Check, Health, cluster, node, worst},
    show::{self, checks},
};

/// How to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A line a check
    Text,
    /// JSON
    Json,
}

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  kubectl rollrace doctor              # the cluster: API server, your rights, an agent on every node
  rollrace doctor --node               # this machine: kernel, BTF, tracepoints, capabilities, conntrack
  kubectl -n rollrace exec daemonset/rollrace -- rollrace doctor --node

Exit codes: 0 all is well, 1 something is broken, 2 something could not be checked, 64 bad usage")]
pub struct Args {
    /// Check this machine instead of the cluster
    #[arg(long)]
    node: bool,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    from: From,
}

/// Runs it.
pub fn run(args: &Args) -> Result<ExitCode, Failed> {
    let found: Vec<Check> = if args.node {
        node(Path::new("/"))
    } else {
        block_on(async { Ok(cluster(&args.from.source(), args.from.timeout()).await.0) })?
    };
    let text = match args.output {
        Output::Text => checks(&found, style()),
        Output::Json => show::data(&found, show::Format::Json)?,
    };
    print(&text)?;
    Ok(match worst(&found) {
        Health::Broken => Exit::Failures,
        Health::Unknown => Exit::CouldNotTell,
        Health::Ok | Health::Warning => Exit::Clean,
    }
    .into())
}
