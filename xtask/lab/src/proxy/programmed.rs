//! The rules in the kernel: what is programmed now, and the record of what came and went. Each
//! address family has its own, as in kube-proxy: they come one after the other.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::Result;
use jiff::Timestamp;
use tokio::process::Command;

use super::{ServicePort, iptables, nftables};
use crate::cli::ProxyMode;
use crate::journal::{Event, Journal};
use crate::net::{Family, NodeAddresses, run_tool};

/// What one node's proxy has programmed. Its tools run in the namespace of the calling thread.
pub struct Programmed {
    node: String,
    mode: ProxyMode,
    journal: Journal,
    families: Vec<FamilyRules>,
}

/// The rules of one address family.
struct FamilyRules {
    family: Family,
    cluster_cidr: String,
    chains: BTreeSet<String>,
    backends: BTreeSet<SocketAddr>,
}

impl Programmed {
    /// Makes the chains that stay, and hooks them in.
    pub async fn new(node: &NodeAddresses, mode: ProxyMode, journal: Journal) -> Result<Self> {
        let mut families = Vec::new();
        for family in node.plan.families().iter().copied() {
            match mode {
                ProxyMode::Iptables => load(mode, family, iptables::BASE).await?,
                ProxyMode::Nftables => load(mode, family, &nftables::base(family)).await?,
            }
            families.push(FamilyRules {
                family,
                cluster_cidr: node.plan.cluster_cidr(family),
                chains: BTreeSet::new(),
                backends: BTreeSet::new(),
            });
        }
        Ok(Self { node: node.name.clone(), mode, journal, families })
    }

    /// Programs all Services anew, in one transaction a family.
    pub async fn program(&mut self, services: &[ServicePort]) -> Result<()> {
        for rules in &mut self.families {
            let services: Vec<&ServicePort> =
                services.iter().filter(|s| s.family() == rules.family).collect();
            let (text, chains) = match self.mode {
                ProxyMode::Iptables => {
                    iptables::render(&services, &rules.cluster_cidr, &rules.chains)
                }
                ProxyMode::Nftables => {
                    nftables::render(rules.family, &services, &rules.cluster_cidr, &rules.chains)
                }
            };
            load(self.mode, rules.family, &text).await?;
            let now = Timestamp::now();
            rules.chains = chains;
            let backends: BTreeSet<SocketAddr> =
                services.iter().flat_map(|s| s.backends.iter().copied()).collect();
            for backend in backends.difference(&rules.backends).copied() {
                let event = Event::RuleAdded { node: self.node.clone(), backend };
                self.journal.note_at(now, event);
            }
            for backend in rules.backends.difference(&backends).copied() {
                let event = Event::RuleGone { node: self.node.clone(), backend };
                self.journal.note_at(now, event);
            }
            rules.backends = backends;
        }
        Ok(())
    }
}

async fn load(mode: ProxyMode, family: Family, text: &str) -> Result<()> {
    let command = match mode {
        ProxyMode::Iptables => {
            let mut command = Command::new(match family {
                Family::V4 => "iptables-restore",
                Family::V6 => "ip6tables-restore",
            });
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
