//! kube-proxy's nftables mode: the text of `nft -f -`, one transaction.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

use super::{NodePort, ServicePort};
use crate::net::Family;

/// The table of a family with the chains and maps that stay.
pub fn base(family: Family) -> String {
    match family {
        Family::V4 => BASE.to_owned(),
        Family::V6 => BASE
            .replace("table ip ", "table ip6 ")
            .replace("ipv4_addr", "ipv6_addr")
            .replace("ip daddr != 127.0.0.0/8", "ip6 daddr != ::1")
            .replace("ip daddr", "ip6 daddr"),
    }
}

/// The table of IPv4.
const BASE: &str = "\
table ip kube-proxy {
    set cluster-ips { type ipv4_addr; }
    map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; }
    map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
    map no-endpoint-nodeports { type inet_proto . inet_service : verdict; }
    map service-nodeports { type inet_proto . inet_service : verdict; }

    chain mark-for-masquerade { mark set mark or 0x4000; }
    chain masquerading {
        mark and 0x4000 == 0 return
        mark set mark xor 0x4000
        masquerade fully-random
    }
    chain reject-chain { reject; }
    chain services {
        ip daddr . meta l4proto . th dport vmap @service-ips
        fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @service-nodeports
    }
    chain service-endpoints-check {
        ip daddr . meta l4proto . th dport vmap @no-endpoint-services
    }
    chain nodeport-endpoints-check {
        fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @no-endpoint-nodeports
    }
    chain cluster-ips-check { ip daddr @cluster-ips reject; }

    chain filter-input {
        type filter hook input priority -110; policy accept;
        ct state new jump nodeport-endpoints-check
        ct state new jump service-endpoints-check
    }
    chain filter-forward {
        type filter hook forward priority -110; policy accept;
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }
    chain filter-output {
        type filter hook output priority -110; policy accept;
        ct state new jump service-endpoints-check
    }
    chain filter-output-post-dnat {
        type filter hook output priority -90; policy accept;
        ct state new jump cluster-ips-check
    }
    chain nat-prerouting { type nat hook prerouting priority dstnat; policy accept; jump services; }
    chain nat-output { type nat hook output priority -100; policy accept; jump services; }
    chain nat-postrouting { type nat hook postrouting priority srcnat; policy accept; jump masquerading; }
}
";

