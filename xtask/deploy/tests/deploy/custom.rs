//! The Prometheus operator's `PrometheusRule`: its own types are Go.

use std::collections::BTreeMap;

use rollrace_deploy::rules::Rules;
use serde::Deserialize;

/// monitoring.coreos.com/v1 `PrometheusRule`.
#[derive(Debug, Deserialize)]
pub struct PrometheusRule {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "metadata")]
    _metadata: BTreeMap<String, serde_json::Value>,
    #[serde(rename = "spec")]
    _spec: Rules,
}
