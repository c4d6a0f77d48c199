//! The node: kernel, BTF, tracepoints, capabilities, lockdown, conntrack, network namespace.
//!
//! Read from files alone, so that it can be run where nothing else works.

use std::{fs, path::Path};

use super::{Check, Health};
use crate::feature;

/// The floor: what the programs and the reads of them were made for.
const FLOOR: (u32, u32) = (6, 1);
/// Numbers of `include/uapi/linux/capability.h`.
const CAPABILITIES: [(&str, u32, &str); 3] = [
    ("CAP_BPF", 39, "load the programs and make the maps"),
    ("CAP_PERFMON", 38, "attach to tracepoints and read kernel memory"),
    ("CAP_NET_ADMIN", 12, "read the conntrack table"),
];
/// A capability that stands for the first two on its own (`capable()` in the kernel's bpf code).
const SYS_ADMIN: u32 = 21;
/// Where raw tracepoints are listed; the name and its group.
const TRACEPOINTS: [(&str, &str); 3] =
    [("net", "net_dev_queue"), ("skb", "kfree_skb"), ("sock", "inet_sock_set_state")];

/// Checks this machine, seen through `root` (`/`, but for tests).
pub fn node(root: &Path) -> Vec<Check> {
    let read =
        |path: &str| fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_owned());
    let release = read("proc/sys/kernel/osrelease");
    let mut checks = vec![kernel(release.as_deref()), reads(release.as_deref())];
    checks.push(btf(root));
    checks.push(tracepoints(root));
    checks.push(capabilities(read("proc/self/status").as_deref()));
    checks.push(lockdown(read("sys/kernel/security/lockdown").as_deref()));
    checks.push(conntrack(
        read("proc/sys/net/netfilter/nf_conntrack_count").as_deref(),
        read("proc/sys/net/netfilter/nf_conntrack_max").as_deref(),
    ));
    checks
        .push(timers(read("proc/sys/net/netfilter/nf_conntrack_tcp_timeout_syn_sent").as_deref()));
    checks.push(namespace(root));
    checks
}

/// How the programs can read packets.
fn reads(release: Option<&str>) -> Check {
    let what = "reads of packets";
    match release.and_then(version) {
        Some(version) if version < feature::PLAIN_LOADS_SINCE => Check::ok(
            what,
            format!(
                "plain loads need {}; {}",
                feature::PLAIN_LOADS.since,
                feature::PLAIN_LOADS.without
            ),
        ),
        Some(_) => Check::ok(what, "plain loads"),
        None => Check::not_ok(Health::Unknown, what, "its version cannot be read", "see kernel"),
    }
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn kernel(release: Option<&str>) -> Check {
    let what = "kernel";
    let Some(release) = release else {
        return Check::not_ok(
            Health::Broken,
            what,
            "not Linux",
            "the agent runs on Linux nodes only",
        );
    };
    let Some(version) = version(release) else {
        return Check::not_ok(Health::Unknown, what, release, "its version cannot be read");
    };
    if version >= FLOOR {
        Check::ok(what, release)
    } else {
        let remedy = format!("the agent needs Linux {}.{} or later", FLOOR.0, FLOOR.1);
        Check::not_ok(Health::Broken, what, release, remedy)
    }
}

fn btf(root: &Path) -> Check {
    if root.join("sys/kernel/btf/vmlinux").exists() {
        let module = root.join("sys/kernel/btf/nf_conntrack").exists();
        let found = if module { "vmlinux, and nf_conntrack as a module" } else { "vmlinux" };
        return Check::ok("BTF", found);
    }
    Check::not_ok(
        Health::Broken,
        "BTF",
        "/sys/kernel/btf/vmlinux is missing",
        "struct offsets come from it: a kernel with CONFIG_DEBUG_INFO_BTF=y, and /sys mounted",
    )
}

fn tracepoints(root: &Path) -> Check {
    let folders = ["sys/kernel/tracing/events", "sys/kernel/debug/tracing/events"];
    let Some(folder) =
        folders.iter().map(|folder| root.join(folder)).find(|folder| folder.is_dir())
    else {
        return Check::not_ok(
            Health::Unknown,
            "tracepoints",
            "tracefs is not mounted here, or needs root",
            "the agent itself does not need it; mount -t tracefs tracefs /sys/kernel/tracing to see",
        );
    };
    let missing: Vec<&str> = TRACEPOINTS
        .iter()
        .filter(|(group, name)| !folder.join(group).join(name).exists())
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        Check::ok("tracepoints", TRACEPOINTS.map(|(_, name)| name).join(", "))
    } else {
        let found = format!("{} missing", missing.join(", "));
        Check::not_ok(
            Health::Broken,
            "tracepoints",
            found,
            "a kernel with CONFIG_TRACEPOINTS and networking",
        )
    }
}

