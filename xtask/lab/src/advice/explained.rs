//! What `rollrace explain` says of the Deployment, read as a client reads it.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::process::Command;

use crate::agent::Agent;
use crate::run::cluster::NAMESPACE;
use crate::run::workload::APPLICATION;

/// What it says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// The application must drain its connections.
    pub needs_drain: bool,
    /// The patch, as it was printed.
    pub patch: Option<String>,
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
    /// Runs it towards these agents, and keeps what it says in the out directory.
    pub async fn of(binary: &Path, agents: &[Agent], out: &Path, name: &str) -> Result<Self> {
        let text = explain(binary, agents, &[]).await?.context("explain says nothing")?;
        let path = out.join(format!("{name}.txt"));
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        let json =
            explain(binary, agents, &["-o", "json"]).await?.context("explain says nothing")?;
        let path = out.join(format!("{name}.json"));
        std::fs::write(&path, &json).with_context(|| format!("write {}", path.display()))?;
        let value: Value = serde_json::from_str(&json).context("read what explain says")?;
        let advice = &value["advice"];
        let findings = serde_json::from_value(advice["findings"].clone());
        let needs_drain = advice["needs_drain"].as_bool();
        Ok(Self {
            findings: findings.context("read the findings")?,
            needs_drain: needs_drain.context("explain does not say whether to drain")?,
            patch: match advice["patch"].is_null() {
                true => None,
                false => explain(binary, agents, &["-o", "patch"]).await?,
            },
        })
    }

    /// Whether it finds anything that breaks connections, or will.
    pub fn finds_fault(&self) -> bool {
        self.findings.iter().any(|finding| finding.weight != "note")
    }

    /// The patch as it is sent: kubectl makes JSON of it.
    pub fn patch_value(&self) -> Result<Option<Value>> {
        let read = |text: &String| serde_saphyr::from_str(text).context("read the patch's YAML");
        self.patch.as_ref().map(read).transpose()
    }
}

async fn explain(binary: &Path, agents: &[Agent], options: &[&str]) -> Result<Option<String>> {
    let mut command = Command::new(binary);
    command.args(["explain", &format!("deployment/{APPLICATION}"), "-n", NAMESPACE, "--utc"]);
    for agent in agents {
        command.arg("--agent").arg(agent.addresses().1.to_string());
    }
    command.args(options).stdin(Stdio::null());
    let output = command.output().await.context("run rollrace explain")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0..=2) => Ok((!text.is_empty()).then_some(text)),
        _ => bail!(
            "rollrace explain {} failed ({}): {}",
            options.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}
