//! What is run in a machine: a script of steps, all in one boot.

use std::{path::Path, process::Stdio};

use anyhow::{Context as _, bail};
use clap::ValueEnum;

use crate::shell::{self, cargo, workspace};

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// What CI runs: a part of the tests, and the first cells
    Gate,
    /// Everything
    All,
    /// The tests of the probes against the kernel
    Tests,
    /// Rollouts in the lab: clients and agents must agree
    Cells,
}

/// The agent before conntrack: first of all, while its module is not loaded.
const BEFORE_CONNTRACK: &str = "an_agent_that_was_there_before_conntrack_takes_it_up_when_it_comes";

/// Tests that CI runs, by parts of their names: of each class, in both versions of IP, the devices that
/// only these kernels have, and what differs between versions of the kernel.
const CHOSEN: [&str; 7] = [
    "refused::a_refusal_by_a_pod_on_its_own_link",
    "dropped::a_syn_that_waits_for_a_dead_neighbour",
    "dropped::a_rejected_syn_of_a_pod",
    "stale::a_port_used_again_on_an_unanswered_tuple",
    "ended::a_close_without_a_byte",
    "ended::a_reset_without_a_byte",
    "devices::",
];

/// A rollout in the lab.
struct Cell {
    name: &'static str,
    arguments: &'static str,
    in_gate: bool,
}

/// The lab's rollouts. All are small: an emulated machine is some ten times slower.
const CELLS: [Cell; 4] = [
    Cell {
        name: "fresh",
        arguments: "run --setup readiness --mode fresh --seconds 45 --threads 4 --source-ports 16 \
                    --ip-family dual --proxy-watch-delay 1000 --must-show refused \
                    --must-show timeout --must-show stale_nat",
        in_gate: true,
    },
    Cell {
        name: "keepalive",
        arguments: "run --setup readiness --mode keepalive --seconds 35 --threads 4 \
                    --ip-family dual --must-show cut",
        in_gate: true,
    },
    Cell {
        name: "ipvs",
        arguments: "run --setup readiness --mode fresh --seconds 45 --threads 4 --source-ports 16 \
                    --ip-family dual --proxy ipvs --proxy-watch-delay 1000 --must-show refused",
        in_gate: true,
    },
    Cell {
        name: "nftables",
        arguments: "run --setup readiness --mode fresh --seconds 45 --threads 4 --ip-family dual \
                    --proxy nftables --proxy-watch-delay 1000 --must-show refused",
        in_gate: false,
    },
];

/// How much longer an emulated machine takes (`ROLLRACE_SLOW`).
const SLOW: u32 = 8;

/// Runs a step and takes note of how it ended; `$failed` has the names of those that failed.
const STEP: &str = r#"failed=
step() {
    name=$1; shift
    echo "=== $name begins"
    began=$(date +%s)
    "$@"
    code=$?
    echo "=== $name ended with $code after $(($(date +%s) - began)) s"
    if [ $code != 0 ]; then failed="$failed $name"; fi
}
"#;

/// Builds what is to be run; the script of it.
///
/// # Errors
/// If it does not build.
pub fn script(what: What, only: Option<&str>) -> anyhow::Result<String> {
    let mut steps = vec![format!("export ROLLRACE_SLOW={SLOW}\n{STEP}cd {}", shown(workspace())?)];
    let binaries = (what != What::Cells).then(test_binaries).transpose()?;
    if let Some(binaries) = &binaries {
        if what != What::Tests {
            let arguments = format!("--exact {BEFORE_CONNTRACK} --ignored");
            steps.push(format!("step conntrack-comes {} {arguments}", binaries.process));
        }
        let names = match (what, only) {
            (What::Gate, _) => CHOSEN.join(" "),
            (_, only) => only.unwrap_or_default().to_owned(),
        };
        let arguments = format!("--test-threads=2 --include-ignored {names}");
        steps.push(format!("step tests {} {arguments}", binaries.kernel));
    }
    if what != What::Tests {
        let build = ["build", "--quiet", "--package", "rollrace", "--package", "rollrace-lab"];
        shell::run(cargo().args(build))?;
        let lab = workspace().join("target/debug/rollrace-lab");
        let lab = shown(&lab)?;
        let asked = only.filter(|_| what == What::Cells).unwrap_or_default();
        let wanted = CELLS.iter().filter(|cell| what != What::Gate || cell.in_gate);
        for Cell { name, arguments, .. } in wanted.filter(|cell| cell.name.contains(asked)) {
            steps.push(format!("step cell-{name} {lab} {arguments}"));
        }
    }
    steps.push(
        "if [ -n \"$failed\" ]; then echo \"=== failed:$failed\"; fi\n[ -z \"$failed\" ]"
            .to_owned(),
    );
    Ok(steps.join("\n"))
}

fn shown(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("the workspace's path is not UTF-8")
}

/// Programs of tests.
struct Binaries {
    kernel: String,
    process: String,
}

/// Builds the tests that need a kernel.
fn test_binaries() -> anyhow::Result<Binaries> {
    let build =
        "test --package rollrace --test kernel --test process --no-run --message-format=json";
    let output = cargo()
        .args(build.split(' '))
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    // One message a line.
    let text = String::from_utf8_lossy(&output.stdout);
    let marker = "\"executable\":\"";
    let executable = |name: &str| {
        let path = text.lines().rev().find_map(|line| {
            let rest = &line[line.find(marker)? + marker.len()..];
            rest.split('"').next().filter(|path| path.contains(&format!("/{name}-")))
        });
        path.map(str::to_owned)
            .with_context(|| format!("cargo did not say where the test {name} is"))
    };
    Ok(Binaries { kernel: executable("kernel")?, process: executable("process")? })
}
