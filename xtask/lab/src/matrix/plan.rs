//! The cells of the matrix, and how long they take. Pure.

use std::time::Duration;

use clap::ValueEnum;

use crate::cli::{Mode, ProxyMode};
use crate::fault::Fault;
use crate::net::IpFamily;
use crate::scenario::Scenario;
use crate::setup::Setup;

/// The agents' watch is this late, in milliseconds.
const AGENT_DELAYS: [u64; 3] = [0, 200, 1000];
/// The proxies' watch is this late, in milliseconds.
const PROXY_DELAYS: [u64; 3] = [0, 500, 3000];
/// What is played in the families with IPv6: one setup of each kind of failure, and one without any.
const FAMILY_SETUPS: [Setup; 3] = [Setup::Naive, Setup::Readiness, Setup::Prestop];
/// What a lab takes besides its load: building, deploying, the last verdicts. Measured.
const BESIDES_THE_LOAD: u64 = 8;
/// Until an agent is ready again after a fault, and its last verdict is reached.
const AFTER_A_FAULT: u64 = 30;
/// A pod that ignores SIGTERM is killed 30 s after its deletion, and its kept connections are cut
/// then: 5 s of load, 8 s of rollout, 30 s, and some seconds to see it.
const IGNORED_SIGTERM_SECONDS: u64 = 50;
/// Between the starts of the first labs.
pub const STAGGER: Duration = Duration::from_secs(4);

/// A cell: one lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Its name.
    pub name: String,
    /// The lab's arguments.
    pub arguments: Vec<String>,
    /// How long it takes, in seconds.
    pub expected_seconds: u64,
}

/// Every cell.
pub fn cells(seconds: u64) -> Vec<Cell> {
    let mut cells = Vec::new();
    for setup in Setup::value_variants() {
        for mode in [Mode::Fresh, Mode::Keepalive] {
            for agent in AGENT_DELAYS {
                for proxy in PROXY_DELAYS {
                    cells.push(rollout(*setup, mode, agent, proxy, seconds));
                }
            }
        }
    }
    for setup in FAMILY_SETUPS {
        for ip_family in [IpFamily::Ipv6, IpFamily::Dual] {
            for proxy in [ProxyMode::Iptables, ProxyMode::Nftables] {
                cells.push(of_family(setup, ip_family, proxy, seconds));
            }
        }
    }
    cells.extend(Scenario::value_variants().iter().map(|scenario| Cell {
        name: format!("scenario-{}", scenario.name()),
        arguments: ["scenario", scenario.name()].map(str::to_owned).into(),
        expected_seconds: scenario.dials().seconds + BESIDES_THE_LOAD,
    }));
    cells.extend(Fault::value_variants().iter().map(|fault| {
        let dials = fault.dials();
        let seconds = dials.load.max(5 + dials.after + dials.lasts + AFTER_A_FAULT);
        Cell {
            name: format!("fault-{}", fault.name()),
            arguments: ["fault", fault.name()].map(str::to_owned).into(),
            expected_seconds: seconds + BESIDES_THE_LOAD,
        }
    }));
    cells
}

/// A rollout with delays of the watches.
pub fn rollout(setup: Setup, mode: Mode, agent: u64, proxy: u64, seconds: u64) -> Cell {
    let seconds = if setup == Setup::Ignore && mode == Mode::Keepalive {
        seconds.max(IGNORED_SIGTERM_SECONDS)
    } else {
        seconds
    };
    let mut arguments = vec!["run".to_owned()];
    for (option, value) in [
        ("--setup", setup.name().to_owned()),
        ("--mode", mode.name().to_owned()),
        ("--seconds", seconds.to_string()),
        ("--agent-watch-delay", agent.to_string()),
        ("--proxy-watch-delay", proxy.to_string()),
    ] {
        arguments.extend([option.to_owned(), value]);
    }
    Cell {
        name: format!("{}-{}-agent{agent}-proxy{proxy}", setup.name(), mode.name()),
        arguments,
        expected_seconds: seconds + BESIDES_THE_LOAD,
    }
}

/// A rollout without delays in other families than IPv4 alone.
fn of_family(setup: Setup, ip_family: IpFamily, proxy: ProxyMode, seconds: u64) -> Cell {
    let mut cell = rollout(setup, Mode::Fresh, 0, 0, seconds);
    cell.name = format!("{}-fresh-{}-{}", setup.name(), ip_family.name(), proxy.name());
    for (option, value) in [("--ip-family", ip_family.name()), ("--proxy", proxy.name())] {
        cell.arguments.extend([option.to_owned(), value.to_owned()]);
    }
    cell
}

/// How long cells take, several at a time.
pub fn expected(cells: &[Cell], jobs: u8) -> Duration {
    Duration::from_secs(total(cells).div_ceil(u64::from(jobs.max(1))))
}

/// How far a matrix is.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Labs at a time.
    pub jobs: u8,
    /// Since the begin.
    pub elapsed: Duration,
    /// Seconds that the ended cells were expected to take, in all.
    pub expected: u64,
    /// Seconds that they took, in all.
    pub took: u64,
}

/// How long the cells that have not ended still take, at the pace of those that have. The labs
/// that run have spent already what is not the ended ones'.
pub fn remaining(left: &[Cell], pace: Pace) -> Duration {
    let jobs = u64::from(pace.jobs.max(1));
    let left = total(left) * pace.took / pace.expected.max(1);
    let spent = (pace.elapsed.as_secs() * jobs).saturating_sub(pace.took);
    Duration::from_secs(left.saturating_sub(spent).div_ceil(jobs))
}

fn total(cells: &[Cell]) -> u64 {
    cells.iter().map(|cell| cell.expected_seconds).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_combination_is_there_once_and_under_a_name_of_its_own() {
        let cells = cells(20);
        let rollouts = cells.iter().filter(|cell| cell.arguments[0] == "run").count();
        assert_eq!(rollouts, 6 * 2 * 3 * 3 + 3 * 2 * 2);
        let names: BTreeSet<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names.len(), cells.len());
    }

    #[test]
    fn kept_connections_to_pods_that_ignore_sigterm_are_watched_until_the_kill() {
        let cell = rollout(Setup::Ignore, Mode::Keepalive, 0, 0, 20);
        assert_eq!(cell.expected_seconds, 58);
    }

    #[test]
    fn the_rest_takes_as_long_as_the_pace_so_far_says() {
        // 28 s each, two at a time; they take 42 s.
        let cells = &cells(20)[..4];
        assert_eq!(expected(cells, 2), Duration::from_secs(56));
        let pace = Pace { jobs: 2, elapsed: Duration::from_secs(42), expected: 28, took: 42 };
        assert_eq!(remaining(&cells[1..], pace), Duration::from_secs(42));
    }
}
