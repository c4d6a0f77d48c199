//! An API server that lists the agents' pods and proxies to them, agents included.

use std::{
    path::PathBuf,
    process::{Command, Output},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};

/// How an agent answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    /// At once.
    Answers,
    /// Not within anybody's patience.
    Hangs,
    /// Its pod is Pending.
    Pending,
}

/// A cluster of agents, node `n1` and on.
#[derive(Clone)]
pub struct Cluster {
    agents: Vec<Agent>,
    /// What each answers to `/api/v1/rollouts`: (node, failures of class refused).
    refused: fn(usize) -> u64,
    forbidden: bool,
}

/// A served cluster with its kubeconfig.
pub struct Served {
    kubeconfig: PathBuf,
    _runtime: tokio::runtime::Runtime,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

impl Cluster {
    pub fn new(agents: Vec<Agent>, refused: fn(usize) -> u64) -> Self {
        Self { agents, refused, forbidden: false }
    }

    /// One that forbids everything.
    pub fn forbidden() -> Self {
        Self { agents: Vec::new(), refused: |_| 0, forbidden: true }
    }

    /// Serves it on a port of its own.
    pub fn serve(self, name: &str) -> Served {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener =
            runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new()
            .route("/version", get(|| async { Json(json!({"major": "1", "minor": "33", "gitVersion": "v1.33.1", "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""})) }))
            .route("/api/v1/namespaces/rollrace/pods", get(pods))
            .route("/api/v1/namespaces/rollrace/pods/{pod}/proxy/api/v1/{what}", get(proxied))
            .with_state(self);
        runtime.spawn(async move { axum::serve(listener, router).await });
        let kubeconfig =
            std::env::temp_dir().join(format!("rollrace-oncall-{}-{name}", std::process::id()));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: made-up\n\
             clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\n\
             users: [{{name: u, user: {{}}}}]\n\
             contexts: [{{name: made-up, context: {{cluster: c, user: u, namespace: shop}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).expect("write the kubeconfig");
        Served { kubeconfig, _runtime: runtime }
    }
}

impl Served {
    /// Runs the command against it.
    pub fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_rollrace"))
            .args(arguments)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .output()
            .expect("run rollrace")
    }
}

async fn pods(State(cluster): State<Cluster>) -> Response {
    if cluster.forbidden {
        return (
            StatusCode::FORBIDDEN,
            Json(json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                        "reason": "Forbidden", "message": "pods is forbidden: User \"eve\" cannot list resource \"pods\""})),
        )
            .into_response();
    }
    let pod = |(at, agent): (usize, &Agent)| {
        let phase = if *agent == Agent::Pending { "Pending" } else { "Running" };
        json!({"metadata": {"name": format!("rollrace-{at}"), "namespace": "rollrace"},
               "spec": {"nodeName": format!("n{at}"), "containers": []}, "status": {"phase": phase}})
    };
    let items: Vec<Value> = cluster.agents.iter().enumerate().map(pod).collect();
    Json(json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
        .into_response()
}

async fn proxied(
    State(cluster): State<Cluster>,
    Path((pod, what)): Path<(String, String)>,
) -> Response {
    let number = pod.strip_prefix("rollrace-").and_then(|rest| rest.strip_suffix(":9466"));
    let Some(at) = number.and_then(|number| number.parse::<usize>().ok()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if cluster.agents.get(at) == Some(&Agent::Hangs) {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    let node = format!("n{at}");
    let answer = match &*what {
        "status" => json!({"node": node, "version": env!("CARGO_PKG_VERSION"), "ready": true,
                           "kubernetes": "v1.33.1", "losses": {}, "cluster": {"synced": true},
                           "coverage": {"since": "2026-11-30T04:00:00Z", "gaps": []}}),
        "rollouts" => json!({"node": node, "rollouts": [rollout(at, (cluster.refused)(at))]}),
        "failures" => json!({"node": node, "failures": [], "next": 0}),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    Json(answer).into_response()
}

/// A rollout as node `at` knows it.
pub fn rollout(at: usize, refused: u64) -> Value {
    let template = json!({"grace_seconds": 30, "containers": [{
        "name": "app", "ports": [8080],
        "readiness": {"how": "httpGet", "port": 8080, "period_seconds": 1, "failure_threshold": 3}}]});
    let revision = |number: u32| {
        json!({"revision": number.to_string(), "hash": format!("h{number}"),
               "images": [format!("api:{number}")], "template": template})
    };
    let left = |pod: &str, second: u32| {
        json!({"endpoint": {"address": "10.244.1.7", "port": 8080}, "pod": pod,
               "seconds": 1.25, "fresh_syns_after": 12, "precision_seconds": 0.0,
               "deleted": format!("2026-11-30T05:00:0{second}Z"), "node": "n0",
               "listener_gap_seconds": 0.02, "gone_seconds": 0.4, "exit_codes": {"app": 0}})
    };
    json!({
        "id": format!("u/h2/{}", at % 3 + 1), "namespace": "shop", "kind": "Deployment",
        "name": "api", "uid": "u", "from": revision(1), "to": revision(2),
        "started": "2026-11-30T05:00:00.2Z", "completed": "2026-11-30T05:00:09.1Z",
        "covered": {"since": "2026-11-30T05:00:00.2Z", "partial": false, "gaps": 0},
        "superseded": false, "last_old_pod_gone": "2026-11-30T05:00:09.6Z",
        "failures": {"refused": refused}, "after": 0, "sides": {"old": refused},
        "clients": {"shop/web": refused}, "attempts": 1_000, "lower_bound": false,
        "first_failure": "2026-11-30T05:00:03.1Z", "last_failure": "2026-11-30T05:00:07.5Z",
        "workload": {"replicas": 2, "outage_by_design": false, "strategy": {
            "kind": "RollingUpdate", "max_surge": 1, "max_unavailable": 0}},
        "services": [], "stale": {"entries": 0, "expires": null},
        "convergence": [left("api-h1-a", 3), left("api-h1-b", 7)],
    })
}
