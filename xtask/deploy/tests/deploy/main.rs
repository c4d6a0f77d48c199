//! What is shipped in `deploy/` is what a cluster, Prometheus and Grafana understand, and nothing in
//! it says what another part of it, or the agent, contradicts.
//!
//! kubectl, Helm and promtool come from `cargo xtask setup`.

mod custom;
mod dashboards;
mod manifests;
mod metrics;
mod rules;
