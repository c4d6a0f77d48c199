//! What runs as the agent: a binary, or the image as the DaemonSet would run it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};
use rollrace_deploy::pod::Pod;
use tokio::process::{Child, Command};

use crate::net::Namespace;

/// What runs as the agent.
#[derive(Debug, Clone)]
pub enum Program {
    /// A binary, with all the rights of root.
    Binary(PathBuf),
    /// The image's files, under the manifest's capabilities and seccomp profile.
    Pod {
        /// The image's files.
        root: PathBuf,
        /// The container.
        pod: Box<Pod>,
    },
}

impl Program {
    /// Starts it in a node's namespace; it finds the out directory at its own path.
    pub fn start(
        &self,
        node: &str,
        namespace: &Namespace,
        arguments: &[String],
        out: &Path,
        log: &Path,
    ) -> Result<Child> {
        let output = File::create(log).with_context(|| format!("create {}", log.display()))?;
        let mut command = match self {
            Self::Binary(binary) => {
                let binary = binary.to_str().context("a path is not UTF-8")?;
                let mut command = namespace.command(binary);
                command.args(["agent", "--log-format", "json"]).args(arguments);
                command
            }
            Self::Pod { root, pod } => container(root, pod, node, namespace, arguments, out)?,
        };
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("duplicate the log's descriptor")?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| match self {
                Self::Binary(path) => {
                    format!("start the agent {}: give its path with --agent", path.display())
                }
                Self::Pod { .. } => "start crun: install it with `cargo xtask setup`".to_owned(),
            })
    }
}

/// The manifest gives its own arguments, `agent` among them; a runtime of the OCI does the rest.
fn container(
    root: &Path,
    pod: &Pod,
    node: &str,
    namespace: &Namespace,
    arguments: &[String],
    out: &Path,
) -> Result<Command> {
    let out = out.canonicalize().with_context(|| format!("resolve {}", out.display()))?;
    let root = root.canonicalize().with_context(|| format!("resolve {}", root.display()))?;
    let (bundle, state) = (out.join(format!("bundle-{node}")), out.join(format!("state-{node}")));
    std::fs::create_dir_all(&state).with_context(|| format!("create {}", state.display()))?;
    pod.bundle(&bundle, &root, &state, &out, arguments)?;
    let mut command = namespace.command("crun");
    // The lab has no cgroups of its own to hand out; /run is private to it.
    command.args(["--root", "/run/crun", "--cgroup-manager=disabled", "run", "--bundle"]);
    command.arg(bundle).arg(format!("rollrace-{node}-{}", arguments.len()));
    Ok(command)
}
