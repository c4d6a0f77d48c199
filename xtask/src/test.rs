//! `cargo xtask test`: everything that CI runs, step by step, each timed.

use std::{
    process::{Command, ExitCode},
    time::Instant,
};

use anyhow::bail;

use crate::{
    bench, checks, lab, setup,
    shell::{self, as_root, cargo, is_root, workspace},
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
    run: Box<dyn Fn() -> anyhow::Result<()>>,
}

fn step(name: &str, what: &'static str, run: impl Fn() -> anyhow::Result<()> + 'static) -> Step {
    Step { name: name.to_owned(), what, run: Box::new(run) }
}

/// Cells of the lab, as one would type them: every one of them must pass exactly.
const CELLS: [(&str, &str); 10] = [
    ("readiness", "run --setup readiness --mode fresh --seconds 30"),
    ("prestop", "run --setup prestop --mode fresh --seconds 30"),
    ("naive", "run --setup naive --mode fresh --seconds 25"),
    ("nftables", "run --setup readiness --mode fresh --seconds 25 --proxy nftables"),
    ("bridge", "run --setup readiness --mode fresh --seconds 25 --bridge-node n2"),
    ("agent-late", "run --setup readiness --mode fresh --seconds 30 --agent-watch-delay 3000"),
    ("proxy-late", "run --setup readiness --mode fresh --seconds 35 --proxy-watch-delay 3000"),
    ("new-side", "scenario new-side"),
    ("agent-restarted", "scenario agent-restarted"),
    ("rest", "rest --seconds 10"),
];

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
        step("cells-build", "the release build", || lab::build().map(drop)),
    ];
    steps.push(step("losses", "with everything made tiny, each loss is counted and told", || {
        let arguments = "loss --tiny --seconds 4 --rate 4000".split_whitespace();
        shell::run(as_root(bench::build()?).args(arguments).current_dir(workspace()))
    }));
    for (name, arguments) in CELLS {
        let run = move || cell(arguments);
        steps.push(step(
            &format!("cells-{name}"),
            "in the lab clients and agents agree, on time and within the bars",
            run,
        ));
    }
    steps
}

/// One cell of the lab.
fn cell(arguments: &str) -> anyhow::Result<()> {
    let program = workspace().join("target/release/rollrace-lab");
    shell::run(as_root(program).args(arguments.split_whitespace()).current_dir(workspace()))
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
        .filter(|step| args.only.as_ref().is_none_or(|only| step.name.starts_with(only.as_str())))
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
    setup::ensure(args.yes || std::env::var_os("CI").is_some())?;
    let begin = Instant::now();
    let mut failed = Vec::new();
    let count = steps.len();
    for (number, step) in steps.iter().enumerate() {
        println!("\n=== {}/{count} {}: {}", number + 1, step.name, step.what);
        let started = Instant::now();
        let result = (step.run)();
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
