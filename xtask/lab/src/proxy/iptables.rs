//! kube-proxy's iptables mode: the text of `iptables-restore --noflush`, or of `ip6tables-restore`,
//! which has the same chains.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

use super::{NodePort, ServicePort};

/// The chains that stay, hooked in once.
pub const BASE: &str = "\
*filter
:KUBE-SERVICES - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
:KUBE-LOOP-BACK - [0:0]
-A KUBE-POSTROUTING -m comment --comment \"Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose\" -j KUBE-LOOP-BACK
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
COMMIT
";

/// The text that programs all Services of a family, and the chains it makes. Chains of before that are not
/// needed any more are emptied and removed in the same transaction.
pub fn render(
    services: &[&ServicePort],
    cluster_cidr: &str,
    before: &BTreeSet<String>,
) -> (String, BTreeSet<String>) {
    let mut chains = BTreeSet::new();
    let mut filter = String::new();
    let mut nat = String::new();
    for service in services.iter().filter(|service| !service.is_headless()) {
        if service.backends.is_empty() {
            filter += &refuse(service);
        } else {
            nat += &balance(service, cluster_cidr, &mut chains);
        }
        if let Some(node_port) = &service.node_port {
            filter += &refuse_outside(service, node_port);
            if !service.backends.is_empty() {
                nat += &from_outside(service, node_port, cluster_cidr, &mut chains);
            }
        }
        nat += &endpoints(service, &mut chains);
    }
    nat += "-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n";
    let mut text = format!(
        "*filter\n:KUBE-SERVICES - [0:0]\n:KUBE-EXTERNAL-SERVICES - [0:0]\n{filter}COMMIT\n*nat\n"
    );
    text += ":KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n";
    for chain in chains.union(before) {
        line(&mut text, format_args!(":{chain} - [0:0]"));
    }
    text += &nat;
    for chain in before.difference(&chains) {
        line(&mut text, format_args!("-X {chain}"));
    }
    text += "COMMIT\n";
    (text, chains)
}

fn refuse(service: &ServicePort) -> String {
    let address = service.virtual_address;
    let (what, target) =
        if service.drops { ("no local endpoints", "DROP") } else { ("no endpoints", "REJECT") };
    format!(
        "-A KUBE-SERVICES -m comment --comment \"{} has {what}\" -m tcp -p tcp -d {} --dport {} -j {target}\n",
        service.name,
        address.ip(),
        address.port()
    )
}

/// What dials the node port and finds no endpoint that its policy allows.
fn refuse_outside(service: &ServicePort, node_port: &NodePort) -> String {
    let (what, target) = if node_port.drops(service) {
        ("no local endpoints", "DROP")
    } else if service.backends.is_empty() {
        ("no endpoints", "REJECT")
    } else {
        return String::new();
    };
    format!(
        "-A KUBE-EXTERNAL-SERVICES -m comment --comment \"{} has {what}\" -m addrtype --dst-type LOCAL -m tcp -p tcp --dport {} -j {target}\n",
        service.name, node_port.port
    )
}

fn balance(service: &ServicePort, cluster_cidr: &str, chains: &mut BTreeSet<String>) -> String {
    let name = &service.name;
    let (ip, port) = (service.virtual_address.ip(), service.virtual_address.port());
    let service_chain = format!("KUBE-SVC-{}", service.hash(None));
    let mut text = String::new();
    line(
        &mut text,
        format_args!(
            "-A KUBE-SERVICES -m comment --comment \"{name} cluster IP\" -m tcp -p tcp -d {ip} --dport {port} -j {service_chain}"
        ),
    );
    line(
        &mut text,
        format_args!(
            "-A {service_chain} -m comment --comment \"{name} cluster IP\" -m tcp -p tcp -d {ip} --dport {port} ! -s {cluster_cidr} -j KUBE-MARK-MASQ"
        ),
    );
    text += &shares(service, &service_chain, &service.backends);
    chains.insert(service_chain);
    text
}

/// The node port: with a policy of Local, who comes from the cluster has all endpoints nevertheless.
fn from_outside(
    service: &ServicePort,
    node_port: &NodePort,
    cluster_cidr: &str,
    chains: &mut BTreeSet<String>,
) -> String {
    let (name, hash) = (&service.name, service.hash(None));
    let (outer, inner, here) =
        (format!("KUBE-EXT-{hash}"), format!("KUBE-SVC-{hash}"), format!("KUBE-SVL-{hash}"));
    let mut text = format!(
        "-A KUBE-NODEPORTS -m comment --comment \"{name}\" -m tcp -p tcp --dport {} -j {outer}\n",
        node_port.port
    );
    if let Some(local) = &node_port.local {
        for rule in [
            format!("-A {outer} -s {cluster_cidr} -j {inner}"),
            format!("-A {outer} -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ"),
            format!("-A {outer} -m addrtype --src-type LOCAL -j {inner}"),
        ] {
            line(&mut text, format_args!("{rule}"));
        }
        if !local.is_empty() {
            line(&mut text, format_args!("-A {outer} -j {here}"));
            text += &shares(service, &here, local);
            chains.insert(here);
        }
    } else {
        line(&mut text, format_args!("-A {outer} -j KUBE-MARK-MASQ"));
        line(&mut text, format_args!("-A {outer} -j {inner}"));
    }
    chains.insert(outer);
    text
}

