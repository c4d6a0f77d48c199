//! A second way into the server, on an address of its own: it can be shut, made silent and led to
//! another server without anybody else's noticing.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Handle;
use crate::net::run_tool;

/// The entrance; shut when it is dropped.
#[derive(Debug)]
pub struct Entrance {
    address: SocketAddr,
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) stop: CancellationToken,
    pub(super) task: JoinHandle<()>,
}

impl Entrance {
    /// Opens it.
    pub async fn new(address: SocketAddr, server: &Handle) -> Result<Self> {
        let entrance = Self { address, open: Mutex::default() };
        entrance.lead_to(server).await?;
        Ok(entrance)
    }

    /// As a client dials it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Opens it to a server, the first time or again.
    pub async fn lead_to(&self, server: &Handle) -> Result<()> {
        self.shut().await;
        let listener = TcpListener::bind(self.address)
            .await
            .with_context(|| format!("listen on {} for the agents", self.address))?;
        *self.open.lock().await = Some(server.serve_also(listener));
        Ok(())
    }

    /// Cuts every connection, and refuses new ones.
    pub async fn shut(&self) {
        if let Some(open) = self.open.lock().await.take() {
            open.stop.cancel();
            if let Err(error) = open.task.await {
                tracing::warn!(%error, "an entrance of the API server failed");
            }
        }
    }

    /// Drops every packet in and out, or no more.
    pub async fn set_silent(&self, silent: bool) -> Result<()> {
        let (act, port) = (if silent { "-I" } else { "-D" }, self.address.port().to_string());
        for (chain, side) in [("INPUT", "--dport"), ("OUTPUT", "--sport")] {
            let mut iptables = Command::new("iptables");
            iptables.args(["-w", act, chain, "-p", "tcp", side, &port, "-j", "DROP"]);
            run_tool(iptables, "").await?;
        }
        Ok(())
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        if let Some(open) = self.open.get_mut() {
            open.stop.cancel();
        }
    }
}