/// What a family's table, and its expressions, begin with.
fn ip(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

/// The text that programs all Services of a family, and the chains it makes. Chains and sets of before that
/// are not needed any more go in the same transaction, once nothing refers to them.
pub fn render(
    family: Family,
    services: &[&ServicePort],
    cluster_cidr: &str,
    before: &BTreeSet<String>,
) -> (String, BTreeSet<String>) {
    let mut chains = BTreeSet::new();
    let mut rules = String::new();
    for service in services.iter().filter(|service| !service.is_headless()) {
        // Sets come before the rules that name them.
        rules += &endpoints(service, &mut chains);
        rules += &elements(service);
        if !service.backends.is_empty() {
            rules += &balance(service, cluster_cidr, &mut chains);
            if let Some(node_port) = &service.node_port {
                rules += &from_outside(service, node_port, cluster_cidr, &mut chains);
            }
        }
    }
    let mut text = String::new();
    let ip = ip(family);
    line(&mut text, format_args!("flush set {ip} kube-proxy cluster-ips"));
    for map in ["service-ips", "no-endpoint-services", "service-nodeports", "no-endpoint-nodeports"]
    {
        line(&mut text, format_args!("flush map {ip} kube-proxy {map}"));
    }
    for chain in chains.union(before) {
        line(&mut text, format_args!("add chain {ip} kube-proxy {chain}"));
        line(&mut text, format_args!("flush chain {ip} kube-proxy {chain}"));
    }
    text += &rules;
    for chain in before.difference(&chains) {
        line(&mut text, format_args!("delete chain {ip} kube-proxy {chain}"));
    }
    (text, chains)
}

fn elements(service: &ServicePort) -> String {
    let (address, port) = (service.virtual_address.ip(), service.virtual_address.port());
    let ip = ip(service.family());
    let none = |drops: bool| if drops { "drop" } else { "goto reject-chain" }.to_owned();
    let (map, verdict) = if service.backends.is_empty() {
        ("no-endpoint-services", none(service.drops))
    } else {
        ("service-ips", format!("goto {}", service_chain(service)))
    };
    let mut text = format!(
        "add element {ip} kube-proxy cluster-ips {{ {address} }}\n\
         add element {ip} kube-proxy {map} {{ {address} . tcp . {port} : {verdict} }}\n"
    );
    let Some(node_port) = &service.node_port else { return text };
    let mut add = |map: &str, verdict: &str| {
        let port = node_port.port;
        line(
            &mut text,
            format_args!("add element {ip} kube-proxy {map} {{ tcp . {port} : {verdict} }}"),
        );
    };
    if node_port.drops(service) || service.backends.is_empty() {
        add("no-endpoint-nodeports", &none(node_port.drops(service)));
    }
    if !service.backends.is_empty() {
        add("service-nodeports", &format!("goto {}", outside_chain(service)));
    }
    text
}

fn balance(service: &ServicePort, cluster_cidr: &str, chains: &mut BTreeSet<String>) -> String {
    let (address, port) = (service.virtual_address.ip(), service.virtual_address.port());
    let ip = ip(service.family());
    let chain = service_chain(service);
    let mut text = format!(
        "add rule {ip} kube-proxy {chain} {ip} daddr {address} tcp dport {port} {ip} saddr != {cluster_cidr} jump mark-for-masquerade\n"
    );
    text += &shares(service, &chain, &service.backends);
    chains.insert(chain);
    text
}

/// The node port: with a policy of Local, who comes from the cluster has all endpoints nevertheless.
fn from_outside(
    service: &ServicePort,
    node_port: &NodePort,
    cluster_cidr: &str,
    chains: &mut BTreeSet<String>,
) -> String {
    let ip = ip(service.family());
    let (outer, inner) = (outside_chain(service), service_chain(service));
    let mut text = String::new();
    let mut rule = |rule: &str| {
        line(&mut text, format_args!("add rule {ip} kube-proxy {outer} {rule}"));
    };
    if let Some(local) = &node_port.local {
        rule(&format!("{ip} saddr {cluster_cidr} goto {inner}"));
        rule("fib saddr type local jump mark-for-masquerade");
        rule(&format!("fib saddr type local goto {inner}"));
        text += &shares(service, &outer, local);
    } else {
        rule("jump mark-for-masquerade");
        rule(&format!("goto {inner}"));
    }
    chains.insert(outer);
    text
}

/// Each backend's share of a chain's connections; who has been to one before goes there again.
fn shares(service: &ServicePort, chain: &str, backends: &[SocketAddr]) -> String {
    let ip = ip(service.family());
    let mut text = String::new();
    if service.affinity.is_some() {
        for backend in backends {
            let (set, endpoint) =
                (affinity_set(service, *backend), endpoint_chain(service, *backend));
            line(
                &mut text,
                format_args!("add rule {ip} kube-proxy {chain} {ip} saddr @{set} goto {endpoint}"),
            );
        }
    }
    let choices: Vec<String> = backends
        .iter()
        .enumerate()
        .map(|(index, backend)| format!("{index} : goto {}", endpoint_chain(service, *backend)))
        .collect();
    if !choices.is_empty() {
        line(
            &mut text,
            format_args!(
                "add rule {ip} kube-proxy {chain} numgen random mod {} vmap {{ {} }}",
                choices.len(),
                choices.join(", ")
            ),
        );
    }
    text
}

/// The chains of all endpoints that any chain of the Service goes to.
fn endpoints(service: &ServicePort, chains: &mut BTreeSet<String>) -> String {
    let ip = ip(service.family());
    let address_type = match service.family() {
        Family::V4 => "ipv4_addr",
        Family::V6 => "ipv6_addr",
    };
    let (mut sets, mut rules) = (String::new(), String::new());
    for backend in service.all_backends() {
        let endpoint = endpoint_chain(service, backend);
        let mut rule = |rule: &str| {
            line(&mut rules, format_args!("add rule {ip} kube-proxy {endpoint} {rule}"));
        };
        rule(&format!("{ip} saddr {} jump mark-for-masquerade", backend.ip()));
        if let Some(seconds) = service.affinity {
            let set = affinity_set(service, backend);
            line(
                &mut sets,
                format_args!(
                    "add set {ip} kube-proxy {set} {{ type {address_type}; flags dynamic,timeout; timeout {seconds}s; }}"
                ),
            );
            rule(&format!("update @{set} {{ {ip} saddr }}"));
        }
        rule(&format!("meta l4proto tcp dnat to {backend}"));
        chains.insert(endpoint);
    }
    sets + &rules
}

/// `affinity-<hash>`: where clients have been; it stays when its endpoint goes, and empties by time.
fn affinity_set(service: &ServicePort, backend: SocketAddr) -> String {
    format!("affinity-{}", &service.hash(Some(backend))[..8])
}

/// `external-<hash>-<namespace>/<name>/tcp/<port>`.
fn outside_chain(service: &ServicePort) -> String {
    format!("external-{}", suffix(service, None))
}

/// `service-<hash>-<namespace>/<name>/tcp/<port>`.
fn service_chain(service: &ServicePort) -> String {
    format!("service-{}", suffix(service, None))
}

/// `endpoint-<hash>-<namespace>/<name>/tcp/<port>__<address>/<port>`, dots for the colons of an
/// address: a chain's name has none.
fn endpoint_chain(service: &ServicePort, backend: SocketAddr) -> String {
    let (address, port) = (backend.ip().to_string().replace(':', "."), backend.port());
    format!("endpoint-{}__{address}/{port}", suffix(service, Some(backend)))
}

fn suffix(service: &ServicePort, backend: Option<SocketAddr>) -> String {
    let hash = service.hash(backend);
    let (name, port) = service.name.split_once(':').unwrap_or((&service.name, ""));
    format!("{}-{name}/tcp/{port}", &hash[..8])
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(text, "{arguments}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIDR: &str = "10.244.0.0/16";

    #[test]
    fn chains_that_are_not_needed_are_deleted_after_the_rules_that_used_them() {
        let service = |backends: &[&str]| ServicePort {
            name: "shop/api:http".to_owned(),
            virtual_address: "10.96.0.80:80".parse().expect("an address"),
            drops: false,
            node_port: None,
            affinity: None,
            backends: backends.iter().map(|b| b.parse().expect("an address")).collect(),
        };
        let both = ["10.244.1.2:8080", "10.244.2.2:8080"];
        let (text, before) = render(Family::V4, &[&service(&both)], CIDR, &BTreeSet::new());
        assert!(text.contains("numgen random mod 2"));
        let (text, chains) = render(Family::V4, &[&service(&both[..1])], CIDR, &before);
        assert_eq!(chains.len(), 2);
        let deletion = text.find("delete chain").expect("a deletion");
        assert!(text.find("numgen random mod 1").expect("a rule") < deletion);
    }
    #[test]
    fn the_table_of_ipv6_names_nothing_of_ipv4() {
        let service = ServicePort {
            name: "shop/api:http".to_owned(),
            virtual_address: "[fd00:10:96::50]:80".parse().expect("an address"),
            drops: false,
            node_port: None,
            affinity: None,
            backends: vec!["[fd00:10:244:1::2]:8080".parse().expect("an address")],
        };
        let (rules, chains) = render(Family::V6, &[&service], "fd00:10:244::/56", &BTreeSet::new());
        assert!(rules.contains("dnat to [fd00:10:244:1::2]:8080"));
        assert!(rules.contains("ip6 saddr fd00:10:244:1::2 jump mark-for-masquerade"));
        assert!(chains.iter().any(|chain| chain.ends_with("__fd00.10.244.1..2/8080")));
        for text in [base(Family::V6), rules] {
            let mut words = text.split_whitespace();
            assert!(!words.any(|word| word == "ip" || word.starts_with("ipv4")), "{text}");
        }
    }
}
