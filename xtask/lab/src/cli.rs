//! The command line of `rollrace-lab`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};

use rollrace_deploy::pod::{Pod, Seccomp};

use crate::advice::{AdviceArgs, CellArgs};
use crate::agent::Program;
use crate::fault::FaultArgs;
use crate::matrix::{MatrixArgs, TableArgs};
use crate::net::{AddressPlan, IpFamily, NodeAddresses};
use crate::rest::RestArgs;
use crate::rules::RulesArgs;
use crate::scenario::ScenarioArgs;
use crate::setup::Setup;
use crate::soak::{SoakArgs, SoakClientArgs, SoakServerArgs};

/// A Kubernetes cluster on one machine: rolls a Deployment out under load and compares what the
/// clients suffered with what the rollrace agents reported.
#[derive(Debug, Parser)]
#[command(name = "rollrace-lab", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Exit code for bad usage, from sysexits.h.
pub const BAD_USAGE: u8 = 64;

/// Prints what clap has to say: help and version are no errors.
pub fn explain(error: &clap::Error) -> ExitCode {
    // Nobody is left to tell when the terminal is gone.
    drop(error.print());
    if error.use_stderr() { ExitCode::from(BAD_USAGE) } else { ExitCode::SUCCESS }
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// One rollout under load, compared connection by connection
    Run(Box<RunArgs>),
    /// The setups `readiness` and `prestop` one after the other, and a table
    Demo(DemoArgs),
    /// One attribution scenario, judged by the lab's own log of who removed which pod
    Scenario(ScenarioArgs),
    /// A fault of the API server in the middle of a rollout, seen by the agents only
    Fault(FaultArgs),
    /// Every kind of traffic at once, without a rollout and through an orderly one: nothing but the real
    /// failures may be reported
    Soak(SoakArgs),
    /// What the agents use while nothing rolls out, against the bars
    Rest(RestArgs),
    /// Every cell of setups, modes and delays, and every scenario, several at a time
    Matrix(MatrixArgs),
    /// Whether what explain advises works: each setup before and after it
    Advice(AdviceArgs),
    /// One setup of `advice`
    #[command(hide = true)]
    AdviceCell(CellArgs),
    /// Whether each rule of explain is found where it should be, and not where it should not
    Rules(RulesArgs),
    /// The reference experiment: six setups in two modes, beside the published counts
    Table(TableArgs),
    /// The server that runs in the pods
    #[command(hide = true)]
    Server(ServerArgs),
    /// The client that makes the load
    #[command(hide = true)]
    Client(ClientArgs),
    /// The server of a soak
    #[command(hide = true)]
    SoakServer(SoakServerArgs),
    /// The client of a soak
    #[command(hide = true)]
    SoakClient(SoakClientArgs),
}

const RUN_EXAMPLES: &str = "\
Examples:
  A rollout of pods that exit at SIGTERM, a connection for each request:
    rollrace-lab run --setup readiness --mode fresh --seconds 50

  The same with the proxies 3 s behind, nftables rules, and a JSON object as the last line:
    rollrace-lab run --setup readiness --mode fresh --seconds 50 \\
        --proxy-watch-delay 3000 --proxy nftables --json

  A cluster of both address families:
    rollrace-lab run --setup readiness --mode fresh --seconds 50 --ip-family dual

  The lab alone, without agents:
    rollrace-lab run --setup prestop --mode keepalive --seconds 30 --no-agent

Exit code: 0 when the two sides agree (missed, extra, misattributed and doubles are all 0) and the
bars are met (failures on /metrics in time, convergence within its bounds), 1 when not, 64 for bad usage, 69 without the rights or the agent that it needs, 70 when the
lab itself failed. Needs root (or CAP_SYS_ADMIN and CAP_NET_ADMIN).";

