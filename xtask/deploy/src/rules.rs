//! Recording rules and alerts.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::deploy;

/// The object that holds the rules, in `deploy/`.
pub const FILE: &str = "components/rules/prometheusrule.yaml";

/// What Prometheus reads as a rules file, and the operator as an object's `spec`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Evaluated side by side.
    pub groups: Vec<Group>,
}

/// Rules that are evaluated one after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// How often, as Prometheus writes durations; without it as often as the server evaluates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// The rules.
    pub rules: Vec<Rule>,
}

/// One rule: it has either `record` or `alert`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The series that it makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// The alert that it raises.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert: Option<String>,
    /// The query.
    pub expr: String,
    /// How long it must hold before the alert fires.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<String>,
    /// Labels that it adds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What people read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The operator's object around them.
#[derive(Debug, Deserialize)]
struct Object {
    spec: Rules,
}

impl Rules {
    /// The rules that are shipped.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn shipped() -> anyhow::Result<Self> {
        let path = deploy(FILE);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let object: Object = serde_saphyr::from_str(&text)
            .with_context(|| format!("cannot parse {}", path.display()))?;
        Ok(object.spec)
    }

    /// Every rule.
    pub fn all(&self) -> impl Iterator<Item = &Rule> {
        self.groups.iter().flat_map(|group| &group.rules)
    }

    /// As a file that Prometheus loads. (JSON is YAML.)
    ///
    /// # Errors
    /// If they cannot be encoded.
    pub fn file(&self) -> anyhow::Result<String> {
        serde_json::to_string_pretty(self).context("cannot encode the rules")
    }
}
