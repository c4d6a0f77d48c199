//! The fabric: the lab's own namespace with a bridge that joins the nodes' uplinks. What goes to a pod
//! that is gone ends here: silently in IPv4, in IPv6 with "no route" to those that it can reach, the
//! nodes.

use std::net::IpAddr;

use anyhow::{Context, Result};
use tokio::process::Command;

use super::{ADDRESSES_AT_ONCE, AddressPlan, Namespace, NodeAddresses, on_link, run_tool};

/// Makes the bridge and the nodes' namespaces with their uplinks and routes to each other.
pub async fn build_fabric(plan: AddressPlan, nodes: &[NodeAddresses]) -> Result<Vec<Namespace>> {
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "0")?;
    if plan.has_v6() {
        // This namespace's own; a node's and a pod's see to it themselves.
        std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0")
            .context("write /proc/sys/net/ipv6: the kernel needs IPv6 for this lab")?;
    }
    let addresses: Vec<IpAddr> = plan.families().iter().map(|f| plan.fabric(*f)).collect();
    ip_batch(&format!(
        "link set lo up\n\
         link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
         link set br0 up\n\
         {}",
        on_link(&addresses, "br0")
    ))
    .await?;
    // The fabric is a switch: no netfilter for what it bridges.
    for family in ["ip", "ip6"] {
        let path = format!("/proc/sys/net/bridge/bridge-nf-call-{family}tables");
        if std::path::Path::new(&path).exists() {
            std::fs::write(&path, "0")?;
        }
    }
    let mut namespaces = Vec::new();
    for node in nodes {
        let namespace = Namespace::create(&node.name).await?;
        if plan.has_v6() {
            namespace.sysctl(&[ADDRESSES_AT_ONCE, ("net/ipv6/conf/all/forwarding", "1")])?;
        }
        ip_batch(&format!(
            "link add {name} type veth peer name eth0 netns {name}\n\
             link set {name} master br0 up\n",
            name = node.name
        ))
        .await?;
        configure(&namespace, node, nodes).await?;
        namespaces.push(namespace);
    }
    Ok(namespaces)
}

async fn configure(
    namespace: &Namespace,
    node: &NodeAddresses,
    nodes: &[NodeAddresses],
) -> Result<()> {
    namespace.sysctl(&[
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv4/conf/all/rp_filter", "0"),
        ("net/ipv4/conf/default/rp_filter", "0"),
        ("net/ipv4/conf/all/send_redirects", "0"),
        ("net/ipv4/conf/default/send_redirects", "0"),
    ])?;
    let mut lines = on_link(&node.addresses, "eth0") + "link set eth0 up\n";
    let gateways = node.plan.families().iter().map(|family| node.plan.fabric(*family));
    lines.extend(gateways.map(|gateway| format!("route add default via {gateway}\n")));
    for other in nodes.iter().filter(|other| other.number != node.number) {
        let ranges = other.pod_cidrs().into_iter().zip(&other.addresses);
        lines.extend(ranges.map(|(range, via)| format!("route add {range} via {via}\n")));
    }
    namespace.ip_batch(&lines).await
}

async fn ip_batch(lines: &str) -> Result<()> {
    let mut ip = Command::new("ip");
    ip.args(["-batch", "-"]);
    run_tool(ip, lines).await
}