/// Options of `run`.
#[derive(Debug, Clone, Args)]
#[command(after_help = RUN_EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct RunArgs {
    /// How the pods of the Deployment begin and end
    #[arg(long, value_enum)]
    pub setup: Setup,
    /// How the clients use connections
    #[arg(long, value_enum)]
    pub mode: Mode,
    /// How long the clients make requests, in seconds
    #[arg(long, value_name = "N")]
    pub seconds: u64,
    /// When the rollout starts, in seconds after the clients
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rollout_after: u64,
    /// Replicas of the Deployment
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub replicas: i32,
    /// Threads of each client
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub threads: usize,
    /// Each client thread uses so many source ports only, one after the other [default: the kernel's
    /// choice]
    #[arg(long, value_name = "N")]
    pub source_ports: Option<u16>,
    /// A client's timeout for connecting, and again for the answer to a request, in seconds
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    pub client_timeout: f64,
    /// Nodes of the cluster
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub nodes: u8,
    /// A node whose pods hang on a bridge instead of point-to-point links, e.g. n2; repeatable
    #[arg(long, value_name = "NODE")]
    pub bridge_node: Vec<String>,
    /// How much later the agents see each watch event, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub agent_watch_delay: u64,
    /// How much later the proxies see each watch event, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub proxy_watch_delay: u64,
    /// How long a proxy takes before it programs a change, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub proxy_program_delay: u64,
    /// The least time between two programmings of a proxy, in milliseconds; kube-proxy's default is
    /// a second, and it is what delays the removal of an old pod's rule in a rolling update
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    pub proxy_min_sync_period: u64,
    /// From a container's exit to the removal of its pod's network, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 200)]
    pub teardown_delay: u64,
    /// What the proxies program
    #[arg(long, value_enum, default_value_t = ProxyMode::Iptables)]
    pub proxy: ProxyMode,
    /// What the clients dial
    #[arg(long, value_enum, default_value_t = Dial::Service)]
    pub dial: Dial,
    /// One more client, outside the cluster: for --dial node-port or endpoints
    #[arg(long)]
    pub outside: bool,
    /// What is special about the Service; repeatable
    #[arg(long, value_enum)]
    pub service: Vec<ServiceTrait>,
    /// A class that the agents must have reported at the end, or the run shows nothing; repeatable
    #[arg(long, value_name = "CLASS")]
    pub must_show: Vec<String>,
    /// The addresses of nodes, pods and Services; with both families the threads of each client are
    /// shared out among them
    #[arg(long, value_enum, default_value_t = IpFamily::Ipv4)]
    pub ip_family: IpFamily,
    /// The version that the API server says it is: before v1.30 a pod's preStop has no sleep action
    #[arg(long, value_name = "VERSION", default_value = crate::api::VERSION)]
    pub kubernetes: String,
    /// Whether the agents delete stale conntrack entries: off, dry-run or on
    #[arg(long, value_name = "MODE", default_value = "off", value_parser = ["off", "dry-run", "on"])]
    pub evict_stale: String,
    /// Print the result as one JSON object, as the last line
    #[arg(long)]
    pub json: bool,
    /// Directory for logs and results [default: a fresh one under target/lab]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The rollrace binary [default: the `rollrace` beside this one]
    #[arg(long, value_name = "PATH")]
    pub agent: Option<PathBuf>,
    /// Run the agents as the `DaemonSet` does: the image's files at this folder (`cargo xtask image` makes
    /// it) as a read-only root, the manifest's capabilities and its seccomp profile
    #[arg(long, value_name = "ROOT", conflicts_with_all = ["agent", "no_agent"])]
    pub pod: Option<PathBuf>,
    /// With --pod: the seccomp profile
    #[arg(long, value_enum, default_value_t = SeccompProfile::Runtime, requires = "pod")]
    pub seccomp: SeccompProfile,
    /// With --pod: a capability of the manifest to leave out, to see what the agent says
    #[arg(long, value_name = "CAPABILITY", requires = "pod")]
    pub without_capability: Option<String>,
    /// Scrape the agents with a real Prometheus, and judge every rule and dashboard by what it says
    #[arg(long, conflicts_with = "no_agent")]
    pub prometheus: bool,
    /// Wait until the agents have written the Kubernetes Events that are due (they take up to 30 s), and
    /// expect exactly one if anything failed
    #[arg(long, conflicts_with = "no_agent")]
    pub await_events: bool,
    /// Run no agents: the clients' side only
    #[arg(long, conflicts_with = "agent")]
    pub no_agent: bool,
    /// This process is already the first one of the lab's own namespaces
    #[arg(long, hide = true)]
    pub inside: bool,
    /// Which addresses to use: no two labs that run at the same time have the same
    #[arg(long, hide = true, default_value_t = 0)]
    pub lab_number: u8,
}

