//! `cargo xtask test`: everything that CI runs, step by step, each timed.

use std::{
    process::{Command, ExitCode, Stdio},
    sync::Mutex,
    thread,
    time::Instant,
};

use anyhow::{Context as _, bail};

use crate::{
    bench, checks, image, lab, setup,
    shell::{self, Build, as_root, cargo, is_root, workspace},
    vm,
};

/// Arguments of `test`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask test                 everything\n  cargo xtask test --only cells    the lab's cells alone"
)]
pub struct Args {
    /// Install what is missing without asking
    #[arg(long, short)]
    yes: bool,
    /// Only steps whose name begins so
    #[arg(long, value_name = "STEP")]
    only: Option<String>,
    /// List the steps
    #[arg(long)]
    list: bool,
}

/// A step: its name, what it proves, how it runs.
struct Step {
    name: String,
    what: &'static str,
    run: Run,
}

enum Run {
    /// Speaks as it goes.
    Alone(Box<dyn Fn() -> anyhow::Result<()>>),
    /// A command of the lab, which waits most of the time: such are played two at a time.
    Cell(&'static str),
}

/// Steps that take qemu a quarter of an hour each, and are run only where they are asked for by name.
const VM: [&str; 2] = ["vm-6.1", "vm-6.12"];

/// Cells that are played at once.
const CELLS_AT_ONCE: usize = 2;

fn step(name: &str, what: &'static str, run: impl Fn() -> anyhow::Result<()> + 'static) -> Step {
    Step { name: name.to_owned(), what, run: Run::Alone(Box::new(run)) }
}

/// Cells of the lab, as one would type them: every one of them must pass exactly.
const CELLS: [(&str, &str); 35] = [
    ("readiness", "run --setup readiness --mode fresh --seconds 30 --prometheus --await-events"),
    ("prestop", "run --setup prestop --mode fresh --seconds 30 --prometheus --await-events"),
    ("naive", "run --setup naive --mode fresh --seconds 25"),
    ("keepalive", "run --setup readiness --mode keepalive --seconds 25"),
    ("keepalive-kept", "run --setup prestop-drain --mode keepalive --seconds 30"),
    ("nftables", "run --setup readiness --mode fresh --seconds 25 --proxy nftables"),
    ("dual", "run --setup readiness --mode fresh --seconds 25 --ip-family dual --proxy nftables"),
    ("bridge", "run --setup readiness --mode fresh --seconds 25 --bridge-node n2"),
    ("agent-late", "run --setup readiness --mode fresh --seconds 30 --agent-watch-delay 3000"),
    ("proxy-late", "run --setup readiness --mode fresh --seconds 35 --proxy-watch-delay 3000"),
    ("legacy", "run --setup readiness --mode fresh --seconds 25 --proxy iptables-legacy"),
    (
        "node-port",
        "run --setup readiness --mode fresh --seconds 30 --dial node-port --outside --service external-local",
    ),
    (
        "affinity",
        "run --setup readiness --mode fresh --seconds 25 --service affinity --proxy nftables",
    ),
    (
        "socket",
        "run --setup readiness --mode fresh --seconds 25 --proxy socket --dial endpoints --proxy-watch-delay 1000",
    ),
    (
        "headless",
        "run --setup readiness --mode fresh --seconds 25 --dial endpoints --service headless --service publish-not-ready",
    ),
    (
        "outside",
        "run --setup readiness --mode fresh --seconds 30 --dial endpoints --outside --proxy-watch-delay 1000",
    ),
    ("new-side", "scenario new-side"),
    ("emptied", "scenario emptied"),
    ("local-policy", "scenario local-policy"),
    ("address-reused", "scenario address-reused"),
    ("address-reused-by-same", "scenario address-reused-by-same"),
    ("ipv6", "run --setup readiness --mode fresh --seconds 25 --ip-family ipv6"),
    ("ipv6-keepalive", "run --setup naive --mode keepalive --seconds 25 --ip-family ipv6"),
    ("ipv6-emptied", "scenario emptied --ip-family ipv6"),
    ("ipv6-local-policy", "scenario local-policy --ip-family ipv6"),
    ("ipv6-address-reused", "scenario address-reused --ip-family ipv6"),
    ("soak", "soak --seconds 60"),
    ("agent-restarted", "scenario agent-restarted"),
    ("agent-upgraded", "scenario agent-upgraded"),
    ("api-gone", "fault api-gone --lasts 15"),
    ("api-older", "fault api-older"),
    ("advice-naive", "advice --setup naive"),
    ("advice-drain", "advice --setup drain --kubernetes v1.29.9"),
    ("advice-nothing", "advice --setup prestop-drain"),
    ("rules", "rules"),
];

/// The same with the image's files, run as the manifest says.
const POD_CELLS: [(&str, &str); 2] = [
    ("runtime", "run --setup readiness --mode fresh --seconds 25 --pod target/image/root"),
    (
        "shipped",
        "run --setup prestop --mode fresh --seconds 25 --pod target/image/root --seccomp shipped",
    ),
];

/// The capabilities of the manifest.
const RIGHTS: [&str; 3] = ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"];

/// Leaves each capability out, and looks what the agent says: without one of the first two it stops,
/// without the last it cannot look for stale entries.
fn rights() -> anyhow::Result<()> {
    let out = workspace().join("target/lab/rights");
    for missing in RIGHTS {
        let run = "run --setup prestop --mode fresh --seconds 6 --pod target/image/root";
        let mut command = cell(&format!("{run} --without-capability {missing}"));
        command.arg("--out").arg(&out);
        let (printed, passed) = output_of(command)?;
        let log = std::fs::read_to_string(out.join("agent-n1.log")).unwrap_or_default();
        let names_it =
            |line: &str| line.to_lowercase().contains("not permitted") && line.contains(missing);
        if passed || !log.lines().any(names_it) {
            bail!("without {missing} the agent should have said so:\n{printed}\n{log}");
        }
    }
    Ok(())
}

fn steps() -> Vec<Step> {
    let mut steps = vec![
        step("format", "the source is formatted", || {
            shell::run(cargo().args(["fmt", "--all", "--check"]))
        }),
        step("purity", "pure modules do no I/O and ask for no time", checks::purity),
        step("clippy", "no lint complains", || {
            shell::run(cargo().args([
                "clippy",
                "--quiet",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ]))
        }),
        step("laptop", "the command line builds without the probe", || {
            shell::run(cargo().args([
                "check",
                "--quiet",
                "--package",
                "rollrace",
                "--no-default-features",
            ]))
        }),
        step("doc", "the documentation builds without a warning", || {
            shell::run(
                cargo()
                    .args(["doc", "--quiet", "--workspace", "--no-deps"])
                    .env("RUSTDOCFLAGS", "-D warnings"),
            )
        }),
        step("tests", "unit, property, recording, kernel, process and lab tests", || {
            shell::run(with_root_runner(cargo().args(["test", "--workspace", "--no-fail-fast"])))
        }),
        step("page", "the page says in a browser what the engine says, in both themes", || {
            // With the whole workspace: of what it is built on, nothing needs to be built again.
            shell::run(cargo().args(["test", "--workspace", "--test", "page", "--", "--ignored"]))
        }),
        step(
            "kernel-helper",
            "the same where packets are read by the helper, as before 6.2",
            || {
                let tests = ["test", "--package", "rollrace", "--test", "kernel"];
                shell::run(with_root_runner(cargo().args(tests).env("ROLLRACE_READS", "helper")))
            },
        ),
        step("cells-build", "agent and lab build", || lab::build().map(drop)),
    ];
    steps.push(step("losses", "with everything made tiny, each loss is counted and told", || {
        let arguments = "loss --tiny --seconds 4 --rate 4000".split_whitespace();
        shell::run(as_root(bench::build(Build::Fast)?).args(arguments).current_dir(workspace()))
    }));
    for (name, arguments) in CELLS {
        steps.push(Step {
            name: format!("cells-{name}"),
            what: "in the lab clients and agents agree, on time and within the bars",
            run: Run::Cell(arguments),
        });
    }
    steps.push(step("image", "a static binary, and an image from scratch around it", || {
        image::build(None).map(drop)
    }));
    for (name, arguments) in POD_CELLS {
        steps.push(Step {
            name: format!("pod-{name}"),
            what: "the image works with the manifest's rights, read-only, under a seccomp profile",
            run: Run::Cell(arguments),
        });
    }
    steps.push(step("rights", "where a capability is missing the agent names it", rights));
    for (name, version) in [(VM[0], vm::Version::V6_1), (VM[1], vm::Version::V6_12)] {
        let what =
            "on this kernel, in qemu: tests of each class, its devices, IPVS, cells of the lab";
        steps.push(step(name, what, move || vm::gate(version)));
    }
    steps.push(step("rest", "at rest what is shipped stays within its memory and time", || {
        shell::run(&mut cell("rest --seconds 10 --agent target/image/root/rollrace"))
    }));
    steps
}

/// A command of the lab.
fn cell(arguments: &str) -> Command {
    let mut command = as_root(workspace().join("target/debug/rollrace-lab"));
    command.args(arguments.split_whitespace()).current_dir(workspace());
    command
}

/// Runs it to its end and hands out what it printed.
fn output_of(mut command: Command) -> anyhow::Result<(String, bool)> {
    let command = command.stdin(Stdio::null());
    let output = command.output().with_context(|| format!("run {}", shell::shown(command)))?;
    let printed = [output.stdout, output.stderr].concat();
    Ok((String::from_utf8_lossy(&printed).into_owned(), output.status.success()))
}

/// Plays cells side by side, and prints what each printed when it has ended; those that failed.
fn play(cells: &[(String, &'static str)]) -> Vec<String> {
    let (left, failed) = (Mutex::new(cells.iter()), Mutex::new(Vec::new()));
    let next = || left.lock().ok()?.next();
    thread::scope(|scope| {
        for _ in 0..CELLS_AT_ONCE {
            scope.spawn(|| {
                while let Some((name, arguments)) = next() {
                    println!("=== {name} begins: {arguments}");
                    let started = Instant::now();
                    let (printed, passed) = output_of(cell(arguments))
                        .unwrap_or_else(|error| (format!("{error:#}\n"), false));
                    let how = if passed { "passed" } else { "FAILED" };
                    let took = started.elapsed().as_secs();
                    println!("\n{printed}=== {name} {how} in {took} s");
                    if !passed && let Ok(mut failed) = failed.lock() {
                        failed.push(name.clone());
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_default()
}

/// Kernel and lab tests need root: test binaries run through sudo where this is not root.
fn with_root_runner(command: &mut Command) -> &mut Command {
    if is_root() {
        return command;
    }
    command
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", "sudo -E")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", "sudo -E")
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let steps: Vec<Step> = steps()
        .into_iter()
        .filter(|step| match &args.only {
            Some(only) => step.name.starts_with(only.as_str()),
            None => args.list || !VM.contains(&&*step.name),
        })
        .collect();
    if steps.is_empty() {
        bail!(
            "no step begins with {:?}: `cargo xtask test --list` names them",
            args.only.as_deref().unwrap_or_default()
        );
    }
    if args.list {
        for step in &steps {
            println!("{:24} {}", step.name, step.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    setup::ensure(setup::For::Tests, args.yes || std::env::var_os("CI").is_some())?;
    let begin = Instant::now();
    let mut failed = Vec::new();
    let count = steps.len();
    let mut cells = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let run = match &step.run {
            Run::Cell(arguments) => {
                cells.push((step.name.clone(), *arguments));
                let is_last =
                    !matches!(steps.get(number + 1).map(|next| &next.run), Some(Run::Cell(_)));
                if is_last {
                    println!(
                        "\n=== {} cells, {CELLS_AT_ONCE} at a time: {}",
                        cells.len(),
                        step.what
                    );
                    failed.extend(play(&std::mem::take(&mut cells)));
                }
                continue;
            }
            Run::Alone(run) => run,
        };
        println!("\n=== {}/{count} {}: {}", number + 1, step.name, step.what);
        let started = Instant::now();
        let result = run();
        let took = started.elapsed().as_secs();
        match result {
            Ok(()) => println!("=== {} passed in {took} s", step.name),
            Err(error) => {
                println!("=== {} FAILED in {took} s: {error:#}", step.name);
                failed.push(step.name.clone());
            }
        }
    }
    println!("\nall steps took {} s", begin.elapsed().as_secs());
    for name in &failed {
        println!("failed: {name} (again: cargo xtask test --only {name})");
    }
    println!("{} passed, {} failed", count - failed.len(), failed.len());
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
