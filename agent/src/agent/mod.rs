//! The agent: tasks, channels, readiness, and a shutdown with a deadline.
//!
//! # Layout
//! - [`run`]: binds, loads, starts the tasks, waits for one to end or for a signal
//! - `probe_task`: the kernel side; never blocked by the others
//! - `engine_task`: the one owner of the state, the metrics and the recording
//! - `conntrack_task`: scans of the conntrack table, and the deletion of stale entries
//! - `clocks`: the node's two clocks, read together
//! - `outbox`: the engine's questions
//! - `failure_log`: one line a failure, rate-limited
//! - `keeper`: the history, written now and then

mod clocks;
mod conntrack_task;
mod engine_task;
mod failure_log;
mod keeper;
mod outbox;
mod probe_task;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use ipnet::IpNet;
use nix::errno::Errno;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::{clocks::now, conntrack_task::ScanReport};
use crate::{
    cli::Failed,
    cluster::{self, ClusterStats},
    engine::{Config, EvictMode},
    http,
    probe::{Options, Probe},
    record::Recorder,
};

/// Bound of the channel from the probes: what does not fit is lost, and counted as such.
const SIGHTINGS: usize = 16_384;
/// Bound of the channel from the cluster: a full one slows the watches down.
const CHANGES: usize = 4_096;
/// Bound of the engine's questions to the API server.
const REQUESTS: usize = 1_024;
/// The whole shutdown.
const SHUTDOWN: Duration = Duration::from_secs(4);

/// Where the API is served.
#[derive(Clone, Copy, Debug)]
pub enum ApiListen {
    /// Nowhere.
    Off,
    /// There.
    At(SocketAddr),
    /// The node's internal address (given, or found), port 9466.
    NodeAddress(Option<IpAddr>),
}

/// Everything the agent is told; complete before anything binds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Node name.
    pub node_name: String,
    /// Kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Operations address.
    pub listen: SocketAddr,
    /// API address.
    pub api_listen: ApiListen,
    /// Recording.
    pub record: Option<PathBuf>,
    /// Folder of the history; `None`: a restart forgets everything.
    pub state_dir: Option<PathBuf>,
    /// How long an attempt of an unseen socket may stay unanswered.
    pub attempt_deadline_ns: u64,
    /// How long a pod must have failed, ready and not leaving, to be called a bad backend.
    pub bad_backend_after_ns: u64,
    /// Whether a rollout that broke connections is told by a Kubernetes Event.
    pub events: bool,
    /// Whether stale conntrack entries are deleted.
    pub evict: EvictMode,
    /// How long a backend must have been gone before its entries are.
    pub evict_after_ns: u64,
    /// All addresses of pods and nodes; empty: not known.
    pub cluster_cidrs: Vec<IpNet>,
    /// Sizes of the kernel side.
    pub probe: Options,
}

impl Settings {
    /// What the engine is told.
    fn config(&self) -> Config {
        Config {
            bad_backend_after_nanos: self.bad_backend_after_ns,
            events: self.events,
            evict: self.evict,
            evict_after_nanos: self.evict_after_ns,
            cluster_cidrs: self.cluster_cidrs.clone(),
            ..Config::new(self.node_name.as_str())
        }
    }
}