impl RunArgs {
    /// The options of a run that another command plays: these, and the defaults of all others.
    pub fn of_options(options: &[(&str, String)], agent: Option<&Path>) -> Result<Self> {
        let mut words = vec!["rollrace-lab".to_owned(), "run".to_owned()];
        words.extend(options.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]));
        let cli = Cli::try_parse_from(words).context("make the options of a run")?;
        match cli.command {
            Command::Run(args) => Ok(Self { agent: agent.map(Path::to_owned), ..*args }),
            _ => bail!("the options of a run were read as another command's"),
        }
    }

    /// The agent's path.
    pub fn agent_binary(&self) -> Result<PathBuf> {
        match (&self.agent, &self.pod) {
            (Some(path), _) => Ok(path.clone()),
            (None, Some(root)) => Ok(root.join("rollrace")),
            (None, None) => Ok(std::env::current_exe()
                .context("find the lab's own executable")?
                .with_file_name("rollrace")),
        }
    }

    /// What runs as the agent.
    pub fn agent_program(&self) -> Result<Program> {
        let Some(root) = &self.pod else { return Ok(Program::Binary(self.agent_binary()?)) };
        let mut pod = Pod::shipped()?;
        pod.seccomp = match self.seccomp {
            SeccompProfile::Runtime => Seccomp::Runtime,
            SeccompProfile::Shipped => Seccomp::Shipped,
        };
        if let Some(name) = &self.without_capability {
            let before = pod.capabilities.len();
            pod.capabilities.retain(|capability| capability != name);
            if pod.capabilities.len() == before {
                bail!("the manifest has no {name}: it has {}", pod.capabilities.join(", "));
            }
        }
        Ok(Program::Pod { root: root.clone(), pod: Box::new(pod) })
    }

    /// The addresses that the proxies redirect, as the clients dial them: the Service's own, or the nodes'.
    pub fn redirected(&self, nodes: &[&NodeAddresses]) -> Vec<IpAddr> {
        match self.dial {
            Dial::Service => self.address_plan().service(),
            Dial::NodePort => nodes.iter().flat_map(|node| node.addresses.clone()).collect(),
            Dial::Endpoints => Vec::new(),
        }
    }

    /// The addresses of the lab.
    pub fn address_plan(&self) -> AddressPlan {
        AddressPlan::new(self.lab_number, self.ip_family)
    }

    /// Options that cannot be meant together.
    pub fn contradiction(&self) -> Option<String> {
        if self.seconds <= self.rollout_after {
            return Some(format!(
                "--seconds {} ends before the rollout at {} s: use more seconds, or a smaller --rollout-after",
                self.seconds, self.rollout_after
            ));
        }
        if self.threads < self.ip_family.families().len() {
            return Some(format!(
                "--threads {} leaves a family without a client: use at least 2 with --ip-family dual",
                self.threads
            ));
        }
        let needs_endpoints =
            self.proxy == ProxyMode::Socket || self.service.contains(&ServiceTrait::Headless);
        if needs_endpoints && self.dial != Dial::Endpoints {
            return Some(
                "--proxy socket and --service headless leave no address but the endpoints': use --dial endpoints"
                    .to_owned(),
            );
        }
        if self.proxy == ProxyMode::Ipvs && self.dial == Dial::NodePort {
            return Some("--proxy ipvs programs no node ports: use another proxy".to_owned());
        }
        if self.outside && self.dial == Dial::Service {
            return Some(
                "a Service's address is the cluster's own: use --outside with --dial node-port or endpoints"
                    .to_owned(),
            );
        }
        let unknown =
            |name: &&String| !(1..=self.nodes).any(|number| **name == format!("n{number}"));
        self.bridge_node.iter().find(unknown).map(|name| {
            format!("there is no node {name}: --bridge-node takes n1 to n{}", self.nodes)
        })
    }

    /// A client's timeout.
    pub fn client_timeout(&self) -> Duration {
        Duration::from_secs_f64(self.client_timeout)
    }
}

