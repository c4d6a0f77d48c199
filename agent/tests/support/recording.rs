//! The recordings under `tests/data`, turned into what the agent would have received.

use std::{fs::File, io::Read, path::PathBuf};

use flate2::read::GzDecoder;
use k8s_openapi::api::apps::v1::Deployment;
use rollrace::{
    cluster::{Facts, Object, Workload},
    engine::ClusterChange,
    model::{PodFacts, ReplicaSetFacts, ServiceFacts, SliceFacts},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// All recordings there are.
pub const ALL: [&str; 7] = [
    "ignore-fresh",
    "naive-fresh",
    "prestop-drain-keepalive-wire",
    "readiness-fresh",
    "readiness-fresh-nftables",
    "readiness-fresh-wire",
    "readiness-keepalive-wire",
];

/// `tests/data/NAME/FILE`.
pub fn path(name: &str, file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "data", name, file].iter().collect()
}

/// When the rollout began, and when `kubectl rollout status` returned: seconds of the node's clock.
#[derive(Clone, Debug, Deserialize)]
pub struct Meta {
    /// The Deployment was changed.
    pub rollout_start: f64,
    /// `kubectl rollout status` returned.
    pub rollout_done: f64,
}

/// `meta.json`.
pub fn meta(name: &str) -> Meta {
    let text = std::fs::read_to_string(path(name, "meta.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A request that failed, as the client saw it.
#[derive(Clone, Debug, Deserialize)]
pub struct ClientFailure {
    /// When it began.
    pub t: f64,
    /// How long it took, in seconds.
    pub dur: f64,
    /// `connect` or `request`.
    pub phase: String,
    /// The error's class in the client's own words.
    pub err: String,
    /// Local port.
    pub lport: u16,
}

/// `client.jsonl` without its summary line.
pub fn client_failures(name: &str) -> Vec<ClientFailure> {
    let text = std::fs::read_to_string(path(name, "client.jsonl")).unwrap();
    text.lines()
        .filter(|line| !line.contains("\"summary\""))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// One line of `wire.jsonl`; see `tests/data/README.md`.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Wire {
    /// A SYN after DNAT.
    Syn {
        /// When it was seen.
        t: f64,
        /// Client.
        client: std::net::SocketAddr,
        /// What it dialled.
        original: std::net::SocketAddr,
        /// Where the SYN went.
        backend: std::net::SocketAddr,
        /// Its initial sequence number.
        isn: u32,
        /// Another ISN on a tuple whose last SYN was never answered.
        stale: bool,
    },
    /// SYN+ACK.
    Synack(WireAnswer),
    /// A RST that answers the SYN.
    Rst(WireAnswer),
    /// The client's last message before the end of an answered connection.
    Said {
        /// Which.
        #[serde(flatten)]
        of: WireConnection,
        /// Bytes of payload.
        length: u32,
        /// Acknowledgement number.
        ack: u32,
        /// Its first bytes, in hexadecimal.
        first: String,
    },
    /// The backend's FIN.
    Fin(WireConnection),
    /// The client's FIN.
    ClientFin(WireConnection),
    /// All of the capture's connections to one backend.
    Backend {
        /// Backend.
        backend: std::net::SocketAddr,
        /// What the clients dialled.
        original: std::net::SocketAddr,
        /// Connections answered by SYN+ACK.
        answered: u64,
        /// By RST.
        refused: u64,
        /// Not at all.
        unanswered: u64,
        /// Connections whose SYN was a fresh decision, whatever came of it.
        fresh_syns: u64,
        /// The first of them.
        first_fresh_syn: f64,
        /// The last of them.
        last_fresh_syn: f64,
        /// Their number by second.
        fresh_by_second: Vec<(u64, u32)>,
    },
}

/// A segment of an answered connection.
#[derive(Clone, Debug, Deserialize)]
pub struct WireConnection {
    /// When it was seen.
    pub t: f64,
    /// Client.
    pub client: std::net::SocketAddr,
    /// What it dialled.
    pub original: std::net::SocketAddr,
    /// Who answered.
    pub backend: std::net::SocketAddr,
    /// ISN of its SYN.
    pub isn: u32,
    /// When it was answered.
    pub opened: f64,
    /// The segment's sequence number; of a FIN, its own.
    pub seq: u32,
}

/// The answer to a SYN.
#[derive(Clone, Debug, Deserialize)]
pub struct WireAnswer {
    /// When it was seen.
    pub t: f64,
    /// Client.
    pub client: std::net::SocketAddr,
    /// What it dialled.
    pub original: std::net::SocketAddr,
    /// Who answered.
    pub backend: std::net::SocketAddr,
    /// ISN of the SYN that is answered.
    pub isn: u32,
}

/// `wire.jsonl`: the connections that failed, then one line a backend.
pub fn wire(name: &str) -> Vec<Wire> {
    let text = std::fs::read_to_string(path(name, "wire.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The experiment's Service; the recordings have no watch of Services.
pub fn service() -> ClusterChange {
    let service = Object::<ServiceFacts>::from_value(json!({
        "metadata": {"namespace": "shop", "name": "api", "resourceVersion": "1"},
        "spec": {"clusterIPs": ["10.96.0.80"], "selector": {"app": "api"},
                 "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
    }));
    ClusterChange::Service(service.facts.unwrap())
}

#[derive(Deserialize)]
struct Line {
    received: f64,
    path: String,
    list: Option<Value>,
    event: Option<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

/// What the watches of the recording delivered, through the agent's own trimming: seconds of the
/// node's clock and the change. Begins with the Service; `Synced(true)` follows the first lists.
///
/// Panics on a complaint: every object of the recordings makes sense.
pub fn changes(name: &str) -> Vec<(f64, ClusterChange)> {
    let mut text = String::new();
    let file = File::open(path(name, "watch.jsonl.gz")).unwrap();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut changes = Vec::new();
    let mut lists = 0;
    for line in text.lines() {
        let line: Line = serde_json::from_str(line).unwrap();
        let resource = line.path.rsplit('/').next().unwrap();
        if changes.is_empty() {
            changes.push((line.received, service()));
            let listed = vec![("shop".into(), "api".into())];
            changes.push((line.received, ClusterChange::ServicesListed(listed)));
        }
        if let Some(mut list) = line.list {
            let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
            let items: Vec<_> = items.into_iter().map(|item| exists(resource, item)).collect();
            let slices = items.iter().filter_map(|item| match item {
                ClusterChange::Slice(facts) => Some((facts.namespace.clone(), facts.name.clone())),
                _ => None,
            });
            let listed = ClusterChange::SlicesListed(slices.collect());
            changes.extend(items.into_iter().map(|item| (line.received, item)));
            if resource == "endpointslices" {
                changes.push((line.received, listed));
            }
            lists += 1;
            if lists == 4 {
                changes.push((line.received, ClusterChange::Synced(true)));
            }
        }
        if let Some(event) = line.event {
            let change = match &*event.kind {
                "ADDED" | "MODIFIED" => exists(resource, event.object),
                "DELETED" => gone(resource, event.object),
                "BOOKMARK" => continue,
                other => panic!("{name} has an event of type {other}"),
            };
            changes.push((line.received, change));
        }
    }
    changes
}

fn facts<F: Facts>(raw: Value) -> std::sync::Arc<F> {
    let object = Object::<F>::from_value(raw);
    assert!(object.complaints.is_empty(), "{:?}", object.complaints);
    object.facts.unwrap()
}

fn workload(raw: Value) -> std::sync::Arc<rollrace::model::WorkloadFacts> {
    std::sync::Arc::new(facts::<Workload<Deployment>>(raw).facts.clone())
}

fn exists(resource: &str, raw: Value) -> ClusterChange {
    match resource {
        "endpointslices" => ClusterChange::Slice(facts::<SliceFacts>(raw)),
        "pods" => ClusterChange::Pod(facts::<PodFacts>(raw)),
        "replicasets" => ClusterChange::ReplicaSet(facts::<ReplicaSetFacts>(raw)),
        "deployments" => ClusterChange::Workload(workload(raw)),
        other => panic!("a recording has the unknown resource {other}"),
    }
}

fn gone(resource: &str, raw: Value) -> ClusterChange {
    match resource {
        "endpointslices" => {
            let slice = facts::<SliceFacts>(raw);
            let (namespace, name) = (slice.namespace.clone(), slice.name.clone());
            ClusterChange::SliceGone { namespace, name }
        }
        "pods" => ClusterChange::PodGone(facts::<PodFacts>(raw)),
        "replicasets" => ClusterChange::ReplicaSetGone(facts::<ReplicaSetFacts>(raw)),
        "deployments" => ClusterChange::WorkloadGone(workload(raw)),
        other => panic!("a recording has the unknown resource {other}"),
    }
}