/// Runs the agent until a signal, or until something it cannot do without ends.
pub async fn run(settings: Settings) -> Result<(), Failed> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let client =
        cluster::connect(settings.kubeconfig.as_deref()).await.map_err(Failed::unavailable)?;
    let operations = bind(settings.listen, "--listen").await?;
    let api = bind_api(settings.api_listen).await?;
    let config = settings.config();
    let recorder = settings
        .record
        .as_deref()
        .map(|path| Recorder::create(path, &config))
        .transpose()
        .map_err(Failed::unavailable)?;
    let keeper = settings
        .state_dir
        .as_deref()
        .map(|folder| keeper::Keeper::open(folder, &settings.node_name))
        .transpose()
        .map_err(Failed::unavailable)?;
    let probe = Probe::start(settings.probe).map_err(Failed::unavailable)?;
    info!(node = %settings.node_name, listen = %settings.listen, "probes attached");

    let shutdown = CancellationToken::new();
    let (sightings_out, sightings) = mpsc::channel(SIGHTINGS);
    let (changes_out, changes) = mpsc::channel(CHANGES);
    let (requests, requests_in) = mpsc::channel(REQUESTS);
    let (queries_out, queries) = mpsc::channel(64);
    let (kernel, orders) = probe_task::channel();
    let stats = Arc::new(ClusterStats::default());
    let conntrack = conntrack_task::start(sightings_out.clone())?;
    let mut tasks: JoinSet<(&'static str, anyhow::Result<()>)> = JoinSet::new();
    let token = shutdown.clone();
    tasks.spawn(async move {
        let task = probe_task::run(
            probe,
            settings.probe,
            settings.attempt_deadline_ns,
            sightings_out,
            orders,
            token,
        );
        ("probe", task.await)
    });
    let engine = engine_task::EngineTask::new(
        config,
        recorder,
        keeper,
        stats.clone(),
        kernel,
        conntrack,
        requests,
    );
    let token = shutdown.clone();
    tasks.spawn(async move { ("engine", engine.run(sightings, changes, queries, token).await) });
    let token = shutdown.clone();
    let node = settings.node_name.clone();
    tasks.spawn(async move {
        ("cluster", cluster::run(client, node, changes_out, requests_in, stats, token).await)
    });
    let token = shutdown.clone();
    let router = http::operations(queries_out.clone());
    tasks.spawn(async move { ("operations server", http::serve(operations, router, token).await) });
    if let Some(listener) = api {
        let token = shutdown.clone();
        let router = http::api(queries_out);
        tasks.spawn(async move { ("API server", http::serve(listener, router, token).await) });
    }

    let ended = tokio::select! {
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
        ended = tasks.join_next() => ended,
    };
    let failure = match ended {
        None => {
            info!("stopping");
            None
        }
        Some(Ok((name, result))) => Some(
            result
                .err()
                .unwrap_or_else(|| anyhow!("it ended"))
                .context(format!("the {name} task stopped")),
        ),
        Some(Err(error)) => Some(anyhow!(error).context("a task panicked")),
    };
    shutdown.cancel();
    drain(&mut tasks).await;
    failure.map_or(Ok(()), |error| Err(error.into()))
}

async fn bind_api(listen: ApiListen) -> Result<Option<TcpListener>, Failed> {
    let address = match listen {
        ApiListen::Off => return Ok(None),
        ApiListen::At(address) => address,
        ApiListen::NodeAddress(given) => SocketAddr::new(given.map_or_else(own_address, Ok)?, 9466),
    };
    bind(address, "--api-listen").await.map(Some)
}

/// Waits for the tasks to end, under the shutdown's deadline.
async fn drain(tasks: &mut JoinSet<(&'static str, anyhow::Result<()>)>) {
    let drained = tokio::time::timeout(SHUTDOWN, async {
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok((_, Ok(()))) => {}
                Ok((name, Err(error))) => warn!("the {name} task: {error:#}"),
                Err(error) => warn!("a task: {error}"),
            }
        }
    });
    if drained.await.is_err() {
        warn!("tasks were still running {} s after the signal: left behind", SHUTDOWN.as_secs());
    }
}

async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, Failed> {
    let mut bound = TcpListener::bind(address).await;
    if let Err(error) = &bound
        && address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        && error.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32)
    {
        // A kernel without IPv6: every address is every IPv4 address.
        bound = TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await;
    }
    bound
        .with_context(|| format!("cannot listen on {address}: name another address with {flag}"))
        .map_err(Failed::unavailable)
}

/// The address from which this node reaches others: the source that the kernel would choose for a
/// packet out. No packet is sent.
fn own_address() -> Result<IpAddr, Failed> {
    let towards = |from: &str, beyond: &str| -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind(from)?;
        socket.connect(beyond)?;
        Ok(socket.local_addr()?.ip())
    };
    // TEST-NET-1 of RFC 5737, and the documentation prefix of RFC 3849: any address beyond the node
    // does. A node of an IPv6 cluster has no route to the first.
    towards("0.0.0.0:0", "192.0.2.1:9")
        .or_else(|_| towards("[::]:0", "[2001:db8::1]:9"))
        .context("cannot find the node's internal address: give it with --node-ip or --api-listen")
        .map_err(Failed::unavailable)
}
