//! The fabric: the lab's own namespace with a bridge that joins the nodes' uplinks.

use anyhow::Result;
use tokio::process::Command;

use super::{AddressPlan, Namespace, NodeAddresses, run_tool};

/// Makes the bridge and the nodes' namespaces with their uplinks and routes to each other.
pub async fn build_fabric(plan: AddressPlan, nodes: &[NodeAddresses]) -> Result<Vec<Namespace>> {
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "0")?;
    ip_batch(&format!(
        "link set lo up\n\
         link add br0 type bridge stp_state 0 forward_delay 0\n\
         link set br0 up\n\
         address add {}/24 dev br0\n",
        plan.fabric()
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
    let mut lines = format!(
        "address add {}/24 dev eth0\nlink set eth0 up\nroute add default via {}\n",
        node.address,
        node.plan.fabric()
    );
    for other in nodes.iter().filter(|other| other.number != node.number) {
        lines +=
            &["route add ", &other.pod_cidr(), " via ", &other.address.to_string(), "\n"].concat();
    }
    namespace.ip_batch(&lines).await
}

async fn ip_batch(lines: &str) -> Result<()> {
    let mut ip = Command::new("ip");
    ip.args(["-batch", "-"]);
    run_tool(ip, lines).await
}
