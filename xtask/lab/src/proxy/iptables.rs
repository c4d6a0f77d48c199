//! kube-proxy's iptables mode: the text of `iptables-restore --noflush`, or of `ip6tables-restore`,
//! which has the same chains.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

use super::ServicePort;

/// The chains that stay, hooked in once.
pub const BASE: &str = "\
*filter
:KUBE-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
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
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
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
    for service in services {
        if service.backends.is_empty() {
            filter += &reject(service);
        } else {
            nat += &balance(service, cluster_cidr, &mut chains);
        }
    }
    let mut text = format!("*filter\n:KUBE-SERVICES - [0:0]\n{filter}COMMIT\n*nat\n");
    text += ":KUBE-SERVICES - [0:0]\n";
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

fn reject(service: &ServicePort) -> String {
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
    for (index, backend) in service.backends.iter().enumerate() {
        let endpoint_chain = format!("KUBE-SEP-{}", service.hash(Some(*backend)));
        let choice = choice(service.backends.len() - index);
        line(
            &mut text,
            format_args!(
                "-A {service_chain} -m comment --comment \"{name} -> {backend}\" {choice}-j {endpoint_chain}"
            ),
        );
        text += &endpoint(name, &endpoint_chain, *backend);
        chains.insert(endpoint_chain);
    }
    chains.insert(service_chain);
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

fn endpoint(name: &str, chain: &str, backend: SocketAddr) -> String {
    format!(
        "-A {chain} -m comment --comment \"{name}\" -s {} -j KUBE-MARK-MASQ\n\
         -A {chain} -m comment --comment \"{name}\" -m tcp -p tcp -j DNAT --to-destination {backend}\n",
        backend.ip()
    )
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
    fn an_ipv6_backend_is_bracketed_where_a_port_follows_and_bare_elsewhere() {
        let service = ServicePort {
            name: "shop/api:http".to_owned(),
            virtual_address: "[fd00:10:96::50]:80".parse().expect("an address"),
            drops: false,
            backends: vec!["[fd00:10:244:1::2]:8080".parse().expect("an address")],
        };
        let (text, _) = render(&[&service], "fd00:10:244::/56", &BTreeSet::new());
        assert!(text.contains("-d fd00:10:96::50 --dport 80 ! -s fd00:10:244::/56 "));
        assert!(text.contains("-s fd00:10:244:1::2 -j KUBE-MARK-MASQ"));
        assert!(text.contains("--to-destination [fd00:10:244:1::2]:8080"));
    }
}
