//! Services in the shape of kube-proxy's iptables mode.

use std::{fmt::Write as _, net::SocketAddr};

use super::{Ip, Namespace};

/// A Service of one port.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its own address.
    pub address: SocketAddr,
    /// Its port on every node, if any.
    pub node_port: Option<u16>,
    /// Its endpoints, each taking an equal share; none of them: rejected.
    pub backends: Vec<SocketAddr>,
}

impl Service {
    /// A Service without node port.
    pub fn new(address: SocketAddr, backends: &[SocketAddr]) -> Self {
        Self { address, node_port: None, backends: backends.to_vec() }
    }

    fn rules(&self) -> String {
        let (ip, port) = (self.address.ip(), self.address.port());
        let mut text = String::from(
            "*nat\n\
             :KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n:KUBE-POSTROUTING - [0:0]\n\
             :KUBE-MARK-MASQ - [0:0]\n:KUBE-SVC-A - [0:0]\n:KUBE-EXT-A - [0:0]\n",
        );
        for index in 0..self.backends.len() {
            line(&mut text, format_args!(":KUBE-SEP-{index} - [0:0]"));
        }
        text += "-A PREROUTING -j KUBE-SERVICES\n\
                 -A OUTPUT -j KUBE-SERVICES\n\
                 -A POSTROUTING -j KUBE-POSTROUTING\n\
                 -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n\
                 -A KUBE-POSTROUTING -j MARK --xor-mark 0x4000\n\
                 -A KUBE-POSTROUTING -j MASQUERADE --random-fully\n\
                 -A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n";
        if !self.backends.is_empty() {
            line(
                &mut text,
                format_args!("-A KUBE-SERVICES -d {ip} -p tcp -m tcp --dport {port} -j KUBE-SVC-A"),
            );
        }
        if let Some(node_port) = self.node_port {
            line(
                &mut text,
                format_args!("-A KUBE-NODEPORTS -p tcp -m tcp --dport {node_port} -j KUBE-EXT-A"),
            );
            text += "-A KUBE-EXT-A -j KUBE-MARK-MASQ\n-A KUBE-EXT-A -j KUBE-SVC-A\n";
        }
        text += "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n";
        for (index, backend) in self.backends.iter().enumerate() {
            let left = self.backends.len() - index;
            let choice = match u32::try_from(left).unwrap_or(u32::MAX) {
                1 => String::new(),
                left => format!(
                    "-m statistic --mode random --probability {:.8} ",
                    1.0 / f64::from(left)
                ),
            };
            line(&mut text, format_args!("-A KUBE-SVC-A {choice}-j KUBE-SEP-{index}"));
            line(
                &mut text,
                format_args!("-A KUBE-SEP-{index} -s {} -j KUBE-MARK-MASQ", backend.ip()),
            );
            line(
                &mut text,
                format_args!(
                    "-A KUBE-SEP-{index} -p tcp -m tcp -j DNAT --to-destination {backend}"
                ),
            );
        }
        text += "COMMIT\n*filter\n:KUBE-SERVICES - [0:0]\n\
                 -A INPUT -m conntrack --ctstate NEW -j KUBE-SERVICES\n\
                 -A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES\n\
                 -A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES\n";
        if self.backends.is_empty() {
            line(
                &mut text,
                format_args!("-A KUBE-SERVICES -d {ip} -p tcp -m tcp --dport {port} -j REJECT"),
            );
        }
        text + "COMMIT\n"
    }
}

impl Namespace {
    /// Programs the Service in one transaction, in place of what was there of its version of IP.
    pub fn program(&self, service: &Service) {
        self.tool(restore(Ip::of(service.address.ip())), &[], &service.rules());
    }

    /// Replaces the filter table by these rules.
    pub fn filter(&self, ip: Ip, rules: &str) {
        self.tool(restore(ip), &[], &format!("*filter\n{rules}\nCOMMIT\n"));
    }
}

fn restore(ip: Ip) -> &'static str {
    if ip == Ip::V4 { "iptables-restore" } else { "ip6tables-restore" }
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("a String takes everything");
}
