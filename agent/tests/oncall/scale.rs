//! Many agents.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use serde_json::Value;

use crate::cluster::{Agent, Cluster, Served};

/// The bar: so long on-call may wait.
const BAR: Duration = Duration::from_secs(3);
/// A machine with other work to do is given so many tries.
const TRIES: usize = 4;
/// The most memory that a command may take, in KiB.
const MEMORY_KIB: i64 = 128 << 10;

#[test]
fn five_hundred_agents_are_reported_and_explained_in_three_seconds_and_within_bounds() {
    let cluster = Cluster::new(vec![Agent::Answers; 500], |_| 2).serve("scale");
    for command in [["report", "-o", "json"], ["explain", "deploy/api", "-ojson"]] {
        let took = (0..TRIES).map(|_| run(&cluster, command)).find(|took| *took < BAR);
        assert!(took.is_some(), "{} never took less than {BAR:?}", command[0]);
    }
    // The largest of all commands that this process has run.
    let used = getrusage(UsageWho::RUSAGE_CHILDREN).expect("what the commands used").max_rss();
    println!("at most {} MiB", used >> 10);
    assert!(used < MEMORY_KIB, "{} MiB", used >> 10);
}

fn run(cluster: &Served, command: [&str; 3]) -> Duration {
    let begun = Instant::now();
    let output = cluster.run(&command);
    let took = begun.elapsed();
    assert_eq!(output.status.code(), Some(1));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rollout = if command[0] == "report" { &said["rollouts"][0] } else { &said["rollout"] };
    assert_eq!(rollout["failed"], 1_000, "{}", command[0]);
    println!("{}: {took:?}", command[0]);
    took
}
