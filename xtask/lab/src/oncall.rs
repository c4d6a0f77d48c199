//! The way of people on call to the agents: kubectl's plugin, the API server, and no more rights than
//! the shipped viewer's Role.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rollrace_deploy::role::{Role, Rule};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::agent::kubeconfig_text;
use crate::kubelet::MIRROR_ANNOTATION;
use crate::run::cluster::{Cluster, NAMESPACE};
use crate::run::workload::APPLICATION;

/// Where the agents run.
const AGENTS_NAMESPACE: &str = "rollrace";
/// Who is on call.
const VIEWER: &str = "lab-viewer";

/// The plugin, and how it finds the cluster.
#[derive(Debug)]
pub struct OnCall {
    plugin: PathBuf,
    kubeconfig: PathBuf,
    granted: BTreeSet<(String, String)>,
}

/// What a command said.
#[derive(Debug)]
pub struct Said {
    /// Its exit code.
    pub code: i32,
    /// Its output.
    pub text: String,
    /// Its complaints.
    pub errors: String,
}

impl OnCall {
    /// Shows the agents to the API server as their pods, and lets a viewer in.
    pub async fn new(cluster: &Cluster, binary: &Path, out: &Path) -> Result<Self> {
        show_agents(cluster).await?;
        let role = Role::viewer(AGENTS_NAMESPACE)?;
        let granted = grants(&role);
        cluster.api.bind_role(VIEWER, role);
        let kubeconfig = out.join("kubeconfig-viewer.yaml");
        std::fs::write(&kubeconfig, kubeconfig_text(&cluster.server, VIEWER))
            .with_context(|| format!("write {}", kubeconfig.display()))?;
        let plugin = out.join("kubectl-rollrace");
        let binary = binary.canonicalize().with_context(|| format!("find {}", binary.display()))?;
        // There already where the out directory is used again.
        drop(std::fs::remove_file(&plugin));
        std::os::unix::fs::symlink(binary, &plugin)
            .with_context(|| format!("link {}", plugin.display()))?;
        Ok(Self { plugin, kubeconfig, granted })
    }

    /// Runs a command of it.
    pub async fn run(&self, arguments: &[&str]) -> Result<Said> {
        let mut command = Command::new(&self.plugin);
        command.args(arguments).arg("--kubeconfig").arg(&self.kubeconfig).stdin(Stdio::null());
        let output = command.output().await.context("run kubectl-rollrace")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Said {
            code: output.status.code().context("kubectl-rollrace was killed")?,
            text: text(&output.stdout),
            errors: text(&output.stderr),
        })
    }

    /// What is not as it should be for somebody with the viewer's Role alone.
    pub async fn objections(&self, cluster: &Cluster) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let workload = format!("deployment/{APPLICATION}");
        let report = self.run(&["report", &workload, "-n", NAMESPACE, "-o", "json"]).await?;
        let value: Value = serde_json::from_str(&report.text).unwrap_or_default();
        let nodes = value["nodes"].as_array().map_or(0, Vec::len);
        let rollouts = value["rollouts"].as_array().map_or(0, Vec::len);
        if !matches!(report.code, 0 | 1) || nodes != cluster.nodes.len() || rollouts == 0 {
            found.push(format!(
                "report ended with {}, knows {nodes} nodes and {rollouts} rollouts: {}",
                report.code, report.errors
            ));
        }
        let doctor = self.run(&["doctor", "-o", "json"]).await?;
        let checks: Vec<Value> = serde_json::from_str(&doctor.text).unwrap_or_default();
        for (resource, verb) in &self.granted {
            let what = format!("you may {verb} {resource}");
            if !checks.iter().any(|check| check["what"] == *what && check["health"] == "ok") {
                found.push(format!("doctor does not say that {what}: {}", doctor.text));
            }
        }
        if checks.iter().any(|check| check["health"] == "broken") {
            found.push(format!("doctor says that something is broken: {}", doctor.text));
        }
        let beyond = self.run(&["report", "--agents-namespace", NAMESPACE]).await?;
        let refusal = format!("cannot list the agents' pods in namespace {NAMESPACE}");
        if beyond.code != 2 || !beyond.errors.contains(&refusal) {
            found.push(format!("a request beyond the Role is not refused: {beyond:?}"));
        }
        let used: BTreeSet<(String, String)> = (cluster.api.usage().into_iter())
            .filter(|(key, usage)| key.user == VIEWER && usage.requests > usage.refused)
            .map(|(key, _)| (key.resource, key.verb.to_owned()))
            .collect();
        if used != self.granted {
            found.push(format!("of the Role, which grants {:?}, was used {used:?}", self.granted));
        }
        Ok(found)
    }
}

/// Each verb on a resource that the Role grants.
fn grants(role: &Role) -> BTreeSet<(String, String)> {
    let of = |rule: &Rule| {
        let verbs = rule.verbs.clone();
        let of_resource = move |resource: String| {
            verbs.clone().into_iter().map(move |verb| (resource.clone(), verb))
        };
        rule.resources.clone().into_iter().flat_map(of_resource)
    };
    role.rules.iter().flat_map(of).collect()
}

/// The lab starts the agents itself: their pods are mirrors, as those of static pods are.
async fn show_agents(cluster: &Cluster) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": AGENTS_NAMESPACE}}))?;
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .context("create the agents' namespace")?;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), AGENTS_NAMESPACE);
    for node in &cluster.nodes {
        let name = format!("rollrace-{}", node.addresses.name);
        let pod = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "labels": {"app.kubernetes.io/name": "rollrace"},
                "annotations": {MIRROR_ANNOTATION: "lab"},
            },
            "spec": {
                "nodeName": node.addresses.name,
                "hostNetwork": true,
                "containers": [{"name": "agent", "image": "registry.example/rollrace:1"}],
            },
        }))?;
        pods.create(&PostParams::default(), &pod)
            .await
            .with_context(|| format!("create the pod {name}"))?;
        let address = node.addresses.address;
        let status = json!({"status": {
            "phase": "Running", "hostIP": address, "podIP": address, "podIPs": [{"ip": address}],
        }});
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .with_context(|| format!("write the status of the pod {name}"))?;
    }
    Ok(())
}