fn capabilities(status: Option<&str>) -> Check {
    let what = "capabilities";
    let effective = status
        .and_then(|status| status.lines().find_map(|line| line.strip_prefix("CapEff:")))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let Some(effective) = effective else {
        return Check::not_ok(
            Health::Unknown,
            what,
            "/proc/self/status cannot be read",
            "mount /proc",
        );
    };
    let has = |number: u32| effective & (1 << number) != 0;
    let missing: Vec<String> = CAPABILITIES
        .iter()
        .filter(|(_, number, _)| !(has(*number) || *number >= 38 && has(SYS_ADMIN)))
        .map(|(name, _, why)| format!("{name} (to {why})"))
        .collect();
    if missing.is_empty() {
        return Check::ok(what, CAPABILITIES.map(|(name, ..)| name).join(", "));
    }
    let found = format!("missing: {}", missing.join(", "));
    let remedy = "run it as root, or in the DaemonSet's container: its securityContext adds them";
    Check::not_ok(Health::Broken, what, found, remedy)
}

fn lockdown(state: Option<&str>) -> Check {
    let what = "lockdown";
    match state {
        None => Check::ok(what, "none (no such security module)"),
        Some(state) if state.contains("[confidentiality]") => Check::not_ok(
            Health::Broken,
            what,
            "confidentiality",
            "it forbids BPF programs to read kernel memory: boot with lockdown=integrity or none",
        ),
        Some(state) => {
            let mode = state.split(['[', ']']).nth(1).unwrap_or(state);
            Check::ok(what, mode)
        }
    }
}

fn conntrack(count: Option<&str>, limit: Option<&str>) -> Check {
    let what = "conntrack";
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
    match (number(count), number(limit)) {
        (Some(count), Some(limit)) if limit > 0 && count * 10 >= limit * 9 => Check::not_ok(
            Health::Warning,
            what,
            format!("{count} of {limit} entries"),
            "nearly full: it drops new connections at random when it is; raise nf_conntrack_max",
        ),
        (Some(count), Some(limit)) => Check::ok(what, format!("{count} of {limit} entries")),
        _ => Check::not_ok(
            Health::Warning,
            what,
            "nf_conntrack is not loaded in this network namespace",
            "Services cannot be told apart without it; a proxy's first NAT rule loads it, and the \
             agent takes it up then",
        ),
    }
}

fn timers(syn_sent: Option<&str>) -> Check {
    let what = "conntrack timers";
    match syn_sent.and_then(|text| text.parse::<u64>().ok()) {
        Some(seconds) => {
            let found = format!("unanswered SYNs pin their NAT for {seconds} s");
            Check::ok(what, found)
        }
        None => Check::not_ok(
            Health::Unknown,
            what,
            "nf_conntrack_tcp_timeout_syn_sent cannot be read",
            "it is there when nf_conntrack is loaded",
        ),
    }
}

/// A process in the node's own network namespace shares it with PID 1 of the host's PID namespace.
fn namespace(root: &Path) -> Check {
    let what = "network namespace";
    let of = |process: &str| fs::read_link(root.join(format!("proc/{process}/ns/net"))).ok();
    match (of("self"), of("1")) {
        (Some(own), Some(first)) if own == first => Check::ok(what, "that of PID 1"),
        (Some(_), Some(_)) => Check::not_ok(
            Health::Warning,
            what,
            "another than that of PID 1",
            "on a node the agent needs the node's own: hostNetwork: true in its pod",
        ),
        _ => Check::not_ok(
            Health::Unknown,
            what,
            "/proc/1/ns/net cannot be read",
            "run it as root to compare",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_below_the_floor_is_refused_by_name() {
        let health = |release: &str| kernel(Some(release)).health;
        assert_eq!(health("6.1.0-28-amd64"), Health::Ok);
        assert_eq!(health("6.18.1"), Health::Ok);
        assert_eq!(health("5.15.0-91-generic"), Health::Broken);
        assert_eq!(kernel(None).health, Health::Broken);
    }

    #[test]
    fn a_kernel_without_plain_loads_works_and_what_that_costs_is_said() {
        let check = reads(Some("6.1.0-28-amd64"));
        assert_eq!(check.health, Health::Ok);
        assert!(
            check.found.contains("Linux 6.2") && check.found.contains("costs"),
            "{}",
            check.found
        );
        assert_eq!(reads(Some("6.12.1")).found, "plain loads");
    }

    #[test]
    fn a_missing_capability_is_named_with_what_it_is_for() {
        let status = |mask: &str| capabilities(Some(&format!("Name:\tx\nCapEff:\t{mask}\n")));
        assert_eq!(status("000001ffffffffff").health, Health::Ok);
        // BPF, PERFMON and NET_ADMIN.
        assert_eq!(status("000000c000001000").health, Health::Ok);
        let check = status("0000008000001000");
        assert_eq!(check.health, Health::Broken);
        assert!(
            check.found.contains("CAP_PERFMON") && !check.found.contains("CAP_BPF"),
            "{}",
            check.found
        );
    }

    #[test]
    fn lockdown_for_confidentiality_forbids_the_reads() {
        assert_eq!(lockdown(Some("none integrity [confidentiality]")).health, Health::Broken);
        assert_eq!(lockdown(Some("none [integrity] confidentiality")).found, "integrity");
        assert_eq!(lockdown(None).health, Health::Ok);
    }

    #[test]
    fn an_empty_machine_breaks_nothing_but_the_checks() {
        let checks = node(Path::new("/nonexistent"));
        assert_eq!(super::super::worst(&checks), Health::Broken);
        assert!(checks.iter().all(|check| check.health == Health::Ok || !check.remedy.is_empty()));
    }
}
