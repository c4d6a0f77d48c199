//! kube-proxy's IPVS mode: a virtual server for each Service, its address on a dummy device, and iptables
//! rules for what must be masqueraded. A server that leaves gets weight 0, and stays for the connections
//! that it has: kube-proxy looks once a minute whether they have ended.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::process::Command;

use super::ServicePort;
use crate::net::{Family, run_tool};

/// The device that makes the Services' addresses local ones.
const DEVICE: &str = "kube-ipvs0";

/// What kube-proxy sets (`pkg/proxy/ipvs`). The kernel's default of `conn_reuse_mode` stays since 5.9.
const SYSCTLS: [&str; 3] = ["conntrack", "expire_nodest_conn", "expire_quiescent_template"];

/// The virtual servers of one address family, with their servers and weights.
#[derive(Debug, Default)]
pub struct Servers(BTreeMap<SocketAddr, BTreeMap<SocketAddr, u8>>);

/// Loads the modules, and prepares the namespace of the calling thread.
pub async fn prepare() -> Result<()> {
    let mut modprobe = Command::new("modprobe");
    modprobe.args(["--all", "ip_vs", "ip_vs_rr", "dummy"]);
    run_tool(modprobe, "").await.context("load IPVS: not every kernel has it")?;
    let mut ip = Command::new("ip");
    ip.args(["link", "add", DEVICE, "type", "dummy"]);
    run_tool(ip, "").await?;
    for name in SYSCTLS {
        let path = format!("/proc/sys/net/ipv4/vs/{name}");
        fs::write(&path, "1").with_context(|| format!("write 1 to {path}"))?;
    }
    Ok(())
}

impl Servers {
    /// Programs all Services of a family.
    pub async fn program(
        &mut self,
        family: Family,
        services: &[&ServicePort],
        cluster_cidr: &str,
    ) -> Result<()> {
        let (addresses, servers) = self.change(services);
        let mut ip = Command::new("ip");
        ip.args(["-batch", "-"]);
        run_tool(ip, &addresses).await?;
        let mut ipvsadm = Command::new("ipvsadm");
        ipvsadm.arg("--restore");
        run_tool(ipvsadm, &servers).await.context("run ipvsadm (install ipvsadm)")?;
        let mut restore = Command::new(match family {
            Family::V4 => "iptables-nft-restore",
            Family::V6 => "ip6tables-nft-restore",
        });
        restore.args(["--wait", "--noflush"]);
        run_tool(restore, &masquerade(services, cluster_cidr)).await
    }

    /// Lines for `ip -batch` and for `ipvsadm --restore` that make it so.
    fn change(&mut self, services: &[&ServicePort]) -> (String, String) {
        let (mut addresses, mut lines) = (String::new(), String::new());
        for service in services.iter().filter(|service| !service.is_headless()) {
            let virtual_address = service.virtual_address;
            let servers = self.0.entry(virtual_address).or_insert_with(|| {
                let (ip, host) = (virtual_address.ip(), service.family().host_prefix());
                let at_once = if ip.is_ipv6() { " nodad" } else { "" };
                line(&mut addresses, format_args!("address add {ip}/{host} dev {DEVICE}{at_once}"));
                let persistent = match service.affinity {
                    Some(seconds) => format!(" -p {seconds}"),
                    None => String::new(),
                };
                line(&mut lines, format_args!("-A -t {virtual_address} -s rr{persistent}"));
                BTreeMap::new()
            });
            for backend in &service.backends {
                let weight = servers.insert(*backend, 1);
                let action = match weight {
                    None => "-a",
                    Some(0) => "-e",
                    Some(_) => continue,
                };
                line(
                    &mut lines,
                    format_args!("{action} -t {virtual_address} -r {backend} -m -w 1"),
                );
            }
            let leaving = servers
                .iter_mut()
                .filter(|(backend, weight)| **weight > 0 && !service.backends.contains(backend));
            for (backend, weight) in leaving {
                *weight = 0;
                line(&mut lines, format_args!("-e -t {virtual_address} -r {backend} -m -w 0"));
            }
        }
        (addresses, lines)
    }
}

/// Who is to be masqueraded: clients that are no pods, and pods that reach themselves.
fn masquerade(services: &[&ServicePort], cluster_cidr: &str) -> String {
    let mut text = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-LOOP-BACK - [0:0]\n".to_owned();
    for service in services.iter().filter(|service| !service.is_headless()) {
        let (ip, port) = (service.virtual_address.ip(), service.virtual_address.port());
        line(
            &mut text,
            format_args!(
                "-A KUBE-SERVICES ! -s {cluster_cidr} -d {ip} -p tcp -m tcp --dport {port} -j KUBE-MARK-MASQ"
            ),
        );
        for backend in &service.backends {
            let (ip, port) = (backend.ip(), backend.port());
            line(
                &mut text,
                format_args!(
                    "-A KUBE-LOOP-BACK -s {ip} -d {ip} -p tcp -m tcp --dport {port} -j MASQUERADE"
                ),
            );
        }
    }
    text + "COMMIT\n"
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(text, "{arguments}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_leaves_gets_weight_0_and_its_weight_back_when_it_comes_again() {
        let service = |backends: &[&str]| ServicePort {
            name: "shop/api:http".to_owned(),
            virtual_address: "10.96.0.80:80".parse().expect("an address"),
            drops: false,
            node_port: None,
            affinity: None,
            backends: backends.iter().map(|b| b.parse().expect("an address")).collect(),
        };
        let mut servers = Servers::default();
        let both = ["10.244.1.2:8080", "10.244.2.2:8080"];
        let (addresses, lines) = servers.change(&[&service(&both)]);
        assert_eq!(addresses, "address add 10.96.0.80/32 dev kube-ipvs0\n");
        assert_eq!(lines.lines().filter(|line| line.starts_with("-a ")).count(), 2);
        let (addresses, lines) = servers.change(&[&service(&both[..1])]);
        assert_eq!(addresses, "");
        assert_eq!(lines, "-e -t 10.96.0.80:80 -r 10.244.2.2:8080 -m -w 0\n");
        let (_, lines) = servers.change(&[&service(&both)]);
        assert_eq!(lines, "-e -t 10.96.0.80:80 -r 10.244.2.2:8080 -m -w 1\n");
    }
}
