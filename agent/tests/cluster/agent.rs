//! The code under test, started against an address.

use std::{sync::Arc, time::Duration};

use rollrace::{
    cluster::{self, ClusterStats},
    engine::{ClusterChange, Request},
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Longer than any wait that the code under test makes: a test that needs it has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Agent {
    pub changes: mpsc::Receiver<ClusterChange>,
    pub requests: mpsc::Sender<Request>,
    pub stats: Arc<ClusterStats>,
    pub _shutdown: DropGuard,
}

impl Agent {
    pub async fn start(address: std::net::SocketAddr) -> Self {
        let cluster = json!({"server": format!("http://{address}")});
        Self::start_with(address, &cluster, &json!({})).await
    }

    /// With these entries for cluster and user in the kubeconfig.
    pub async fn start_with(address: std::net::SocketAddr, cluster: &Value, user: &Value) -> Self {
        let name = format!("rollrace-{}-{}.kubeconfig", std::process::id(), address.port());
        let file = std::env::temp_dir().join(name);
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]});
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let client = cluster::connect(Some(&file)).await;
        std::fs::remove_file(&file).unwrap();
        let (sender, changes) = mpsc::channel(64);
        let (requests, receiver) = mpsc::channel(64);
        let stats = Arc::new(ClusterStats::default());
        let token = CancellationToken::new();
        let (stats_there, token_there) = (stats.clone(), token.clone());
        tokio::spawn(async move {
            let node = "n1".to_owned();
            cluster::run(client.unwrap(), node, sender, receiver, stats_there, token_there).await
        });
        Self { changes, requests, stats, _shutdown: token.drop_guard() }
    }

    /// Everything up to and with the first change that fits.
    pub async fn until(&mut self, fits: impl Fn(&ClusterChange) -> bool) -> Vec<ClusterChange> {
        let mut seen = Vec::new();
        loop {
            let Ok(change) = timeout(PATIENCE, self.changes.recv()).await else {
                let stats = self.stats.snapshot();
                panic!("nothing that fits within {PATIENCE:?}, but {seen:#?}\n{stats:#?}");
            };
            let change = change.unwrap_or_else(|| panic!("it ended after {seen:#?}"));
            let found = fits(&change);
            seen.push(change);
            if found {
                return seen;
            }
        }
    }

    pub async fn ask(&self, request: Request) {
        self.requests.send(request).await.unwrap();
    }
}
