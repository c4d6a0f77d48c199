//! The rules in the kernel: what is programmed now, and the record of what came and went. Each
//! address family has its own, as in kube-proxy: they come one after the other.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;
use tokio::process::Command;

use super::{ServicePort, iptables, ipvs, nftables};
use crate::cli::ProxyMode;
use crate::journal::{Event, Journal};
use crate::net::{Family, NodeAddresses, run_tool};

/// Where a node's proxy writes the endpoints that it knows, for clients that dial these: in the folder of
/// the containers' output.
pub fn endpoints_file(logs: &Path, node: &str) -> PathBuf {
    logs.join(format!("endpoints-{node}.txt"))
}

/// What one node's proxy has programmed. Its tools run in the namespace of the calling thread.
pub struct Programmed {
    node: String,
    mode: ProxyMode,
    journal: Journal,
    families: Vec<FamilyRules>,
    endpoints: PathBuf,
}

/// The rules of one address family.
struct FamilyRules {
    family: Family,
    cluster_cidr: String,
    chains: BTreeSet<String>,
    servers: ipvs::Servers,
    backends: BTreeSet<SocketAddr>,
}

impl Programmed {
    /// Makes the chains that stay, and hooks them in.
    pub async fn new(
        node: &NodeAddresses,
        mode: ProxyMode,
        logs: &Path,
        journal: Journal,
    ) -> Result<Self> {
        let endpoints = endpoints_file(logs, &node.name);
        write_endpoints(&endpoints, std::iter::empty())?;
        if mode == ProxyMode::Ipvs {
            ipvs::prepare().await?;
        }
        let mut families = Vec::new();
        for family in node.plan.families().iter().copied() {
            match mode {
                ProxyMode::Iptables | ProxyMode::IptablesLegacy | ProxyMode::Ipvs => {
                    load(mode, family, iptables::BASE).await?;
                }
                ProxyMode::Nftables => load(mode, family, &nftables::base(family)).await?,
                ProxyMode::Socket => {}
            }
            families.push(FamilyRules {
                family,
                cluster_cidr: node.plan.cluster_cidr(family),
                chains: BTreeSet::new(),
                servers: ipvs::Servers::default(),
                backends: BTreeSet::new(),
            });
        }
        Ok(Self { node: node.name.clone(), mode, journal, families, endpoints })
    }

    /// Programs all Services anew, in one transaction a family.
    pub async fn program(&mut self, services: &[ServicePort]) -> Result<()> {
        write_endpoints(&self.endpoints, services.iter().flat_map(|s| s.backends.iter()))?;
        for rules in &mut self.families {
            let services: Vec<&ServicePort> =
                services.iter().filter(|s| s.family() == rules.family).collect();
            match self.mode {
                ProxyMode::Iptables | ProxyMode::IptablesLegacy => {
                    let (text, chains) =
                        iptables::render(&services, &rules.cluster_cidr, &rules.chains);
                    load(self.mode, rules.family, &text).await?;
                    rules.chains = chains;
                }
                ProxyMode::Nftables => {
                    let (text, chains) = nftables::render(
                        rules.family,
                        &services,
                        &rules.cluster_cidr,
                        &rules.chains,
                    );
                    load(self.mode, rules.family, &text).await?;
                    rules.chains = chains;
                }
                ProxyMode::Ipvs => {
                    rules.servers.program(rules.family, &services, &rules.cluster_cidr).await?;
                }
                ProxyMode::Socket => {}
            }
            let now = Timestamp::now();
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

/// In one step: a client reads it at any time.
fn write_endpoints<'a>(path: &Path, endpoints: impl Iterator<Item = &'a SocketAddr>) -> Result<()> {
    let lines: Vec<String> = endpoints.map(ToString::to_string).collect();
    let text = lines.join("\n");
    let new = path.with_extension("new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("write {}", path.display()))
}

async fn load(mode: ProxyMode, family: Family, text: &str) -> Result<()> {
    let restore = |v4, v6| {
        let mut command = Command::new(match family {
            Family::V4 => v4,
            Family::V6 => v6,
        });
        command.args(["--wait", "--noflush"]);
        command
    };
    let command = match mode {
        ProxyMode::IptablesLegacy => restore("iptables-legacy-restore", "ip6tables-legacy-restore"),
        ProxyMode::Nftables => {
            let mut command = Command::new("nft");
            command.args(["-f", "-"]);
            command
        }
        ProxyMode::Iptables | ProxyMode::Ipvs | ProxyMode::Socket => {
            restore("iptables-nft-restore", "ip6tables-nft-restore")
        }
    };
    run_tool(command, text).await
}