/// Options of `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// How long the clients make requests in each of the two runs, in seconds
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub seconds: u64,
    /// Directory for logs and results [default: a fresh one under target/lab]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The rollrace binary [default: the `rollrace` beside this one]
    #[arg(long, value_name = "PATH")]
    pub agent: Option<PathBuf>,
}

/// How a client uses connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// A connection for each request
    Fresh,
    /// One connection a thread, used again and again
    Keepalive,
}

impl Mode {
    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Keepalive => "keepalive",
        }
    }
}

/// A seccomp profile of the agents' container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SeccompProfile {
    /// What `RuntimeDefault` is where it lets `CAP_BPF` call bpf(2)
    Runtime,
    /// `deploy/seccomp/rollrace.json`
    Shipped,
}

/// What a proxy programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProxyMode {
    /// iptables rules, by the back end that makes nftables of them
    Iptables,
    /// iptables rules, by the legacy back end
    IptablesLegacy,
    /// an nftables table
    Nftables,
    /// IPVS, which not every kernel has
    Ipvs,
    /// nothing: a balancer in the clients' sockets, which have an endpoint's address from the start
    Socket,
}

impl ProxyMode {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::IptablesLegacy => "iptables-legacy",
            Self::Nftables => "nftables",
            Self::Ipvs => "ipvs",
            Self::Socket => "socket",
        }
    }
}

/// What clients dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dial {
    /// The Service's own address
    Service,
    /// The Service's port on every node
    NodePort,
    /// The endpoints themselves, which a balancer or a resolver knows by the slices: as late as the
    /// proxy of the client's node
    Endpoints,
}

/// What may be special about a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServiceTrait {
    /// `externalTrafficPolicy: Local`
    ExternalLocal,
    /// `sessionAffinity: ClientIP`
    Affinity,
    /// `clusterIP: None`
    Headless,
    /// `publishNotReadyAddresses: true`
    PublishNotReady,
}

/// What the server does at SIGTERM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnSigterm {
    /// Exit at once
    Exit,
    /// Stop accepting, finish what was begun with `Connection: close`, exit
    Drain,
    /// Nothing, as a PID 1 without a handler
    Ignore,
}

/// Options of `server`.
#[derive(Debug, Clone, Args)]
pub struct ServerArgs {
    /// Port to listen on
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// From the start to listening, in milliseconds
    #[arg(long, default_value_t = 2000)]
    pub listen_after: u64,
    /// How long a request takes, in milliseconds
    #[arg(long, default_value_t = 50)]
    pub request_time: u64,
    /// How much longer a drained server still works before it exits, in milliseconds
    #[arg(long, default_value_t = 0)]
    pub exit_after: u64,
    /// What to do at SIGTERM
    #[arg(long, value_enum, default_value_t = OnSigterm::Exit)]
    pub on_sigterm: OnSigterm,
    /// The pod's name, told in each answer
    #[arg(long, env = "HOSTNAME")]
    pub pod: String,
    /// The application, told in each answer: a client can tell a wrong one by it
    #[arg(long, env = "APP")]
    pub application: String,
}

/// Options of `client`.
#[derive(Debug, Clone, Args)]
pub struct ClientArgs {
    /// Where to send the requests; repeatable: the threads are shared out
    #[arg(long, required = true)]
    pub target: Vec<SocketAddr>,
    /// The application that must answer
    #[arg(long)]
    pub application: String,
    /// How to use connections
    #[arg(long, value_enum)]
    pub mode: Mode,
    /// Threads, each in a loop of its own
    #[arg(long)]
    pub threads: usize,
    /// How long to make requests, in seconds
    #[arg(long)]
    pub seconds: u64,
    /// Timeout for connecting, and again for the answer to a request, in seconds
    #[arg(long)]
    pub timeout: f64,
    /// File for one JSON line per failed request, and a summary as the last line
    #[arg(long)]
    pub log: PathBuf,
    /// Source ports a thread, one after the other; without it the kernel chooses
    #[arg(long)]
    pub source_ports: Option<u16>,
    /// Connect to the endpoints in this file instead, each in turn: it is read for each connection
    #[arg(long)]
    pub endpoints: Option<PathBuf>,
}
