//! Recordings behind the API, as `rollrace replay --serve` does it.

use std::{
    fs,
    io::Read as _,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;
use rollrace::{
    engine::{RolloutReport, State, step},
    http::{self, Many, Playback},
    oncall::Source,
    record::Recording,
};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::sync::CancellationToken;

/// A rollout that two nodes of a lab recorded: `readiness`, fresh connections.
pub const NODES: [&str; 2] = ["n1", "n2"];

/// Another one: `readiness`, connections that are kept alive, one node.
pub const KEEPALIVE: &str = "keepalive-n1";

/// A server that ends with this.
pub struct Served {
    pub address: SocketAddr,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
}

impl Served {
    async fn start(address: SocketAddr, router: axum::Router, stop: CancellationToken) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port of the loopback interface");
        let address = listener.local_addr().expect("its address");
        let token = stop.clone();
        let ended = tokio::spawn(async move {
            http::serve(listener, router, token).await.expect("the server serves");
        });
        Self { address, stop, ended }
    }

    /// The recording of a node, played at once, or so many times as fast as it happened.
    pub async fn node(node: &str, speed: Option<f64>) -> Self {
        Self::node_at(([127, 0, 0, 1], 0).into(), node, speed).await
    }

    /// The same at a certain address.
    pub async fn node_at(address: SocketAddr, node: &str, speed: Option<f64>) -> Self {
        let playback = Playback::new(format!("{node}.record.jsonl"), recording(node), speed);
        let (queries_out, queries) = mpsc::channel(64);
        let stop = CancellationToken::new();
        tokio::spawn(playback.run(queries, stop.clone()));
        Self::start(address, http::api(queries_out), stop).await
    }

    /// Several agents as `rollrace ui` shows them.
    pub async fn many(agents: &[SocketAddr]) -> Self {
        let source = Source::Agents(agents.iter().map(ToString::to_string).collect());
        let many = Many::find(source, std::time::Duration::from_secs(5)).await;
        let many = many.expect("addresses of agents");
        Self::start(([127, 0, 0, 1], 0).into(), http::many(many), CancellationToken::new()).await
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Ends it, and waits until its port is free.
    pub async fn stop(self) {
        self.stop.cancel();
        self.ended.await.expect("the server ends");
    }
}

fn recording(node: &str) -> Recording {
    let name = format!("{node}.record.jsonl");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.gz"));
    let mut text = Vec::new();
    let packed = fs::File::open(&data).expect("the recording");
    GzDecoder::new(packed).read_to_end(&mut text).expect("a recording in gzip");
    // Tests run at the same time, and each writes its own.
    let thread = format!("{:?}", std::thread::current().id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page").join(thread);
    fs::create_dir_all(&folder).expect("a folder for the test");
    let path = folder.join(name);
    fs::write(&path, text).expect("write the recording");
    Recording::read(&path).expect("a recording")
}

/// What the engine says of the one rollout at the end of a node's recording.
pub fn expected(node: &str) -> RolloutReport {
    let recording = recording(node);
    let mut state = State::new(recording.config);
    for input in recording.inputs {
        step(&mut state, input);
    }
    let rollout = state.rollouts().all().next().expect("a rollout");
    state.rollout_report(rollout)
}

/// All its failures.
pub fn failed(report: &RolloutReport) -> u64 {
    report.failures.values().sum()
}

/// Where a picture goes.
pub fn picture(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
    target.join("page").join(format!("{name}.png"))
}
