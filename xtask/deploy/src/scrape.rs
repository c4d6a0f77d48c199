//! What the `PodMonitor` makes of each agent, for a Prometheus without the operator.

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::deploy;

/// The object, in `deploy/`.
pub const FILE: &str = "components/podmonitor/podmonitor.yaml";

/// monitoring.coreos.com/v1 `PodMonitor`, as far as it is used: the operator's own types are Go.
#[derive(Clone, Debug, Deserialize)]
pub struct PodMonitor {
    /// Name and namespace.
    pub metadata: Metadata,
    /// What is scraped.
    pub spec: Spec,
}

/// Its `metadata`, without labels.
#[derive(Clone, Debug, Deserialize)]
pub struct Metadata {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
}

/// Its `spec`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Whose pods.
    pub selector: Value,
    /// Which of their ports.
    pub pod_metrics_endpoints: Vec<Endpoint>,
}

/// A port that is scraped.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Name of the container's port.
    pub port: String,
    /// How often.
    pub interval: String,
    /// Whether a metric's label goes before the target's of the same name.
    pub honor_labels: bool,
    /// Applied to the target before it is scraped.
    pub relabelings: Vec<Relabeling>,
}

/// A rule that makes a label.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Relabeling {
    /// From which.
    pub source_labels: Vec<String>,
    /// Which.
    pub target_label: String,
}

/// An agent that is scraped.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address and port of `/metrics`.
    pub address: String,
    /// Name of the node.
    pub node: String,
}

impl PodMonitor {
    /// The one that is shipped.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn shipped() -> anyhow::Result<Self> {
        let path = deploy(FILE);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let monitor: Self = serde_saphyr::from_str(&text)
            .with_context(|| format!("cannot parse {}", path.display()))?;
        ensure!(monitor.spec.pod_metrics_endpoints.len() == 1, "{FILE} names one port");
        Ok(monitor)
    }

    /// Prometheus's configuration for these targets, with the labels that the operator's has, scraping
    /// and evaluating each second. (JSON is YAML.)
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub fn prometheus(&self, targets: &[Target], rules: &str) -> anyhow::Result<String> {
        let endpoint =
            self.spec.pod_metrics_endpoints.first().context("a PodMonitor has a port")?;
        let statics: Vec<Value> = targets
            .iter()
            .map(|target| {
                json!({"targets": [target.address], "labels": {
                    "__meta_kubernetes_pod_node_name": target.node,
                    "namespace": self.metadata.namespace,
                    "pod": format!("rollrace-{}", target.node),
                    "container": "agent",
                }})
            })
            .collect();
        let relabel: Vec<Value> = endpoint
            .relabelings
            .iter()
            .map(|rule| {
                json!({"source_labels": rule.source_labels, "target_label": rule.target_label})
            })
            .collect();
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules],
            "scrape_configs": [{
                "job_name": format!("{}/{}", self.metadata.namespace, self.metadata.name),
                "honor_labels": endpoint.honor_labels,
                "static_configs": statics,
                "relabel_configs": relabel,
            }],
        });
        serde_json::to_string_pretty(&config).context("cannot encode Prometheus's configuration")
    }
}
