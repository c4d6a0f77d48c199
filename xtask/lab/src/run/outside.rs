//! A client outside the cluster: in a namespace of its own on the fabric, and routes to it and back.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use super::clients::{ClientPod, client_command};
use super::cluster::{Cluster, POD_LOGS};
use super::workload::APPLICATION;
use crate::cli::{Dial, RunArgs};
use crate::net::{Family, Namespace, add_address, run_tool};
use crate::proxy::endpoints_file;

/// Its name, and that of its namespace.
const NAME: &str = "outside";

/// A running client outside the cluster.
pub struct Outside {
    /// What it is called, and where its record is.
    pub client: ClientPod,
    child: Mutex<Child>,
    _namespace: Namespace,
}

impl Outside {
    /// Makes its namespace, and starts it.
    pub async fn start(
        cluster: &Cluster,
        args: &RunArgs,
        out: &Path,
        targets: &[SocketAddr],
    ) -> Result<Self> {
        let namespace = namespace(cluster, args).await.context("make the client's namespace")?;
        let log = out.join(format!("client-{NAME}.jsonl"));
        let first = &cluster.nodes.first().context("a cluster has a node")?.addresses.name;
        let endpoints =
            (args.dial == Dial::Endpoints).then(|| endpoints_file(&out.join(POD_LOGS), first));
        let command = client_command((targets, APPLICATION), args, &log, endpoints.as_deref())?;
        let program = std::env::current_exe().context("find the lab's own executable")?;
        let program = program.to_str().context("the lab's path is not UTF-8")?;
        let child = namespace
            .command(program)
            .args(&command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start the client outside")?;
        let client = ClientPod { name: NAME.to_owned(), node: NAME.to_owned(), log };
        Ok(Self { client, child: Mutex::new(child), _namespace: namespace })
    }

    /// Waits for its end.
    pub async fn ended(&self) -> Result<()> {
        let status = self.child.lock().await.wait().await.context("wait for the client outside")?;
        ensure!(status.success(), "the client outside failed ({status})");
        Ok(())
    }
}

/// On the fabric, with addresses that are none of the cluster's, and routes to nodes and pods.
async fn namespace(cluster: &Cluster, args: &RunArgs) -> Result<Namespace> {
    let plan = args.address_plan();
    let namespace = Namespace::create(NAME).await?;
    if plan.has_v6() {
        namespace.sysctl(&[crate::net::ADDRESSES_AT_ONCE])?;
    }
    let mut ip = Command::new("ip");
    ip.args(["-batch", "-"]);
    let link = format!(
        "link add {NAME} type veth peer name eth0 netns {NAME}\nlink set {NAME} master br0 up\n"
    );
    run_tool(ip, &link).await?;
    let mut lines = vec!["link set eth0 up".to_owned()];
    for address in plan.outside() {
        let addition = add_address(address, Family::of(address).host_prefix(), "eth0");
        lines.push(addition.trim_end().to_owned());
    }
    for node in &cluster.nodes {
        let node = &node.addresses;
        for address in &node.addresses {
            let host = Family::of(*address).host_prefix();
            lines.push(format!("route add {address}/{host} dev eth0"));
        }
        for (range, via) in node.pod_cidrs().into_iter().zip(&node.addresses) {
            lines.push(format!("route add {range} via {via} dev eth0"));
        }
    }
    namespace.ip_batch(&(lines.join("\n") + "\n")).await?;
    for node in &cluster.nodes {
        let route = |address: IpAddr| {
            let host = Family::of(address).host_prefix();
            format!("route add {address}/{host} dev eth0")
        };
        let lines: Vec<String> = plan.outside().into_iter().map(route).collect();
        node.namespace.ip_batch(&(lines.join("\n") + "\n")).await?;
    }
    Ok(namespace)
}
