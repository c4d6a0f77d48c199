//! A container: a real process in the pod's network namespace.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Container as Spec;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::net::Namespace;

/// A command inside a pod, as its spec says it. `rollrace-lab` stands for this very binary.
pub fn command(words: &[String], namespace: &Namespace) -> Option<Command> {
    let (program, arguments) = words.split_first()?;
    let program = if program == "rollrace-lab" { "/proc/self/exe" } else { program.as_str() };
    let mut command = namespace.command(program);
    command.args(arguments).kill_on_drop(true);
    Some(command)
}

/// A running container process.
#[derive(Debug)]
pub struct Container {
    child: Child,
}

impl Container {
    /// Starts the command of a container's spec.
    pub fn start(spec: &Spec, pod: &str, namespace: &Namespace, log: &Path) -> Result<Self> {
        let words = spec.command.as_deref().unwrap_or_default();
        let mut command = command(words, namespace).with_context(|| {
            format!("the container {} of {pod} has no command: the lab has no images", spec.name)
        })?;
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("open {}", log.display()))?;
        command
            .args(spec.args.as_deref().unwrap_or_default())
            .env("HOSTNAME", pod)
            .stdin(std::process::Stdio::null())
            .stdout(output.try_clone().context("duplicate the log's descriptor")?)
            .stderr(output);
        for variable in spec.env.as_deref().unwrap_or_default() {
            command.env(&variable.name, variable.value.as_deref().unwrap_or_default());
        }
        let child = command
            .spawn()
            .with_context(|| format!("start the container {} of {pod}", spec.name))?;
        Ok(Self { child })
    }

    /// Waits for the exit; the code is 128 + signal when a signal ended it. Cancel safe.
    pub async fn exited(&mut self) -> Result<i32> {
        let status = self.child.wait().await.context("wait for the container")?;
        Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()))
    }

    /// Sends a signal; a container that has exited meanwhile is no error.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let Some(id) = self.child.id() else {
            return Ok(());
        };
        let id = i32::try_from(id).context("a process id")?;
        match kill(Pid::from_raw(id), signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("send {signal} to process {id}")),
        }
    }
}
