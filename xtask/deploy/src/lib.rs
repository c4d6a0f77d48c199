//! What `deploy/` says: manifests as kubectl and Helm render them, rules and dashboards with every
//! query in them. The checks are this package's tests (`cargo xtask deploy-check`); the lab runs the
//! same queries against a real Prometheus.
//!
//! # Layout
//! - [`tools`]: kubectl, Helm and promtool, and how they are called
//! - [`render`]: objects as a cluster would get them
//! - [`role`]: what the agent's `ClusterRole` allows
//! - [`rules`]: recording rules and alerts
//! - [`scrape`]: what the `PodMonitor` makes of each agent
//! - [`dashboards`]: Grafana's dashboards, their variables and queries
//! - [`image`]: the image, from scratch
//! - [`pod`]: the DaemonSet's container as a runtime gets it
//! - [`query`]: which metrics and labels a query names

pub mod dashboards;
pub mod image;
pub mod pod;
pub mod query;
pub mod render;
pub mod role;
pub mod rules;
pub mod scrape;
pub mod tools;

use std::path::{Path, PathBuf};

/// The repository's folder.
pub fn repository() -> &'static Path {
    // The manifest's folder is xtask/deploy.
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."))
}

/// `deploy/`, or something in it.
pub fn deploy(path: &str) -> PathBuf {
    repository().join("deploy").join(path)
}
