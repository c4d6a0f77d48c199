//! The rules in the kernel: what is programmed now, and the record of what came and went.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::Result;
use jiff::Timestamp;
use tokio::process::Command;

use super::{ServicePort, iptables, nftables};
use crate::cli::ProxyMode;
use crate::journal::{Event, Journal};
use crate::net::{NodeAddresses, run_tool};

/// What one node's proxy has programmed. Its tools run in the namespace of the calling thread.
pub struct Programmed {
    node: String,
    cluster_cidr: String,
    mode: ProxyMode,
    journal: Journal,
    chains: BTreeSet<String>,
    backends: BTreeSet<SocketAddr>,
}

impl Programmed {
    /// Makes the chains that stay, and hooks them in.
    pub async fn new(node: &NodeAddresses, mode: ProxyMode, journal: Journal) -> Result<Self> {
        match mode {
            ProxyMode::Iptables => load(mode, iptables::BASE).await?,
            ProxyMode::Nftables => load(mode, nftables::BASE).await?,
        }
        Ok(Self {
            node: node.name.clone(),
            cluster_cidr: node.plan.cluster_cidr(),
            mode,
            journal,
            chains: BTreeSet::new(),
            backends: BTreeSet::new(),
        })
    }

    /// Programs all Services anew, in one transaction.
    pub async fn program(&mut self, services: &[ServicePort]) -> Result<()> {
        let (text, chains) = match self.mode {
            ProxyMode::Iptables => iptables::render(services, &self.cluster_cidr, &self.chains),
            ProxyMode::Nftables => nftables::render(services, &self.cluster_cidr, &self.chains),
        };
        load(self.mode, &text).await?;
        let now = Timestamp::now();
        self.chains = chains;
        let backends: BTreeSet<SocketAddr> =
            services.iter().flat_map(|s| s.backends.iter().copied()).collect();
        for backend in backends.difference(&self.backends).copied() {
            let event = Event::RuleAdded { node: self.node.clone(), backend };
            self.journal.note_at(now, event);
        }
        for backend in self.backends.difference(&backends).copied() {
            let event = Event::RuleGone { node: self.node.clone(), backend };
            self.journal.note_at(now, event);
        }
        self.backends = backends;
        Ok(())
    }
}

async fn load(mode: ProxyMode, text: &str) -> Result<()> {
    let command = match mode {
        ProxyMode::Iptables => {
            let mut command = Command::new("iptables-restore");
            command.args(["--wait", "--noflush"]);
            command
        }
        ProxyMode::Nftables => {
            let mut command = Command::new("nft");
            command.args(["-f", "-"]);
            command
        }
    };
    run_tool(command, text).await
}
