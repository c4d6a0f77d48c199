//! `rollrace agent`
#![cfg(feature = "probe")]

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use ipnet::IpNet;
use tracing_subscriber::EnvFilter;

use super::Failed;
use crate::{
    agent::{self, Settings},
    engine::EvictMode,
    probe::Options,
};

/// Arguments of `agent`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rollrace agent --node-name n1 --kubeconfig ~/.kube/config
  NODE_NAME=n1 rollrace agent --api-listen off --log-format json     # in a pod
  rollrace agent --node-name n1 --record n1.jsonl                     # for a bug report

Exit codes: 0 stopped by a signal, 64 bad usage, 69 something needed is unavailable, 70 internal error")]
pub struct Args {
    /// Name of the node it runs on
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: String,
    /// Kubeconfig; without it the file in KUBECONFIG, else the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where /metrics, /livez and /readyz are served; `[::]` is every address, those of IPv4 as well
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:9465")]
    listen: SocketAddr,
    /// Where /api/v1/… is served, or `off`; without it the node's internal address, port 9466
    #[arg(long, value_name = "ADDRESS|off")]
    api_listen: Option<ApiListen>,
    /// The node's internal address; without it the one from which the API server is reached
    #[arg(long, env = "NODE_IP", value_name = "IP")]
    node_ip: Option<IpAddr>,
    /// Record every input of the engine to a file, for `rollrace replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Folder in which failures and rollouts of the last 24 hours are kept over a restart; without
    /// it a restart forgets them
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,
    /// Format of the log on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// How long a SYN of a client whose socket cannot be seen may stay unanswered, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=120))]
    attempt_deadline: u64,
    /// How long a pod must have failed, ready and not leaving, to be called a bad backend, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    bad_backend_after: u64,
    /// Whether a rollout that broke connections is told by a Kubernetes Event on its workload
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true, default_value_t = Switch::On)]
    events: Switch,
    /// Delete conntrack entries that lead clients to pods that are gone: off, dry-run (only say which) or on
    #[arg(long, value_name = "off|dry-run|on", default_value = "off", value_parser = evict_mode)]
    evict_stale: EvictMode,
    /// How long a pod must have been gone before entries that lead to it are deleted, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    evict_after: u64,
    /// All addresses of the cluster's pods and nodes, e.g. 10.244.0.0/16,192.0.2.0/24: clients outside them
    /// that dial pods directly are accounted for by the pod's node, without it by nobody
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    cluster_cidrs: Vec<IpNet>,
    /// Unanswered attempts tracked at once: unanswered SYNs a second × 120
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(16..=16_777_216))]
    max_attempts: u32,
    /// Answered connections tracked at once, the least recently used go first; some 100 bytes each,
    /// taken at the start
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(16..=16_777_216))]
    max_flows: u32,
    /// Size of the ring buffer in KiB, a power of two
    #[arg(long, value_name = "KIB", default_value_t = 1_024, value_parser = power_of_two)]
    ring_buffer: u32,
}

fn evict_mode(text: &str) -> Result<EvictMode, String> {
    let mode = EvictMode::ALL.iter().find(|mode| mode.name() == text);
    mode.copied().ok_or_else(|| "neither `off`, `dry-run` nor `on`".to_owned())
}

fn power_of_two(text: &str) -> Result<u32, String> {
    let value: u32 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value.is_power_of_two() && (4..=1_048_576).contains(&value) {
        Ok(value)
    } else {
        Err("not a power of two from 4 to 1048576".to_owned())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug)]
enum ApiListen {
    Off,
    At(SocketAddr),
}

impl FromStr for ApiListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse()
            .map(Self::At)
            .map_err(|_| "neither `off` nor an address with a port, as 10.0.0.1:9466".to_owned())
    }
}

/// Runs the agent until a signal.
pub fn run(args: Args) -> Result<(), Failed> {
    log_to_stderr(args.log_format);
    if args.node_name.is_empty() {
        return Err(Failed::usage(anyhow!(
            "--node-name is empty: in a pod set NODE_NAME from spec.nodeName"
        )));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let settings = Settings {
        node_name: args.node_name,
        kubeconfig: args.kubeconfig,
        listen: args.listen,
        api_listen: match args.api_listen {
            Some(ApiListen::Off) => agent::ApiListen::Off,
            Some(ApiListen::At(address)) => agent::ApiListen::At(address),
            None => agent::ApiListen::NodeAddress(args.node_ip),
        },
        record: args.record,
        state_dir: args.state_dir,
        attempt_deadline_ns: args.attempt_deadline * 1_000_000_000,
        bad_backend_after_ns: args.bad_backend_after * 1_000_000_000,
        events: args.events == Switch::On,
        evict: args.evict_stale,
        evict_after_ns: args.evict_after * 1_000_000_000,
        probe: Options {
            tells_outside: !args.cluster_cidrs.is_empty(),
            attempts: args.max_attempts,
            flows: args.max_flows,
            ring_bytes: args.ring_buffer * 1_024,
            ..Options::default()
        },
        cluster_cidrs: args.cluster_cidrs,
    };
    let result = runtime.block_on(agent::run(settings));
    // A blocking look-up of names must not hold the exit up.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    result
}

fn log_to_stderr(format: LogFormat) {
    let filter = EnvFilter::try_from_env("ROLLRACE_LOG")
        .unwrap_or_else(|_| EnvFilter::new("info,kube_client=off"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    match format {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Text => {
            let colour = std::io::IsTerminal::is_terminal(&std::io::stderr())
                && std::env::var_os("NO_COLOR").is_none();
            log.with_ansi(colour).init();
        }
    }
}
