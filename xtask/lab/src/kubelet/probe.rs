//! Readiness probes: HTTP GETs from the node, as a kubelet sends them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::net::http_get;

/// A readiness probe with Kubernetes' defaults filled in.
#[derive(Debug, Clone)]
pub struct ReadinessProbe {
    address: SocketAddr,
    path: String,
    initial_delay: Duration,
    period: Duration,
    timeout: Duration,
    success_threshold: u32,
    failure_threshold: u32,
}

impl ReadinessProbe {
    /// The readiness probe of a container, if its spec has one.
    pub fn of(container: &Container, pod: IpAddr) -> Result<Option<Self>> {
        container.readiness_probe.as_ref().map(|probe| Self::new(container, probe, pod)).transpose()
    }

    fn new(container: &Container, probe: &Probe, pod: IpAddr) -> Result<Self> {
        let get = probe.http_get.as_ref().with_context(|| {
            format!("the lab's kubelet knows httpGet probes only (container {})", container.name)
        })?;
        let port = match &get.port {
            IntOrString::Int(port) => u16::try_from(*port).context("the probe's port")?,
            IntOrString::String(name) => named_port(container, name)?,
        };
        let seconds = |value: Option<i32>, default: u32| {
            value.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default)
        };
        Ok(Self {
            address: SocketAddr::new(pod, port),
            path: get.path.clone().unwrap_or_else(|| "/".to_owned()),
            initial_delay: Duration::from_secs(seconds(probe.initial_delay_seconds, 0).into()),
            period: Duration::from_secs(seconds(probe.period_seconds, 10).into()),
            timeout: Duration::from_secs(seconds(probe.timeout_seconds, 1).into()),
            success_threshold: seconds(probe.success_threshold, 1),
            failure_threshold: seconds(probe.failure_threshold, 3),
        })
    }

    /// Probes for ever and tells each change of readiness. Ends when nobody listens.
    pub async fn run(self, changes: mpsc::Sender<bool>) {
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

    async fn succeeds(&self) -> bool {
        matches!(
            timeout(self.timeout, http_get(self.address, &self.path)).await,
            Ok(Ok(answer)) if (200..400).contains(&answer.status)
        )
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
