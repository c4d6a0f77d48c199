//! Readiness probes, as a kubelet makes them: HTTP GETs and TCP connections from the node, commands in
//! the pod.

use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::container;
use crate::net::{Namespace, http_get};

/// What a probe does.
#[derive(Debug)]
enum Check {
    HttpGet { address: SocketAddr, path: String },
    TcpSocket(SocketAddr),
    Exec(Command),
}

/// A readiness probe with Kubernetes' defaults filled in.
#[derive(Debug)]
pub struct ReadinessProbe {
    check: Check,
    initial_delay: Duration,
    period: Duration,
    timeout: Duration,
    success_threshold: u32,
    failure_threshold: u32,
}

impl ReadinessProbe {
    /// The readiness probe of a container, if its spec has one.
    pub fn of(container: &Container, pod: IpAddr, namespace: &Namespace) -> Result<Option<Self>> {
        let probe = container.readiness_probe.as_ref();
        probe.map(|probe| Self::new(container, probe, pod, namespace)).transpose()
    }

    fn new(
        container: &Container,
        probe: &Probe,
        pod: IpAddr,
        namespace: &Namespace,
    ) -> Result<Self> {
        let seconds = |value: Option<i32>, default: u32| {
            value.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default)
        };
        Ok(Self {
            check: check(container, probe, pod, namespace)?,
            initial_delay: Duration::from_secs(seconds(probe.initial_delay_seconds, 0).into()),
            period: Duration::from_secs(seconds(probe.period_seconds, 10).into()),
            timeout: Duration::from_secs(seconds(probe.timeout_seconds, 1).into()),
            success_threshold: seconds(probe.success_threshold, 1),
            failure_threshold: seconds(probe.failure_threshold, 3),
        })
    }

    /// Probes for ever and tells each change of readiness. Ends when nobody listens.
    pub async fn run(mut self, changes: mpsc::Sender<bool>) {
        sleep(self.initial_delay).await;
        let mut ticks = interval(self.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut ready, mut row) = (false, 0);
        loop {
            ticks.tick().await;
            if self.succeeds().await == ready {
                row = 0;
                continue;
            }
            row += 1;
            if row >= if ready { self.failure_threshold } else { self.success_threshold } {
                ready = !ready;
                row = 0;
                if changes.send(ready).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn succeeds(&mut self) -> bool {
        let check = async {
            match &mut self.check {
                Check::HttpGet { address, path } => http_get(*address, path)
                    .await
                    .is_ok_and(|answer| (200..400).contains(&answer.status)),
                Check::TcpSocket(address) => TcpStream::connect(*address).await.is_ok(),
                Check::Exec(command) => command.status().await.is_ok_and(|status| status.success()),
            }
        };
        timeout(self.timeout, check).await.unwrap_or(false)
    }
}

fn check(
    container: &Container,
    probe: &Probe,
    pod: IpAddr,
    namespace: &Namespace,
) -> Result<Check> {
    if let Some(get) = &probe.http_get {
        let address = SocketAddr::new(pod, port(container, &get.port)?);
        let path = get.path.clone().unwrap_or_else(|| "/".to_owned());
        return Ok(Check::HttpGet { address, path });
    }
    if let Some(socket) = &probe.tcp_socket {
        return Ok(Check::TcpSocket(SocketAddr::new(pod, port(container, &socket.port)?)));
    }
    let words = probe.exec.as_ref().and_then(|exec| exec.command.as_deref());
    let command = words.and_then(|words| container::command(words, namespace));
    let mut command = command.with_context(|| {
        let name = &container.name;
        format!("the lab's kubelet knows httpGet, tcpSocket and exec probes (container {name})")
    })?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Check::Exec(command))
}

fn port(container: &Container, port: &IntOrString) -> Result<u16> {
    match port {
        IntOrString::Int(port) => u16::try_from(*port).context("the probe's port"),
        IntOrString::String(name) => named_port(container, name),
    }
}

fn named_port(container: &Container, name: &str) -> Result<u16> {
    for port in container.ports.as_deref().unwrap_or_default() {
        if port.name.as_deref() == Some(name) {
            return u16::try_from(port.container_port).context("a container's port");
        }
    }
    bail!("the container {} has no port named {name}", container.name)
}
