//! The demonstration: the same rollout without and with a preStop sleep, and a table.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use comfy_table::{ContentArrangement, Table, presets};

use crate::cli::DemoArgs;
use crate::isolate::{die_with_parent, fresh_out_dir};
use crate::run::{Summary, counts_text, not_compared_text};
use crate::setup::Setup;

/// Runs both setups, each in a lab of its own.
pub fn run(args: &DemoArgs) -> Result<ExitCode> {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => fresh_out_dir("demo")?,
    };
    let mut rows = Vec::new();
    for setup in [Setup::Readiness, Setup::Prestop] {
        println!("setup {}: 3 replicas under load, a rollout after 5 s", setup.name());
        let (agrees, summary) = run_setup(args, setup, &out.join(setup.name()))?;
        println!();
        rows.push((setup, agrees, summary));
    }
    println!("{}", table(&rows));
    for (setup, agrees, summary) in &rows {
        println!("{}", verdict(*setup, *agrees, summary));
    }
    println!("everything that was seen: {}", out.display());
    let agree = rows.iter().all(|(_, agrees, _)| *agrees);
    Ok(if agree { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// A lab needs a process of its own, since that process makes the namespaces.
fn run_setup(args: &DemoArgs, setup: Setup, out: &Path) -> Result<(bool, Summary)> {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["run", "--setup", setup.name(), "--mode", "fresh", "--json", "--seconds"])
        .arg(args.seconds.to_string())
        .arg("--out")
        .arg(out)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if let Some(agent) = &args.agent {
        command.arg("--agent").arg(absolute(agent)?);
    }
    die_with_parent(&mut command);
    let mut child = command.spawn().context("start the lab")?;
    let stdout = child.stdout.take().context("the lab's output")?;
    let mut last = String::new();
    for line in BufReader::new(stdout).lines() {
        last = line.context("read the lab's output")?;
    }
    let status = child.wait().context("wait for the lab")?;
    std::io::stdout().flush().context("write to standard output")?;
    match status.code() {
        Some(code @ (0 | 1)) => {
            let summary = serde_json::from_str(&last).context("read the lab's result")?;
            Ok((code == 0, summary))
        }
        _ => bail!("the lab failed ({status}): see {}", out.display()),
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("resolve {}", path.display()))
}

fn table(rows: &[(Setup, bool, Summary)]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header([
            "setup",
            "requests",
            "clients saw fail",
            "agents reported",
            "attributed to",
            "convergence: measured",
            "true",
        ]);
    for (setup, _, summary) in rows {
        let figure = |value: Option<f64>| {
            value.map_or_else(|| "not measured".to_owned(), |ms| format!("{ms:.0} ms"))
        };
        table.add_row([
            setup.name().to_owned(),
            summary.requests.to_string(),
            counts_text(&summary.truth),
            counts_text(&summary.agent),
            if summary.agent.is_empty() { "-".to_owned() } else { rollout(summary) },
            figure(summary.convergence_ms.max),
            figure(summary.true_convergence_ms.max),
        ]);
    }
    table
}

fn rollout(summary: &Summary) -> String {
    let text = |pointer: &str| {
        summary.rollout.pointer(pointer).and_then(|v| v.as_str()).unwrap_or("?").to_owned()
    };
    format!(
        "{} {}/{} revision {}",
        text("/kind"),
        text("/namespace"),
        text("/name"),
        text("/to/revision")
    )
}

fn verdict(setup: Setup, agrees: bool, summary: &Summary) -> String {
    let failed: u64 = summary.truth.values().sum();
    let name = setup.name();
    if !agrees {
        let differ = format!(
            "{name}: missed {}, extra {}, misattributed {}, reported twice {}",
            counts_text(&summary.missed),
            counts_text(&summary.extra),
            summary.misattributed,
            summary.doubles
        );
        let reasons: Vec<&str> =
            summary.bars_missed.iter().chain(&summary.doubts).map(String::as_str).collect();
        return [&[differ.as_str(), "  this is NOT as it should be"], reasons.as_slice()]
            .concat()
            .join("\n  ");
    }
    let apart = if summary.not_compared.is_empty() {
        String::new()
    } else {
        format!("\n  not compared: {}", not_compared_text(&summary.not_compared))
    };
    match failed {
        0 => {
            format!("{name}: the rollout broke no connection, and the agents reported none{apart}")
        }
        _ => format!(
            "{name}: the rollout broke {failed} connections; the agents reported exactly these, and blamed {} for each\n  \
             on /metrics at most {:.0} ms after the client's error, besides {:.0} ms of waiting for evidence{apart}",
            rollout(summary),
            summary.on_time_ms.max.unwrap_or_default(),
            summary.evidence_wait_ms.max.unwrap_or_default(),
        ),
    }
}
