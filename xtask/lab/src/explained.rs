//! What `rollrace explain` says of a Deployment, read as a client reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::oncall::OnCall;
use crate::run::cluster::NAMESPACE;

/// What it says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// The application must drain its connections.
    pub needs_drain: bool,
    /// The patch, as it was printed.
    pub patch: Option<String>,
    /// Where stale conntrack entries of the rollout still led, by node.
    pub stale: BTreeMap<String, BTreeSet<IpAddr>>,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule's name.
    pub rule: String,
    /// `fault`, `risk` or `note`.
    pub weight: String,
    /// In words.
    pub title: String,
}

impl Explained {
    /// Asks it, and keeps what it says in the out directory under this name.
    pub async fn of(asked: &Asked<'_>, out: &Path, name: &str) -> Result<Self> {
        let text = asked.explain(&[]).await?.context("explain says nothing")?;
        let path = out.join(format!("{name}.txt"));
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        let json = asked.explain(&["-o", "json"]).await?.context("explain says nothing")?;
        let path = out.join(format!("{name}.json"));
        std::fs::write(&path, &json).with_context(|| format!("write {}", path.display()))?;
        let value: Value = serde_json::from_str(&json).context("read what explain says")?;
        let advice = &value["advice"];
        let findings = serde_json::from_value(advice["findings"].clone());
        let needs_drain = advice["needs_drain"].as_bool();
        Ok(Self {
            findings: findings.context("read the findings")?,
            stale: stale(&value["facts"]),
            needs_drain: needs_drain.context("explain does not say whether to drain")?,
            patch: if advice["patch"].is_null() {
                None
            } else {
                asked.explain(&["-o", "patch"]).await?
            },
        })
    }

    /// Whether it finds anything that breaks connections, or will.
    pub fn finds_fault(&self) -> bool {
        self.findings.iter().any(|finding| finding.weight != "note")
    }

    /// Whether it found this.
    pub fn finds(&self, rule: &str) -> bool {
        self.findings.iter().any(|finding| finding.rule == rule)
    }

    /// The patch as it is sent: kubectl makes JSON of it.
    pub fn patch_value(&self) -> Result<Option<Value>> {
        let read = |text: &String| serde_saphyr::from_str(text).context("read the patch's YAML");
        self.patch.as_ref().map(read).transpose()
    }
}

fn stale(facts: &Value) -> BTreeMap<String, BTreeSet<IpAddr>> {
    let nodes = facts["nodes"].as_array().into_iter().flatten();
    let of_node = |node: &Value| {
        let endpoints = node["figures"]["stale"]["endpoints"].as_array().into_iter().flatten();
        let addresses = endpoints.filter_map(|at| at["endpoint"]["address"].as_str()?.parse().ok());
        Some((node["node"].as_str()?.to_owned(), addresses.collect()))
    };
    nodes.filter_map(of_node).collect()
}

/// Who is asked about which Deployment.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The way to the agents.
    pub on_call: &'a OnCall,
    /// The Deployment's name.
    pub deployment: &'a str,
}

impl Asked<'_> {
    async fn explain(&self, options: &[&str]) -> Result<Option<String>> {
        let workload = format!("deployment/{}", self.deployment);
        let mut arguments = vec!["explain", &workload, "-n", NAMESPACE, "--utc"];
        arguments.extend(options);
        let said = self.on_call.run(&arguments).await?;
        match said.code {
            0..=2 if said.errors.is_empty() => Ok((!said.text.is_empty()).then_some(said.text)),
            code => bail!("explain of {} ended with {code}: {}", self.deployment, said.errors),
        }
    }
}