/// Each backend's share of a chain's connections; who has been to one before goes there again.
fn shares(service: &ServicePort, chain: &str, backends: &[SocketAddr]) -> String {
    let name = &service.name;
    let mut text = String::new();
    let jump = |backend: &SocketAddr| format!("KUBE-SEP-{}", service.hash(Some(*backend)));
    if let Some(seconds) = service.affinity {
        for backend in backends {
            let endpoint = jump(backend);
            line(
                &mut text,
                format_args!(
                    "-A {chain} -m comment --comment \"{name} -> {backend}\" -m recent --name {endpoint} --rcheck --seconds {seconds} --reap -j {endpoint}"
                ),
            );
        }
    }
    for (index, backend) in backends.iter().enumerate() {
        let choice = choice(backends.len() - index);
        line(
            &mut text,
            format_args!(
                "-A {chain} -m comment --comment \"{name} -> {backend}\" {choice}-j {}",
                jump(backend)
            ),
        );
    }
    text
}

/// Each endpoint takes its share of what the ones before it have left.
fn choice(left: usize) -> String {
    if left == 1 {
        return String::new();
    }
    let left = u32::try_from(left).unwrap_or(u32::MAX);
    format!("-m statistic --mode random --probability {:.10} ", 1.0 / f64::from(left))
}

/// The chains of all endpoints that any chain of the Service jumps to.
fn endpoints(service: &ServicePort, chains: &mut BTreeSet<String>) -> String {
    let name = &service.name;
    let mut text = String::new();
    for backend in service.all_backends() {
        let chain = format!("KUBE-SEP-{}", service.hash(Some(backend)));
        let remember = match service.affinity {
            Some(_) => format!("-m recent --name {chain} --set "),
            None => String::new(),
        };
        line(
            &mut text,
            format_args!(
                "-A {chain} -m comment --comment \"{name}\" -s {} -j KUBE-MARK-MASQ",
                backend.ip()
            ),
        );
        line(
            &mut text,
            format_args!(
                "-A {chain} -m comment --comment \"{name}\" -m tcp -p tcp {remember}-j DNAT --to-destination {backend}"
            ),
        );
        chains.insert(chain);
    }
    text
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(text, "{arguments}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIDR: &str = "10.244.0.0/16";

    fn service(backends: &[&str]) -> ServicePort {
        ServicePort {
            name: "shop/api:http".to_owned(),
            virtual_address: "10.96.0.80:80".parse().expect("an address"),
            drops: false,
            node_port: None,
            affinity: None,
            backends: backends.iter().map(|b| b.parse().expect("an address")).collect(),
        }
    }

    #[test]
    fn each_endpoint_takes_its_share_of_the_rest() {
        let backends = ["10.244.1.2:8080", "10.244.1.3:8080", "10.244.2.2:8080"];
        let (text, chains) = render(&[&service(&backends)], CIDR, &BTreeSet::new());
        assert!(text.contains("--probability 0.3333333333"));
        assert!(text.contains("--probability 0.5000000000"));
        assert_eq!(chains.len(), 4);
    }

    #[test]
    fn a_service_without_endpoints_is_rejected_and_its_chains_removed() {
        let (_, before) = render(&[&service(&["10.244.1.2:8080"])], CIDR, &BTreeSet::new());
        let (text, chains) = render(&[&service(&[])], CIDR, &before);
        assert!(chains.is_empty());
        assert!(text.contains("has no endpoints"));
        assert_eq!(text.matches("-X KUBE-").count(), 2);
    }

    #[test]
    fn a_node_port_of_policy_local_has_the_nodes_own_endpoints_and_drops_without_any() {
        let mut service = service(&["10.244.1.2:8080", "10.244.2.2:8080"]);
        let here = vec!["10.244.1.2:8080".parse().expect("an address")];
        service.node_port = Some(NodePort { port: 30080, local: Some(here) });
        let (text, _) = render(&[&service], CIDR, &BTreeSet::new());
        let rules = |text: &str, chain: &str| {
            text.lines().filter(|line| line.starts_with(&format!("-A {chain}"))).count()
        };
        assert_eq!((rules(&text, "KUBE-SVL-"), rules(&text, "KUBE-EXTERNAL-SERVICES")), (1, 0));
        service.node_port = Some(NodePort { port: 30080, local: Some(Vec::new()) });
        let (text, _) = render(&[&service], CIDR, &BTreeSet::new());
        assert_eq!(rules(&text, "KUBE-SVL-"), 0);
        assert!(text.contains("--dport 30080 -j DROP"), "{text}");
    }

    #[test]
    fn an_ipv6_backend_is_bracketed_where_a_port_follows_and_bare_elsewhere() {
        let service = ServicePort {
            name: "shop/api:http".to_owned(),
            virtual_address: "[fd00:10:96::50]:80".parse().expect("an address"),
            drops: false,
            node_port: None,
            affinity: None,
            backends: vec!["[fd00:10:244:1::2]:8080".parse().expect("an address")],
        };
        let (text, _) = render(&[&service], "fd00:10:244::/56", &BTreeSet::new());
        assert!(text.contains("-d fd00:10:96::50 --dport 80 ! -s fd00:10:244::/56 "));
        assert!(text.contains("-s fd00:10:244:1::2 -j KUBE-MARK-MASQ"));
        assert!(text.contains("--to-destination [fd00:10:244:1::2]:8080"));
    }
}
