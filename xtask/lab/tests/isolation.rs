//! A lab that is killed leaves nothing behind: no process, no namespace, no link, no rule.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_lab_killed_under_load_leaves_nothing_behind() {
    // The lab itself, three servers, two clients, and what listens to conntrack on each node.
    killed_after("load started", 8);
}

#[test]
fn a_lab_killed_while_it_is_built_leaves_nothing_behind() {
    killed_after("pod_started", 2);
}

/// Kills the outside process with SIGKILL once its journal has a word, and looks around.
fn killed_after(word: &str, least_processes: usize) {
    if !is_root() {
        eprintln!("skipped: making network namespaces needs root");
        return;
    }
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(word.replace(' ', "-"));
    if out.exists() {
        fs::remove_dir_all(&out).expect("remove the last run's directory");
    }
    let before = Surroundings::look();
    let mut lab = start_lab(&out);
    wait_until("the lab comes so far", || {
        fs::read_to_string(out.join("journal.jsonl")).is_ok_and(|text| text.contains(word))
    });
    let inside = descendants(lab.0.id());
    assert!(inside.len() >= least_processes, "{} processes", inside.len());
    let namespaces: BTreeSet<PathBuf> = inside.iter().filter_map(|id| network_of(*id)).collect();
    assert!(namespaces.len() > 1, "the lab has namespaces of its own");

    lab.0.kill().expect("kill the outside process");
    lab.0.wait().expect("wait for the outside process");

    wait_until("every process of the lab is gone", || inside.iter().all(|id| !is_running(*id)));
    let left: Vec<u32> = processes()
        .into_iter()
        .filter(|id| network_of(*id).is_some_and(|n| n != own_network() && namespaces.contains(&n)))
        .collect();
    assert!(left.is_empty(), "processes in the lab's namespaces: {left:?}");
    assert_eq!(Surroundings::look(), before);
}

/// What must be the same after a run as before it.
#[derive(Debug, PartialEq)]
struct Surroundings {
    namespaces: String,
    links: String,
    rules: String,
    mounts: usize,
}

impl Surroundings {
    fn look() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
        Self {
            namespaces: output("ip", &["netns", "list"]),
            links: output("ip", &["-brief", "link"]),
            rules: output("nft", &["list", "ruleset"]),
            mounts: mounts.lines().count(),
        }
    }
}

/// A lab's outside process, killed when a test fails, too.
struct Lab(Child);

impl Drop for Lab {
    fn drop(&mut self) {
        // Both fail only when the process has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn start_lab(out: &Path) -> Lab {
    let child = Command::new(env!("CARGO_BIN_EXE_rollrace-lab"))
        .args(["run", "--setup", "readiness", "--mode", "fresh", "--seconds", "60"])
        .args(["--no-agent", "--out"])
        .arg(out)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("start the lab");
    Lab(child)
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("run a network tool");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_root() -> bool {
    fs::read_to_string("/proc/self/status")
        .expect("the process's own status")
        .lines()
        .any(|line| line.strip_prefix("Uid:").is_some_and(|ids| ids.trim().starts_with("0\t")))
}

fn processes() -> Vec<u32> {
    fs::read_dir("/proc")
        .expect("the processes")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// All processes below one.
fn descendants(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> =
        processes().into_iter().filter_map(|id| Some((id, parent_of(id)?))).collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(id, _)| *id));
        next += 1;
    }
    found.split_off(1)
}

fn parent_of(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn is_running(id: u32) -> bool {
    // A zombie that its parent has not yet waited for runs no more.
    fs::read_to_string(format!("/proc/{id}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_none_or(|(_, rest)| !rest.starts_with('Z')))
}

fn network_of(id: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{id}/ns/net")).ok()
}

fn own_network() -> PathBuf {
    fs::read_link("/proc/self/ns/net").expect("the own network namespace")
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain until {what}");
        sleep(Duration::from_millis(50));
    }
}
