//! `rollrace watch`

use std::{process::ExitCode, time::Duration};

use clap::ValueEnum;
use serde::Serialize;

use super::{
    Exit, Failed,
    ask::{From, Within, Zone, block_on, print, require_an_answer, style},
};
use crate::oncall::{
    Asked,
    answers::Failure,
    query,
    show::failure_line,
    watch::{News, Watcher},
    workload::Wanted,
};

/// How to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A line a failure, for reading
    Text,
    /// A JSON object a line
    Json,
}

/// Arguments of `watch`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  kubectl rollrace watch                                   # the context's namespace
  kubectl rollrace watch deployment/api -n shop --class refused
  kubectl rollrace watch -A -o json | jq -c '[.node, .class, .pod]'
  rollrace watch --agent 10.0.0.1:9466 --once              # what is known by now, and end

Exit codes: 0 stopped and none failed, 1 some did, 2 nobody answered, 64 bad usage")]
pub struct Args {
    /// Only this workload, as deployment/api
    #[arg(value_name = "KIND/NAME")]
    workload: Option<Wanted>,
    #[command(flatten)]
    within: Within,
    /// Only this class, as refused
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Begin with what failed before, not only with what fails from now on
    #[arg(long)]
    past: bool,
    /// Show what failed before, and end
    #[arg(long, conflicts_with = "past")]
    once: bool,
    /// How often to ask, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    every: u64,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    zone: Zone,
    #[command(flatten)]
    from: From,
}

/// A line of `-o json`.
#[derive(Serialize)]
struct Line<'a> {
    node: &'a str,
    #[serde(flatten)]
    failure: &'a Failure,
}

/// Runs it, until Ctrl-C.
pub fn run(args: &Args) -> Result<ExitCode, Failed> {
    block_on(async {
        let mut watcher = Watcher::new(args.past || args.once);
        let mut failed = 0_u64;
        loop {
            let mut wanted = Asked { failures: Some(asked(args)), ..Asked::default() };
            wanted.since.clone_from(watcher.since());
            let gathered = args.from.gather(&wanted).await?;
            if args.once {
                require_an_answer(&gathered)?;
            }
            let namespace = args.within.namespace(&gathered);
            for news in watcher.take(&gathered) {
                failed += show(args, namespace.as_deref(), &news)?;
            }
            if args.once {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(args.every)) => {}
                _ = tokio::signal::ctrl_c() => break,
            }
        }
        Ok(if failed > 0 { Exit::Failures } else { Exit::Clean }.into())
    })
}

/// What the agents can select; the context's namespace is known only when they have answered.
fn asked(args: &Args) -> String {
    let mut pairs = query::of_workload(args.within.named(), args.workload.as_ref());
    if let Some(class) = &args.class {
        pairs.push(("class", class.clone()));
    }
    query::encode(&pairs)
}

fn show(args: &Args, namespace: Option<&str>, news: &News<'_>) -> Result<u64, Failed> {
    match news {
        News::Failures { node, failures, skipped } => {
            if *skipped > 0 {
                eprintln!(
                    "! {node}: {skipped} failures came faster than they were asked for, and are not \
                     listed any more"
                );
            }
            let mut count = 0;
            let wanted = failures.iter().filter(|failure| is_wanted(args, namespace, failure));
            for failure in wanted {
                let text = match args.output {
                    Output::Text => failure_line(failure, node, &args.zone.times(), style()),
                    Output::Json => serde_json::to_string(&Line { node, failure })
                        .map_err(anyhow::Error::from)?,
                };
                print(&(text + "\n"))?;
                count += 1;
            }
            Ok(count)
        }
        News::Silent { node, why } => {
            eprintln!("! {node} does not answer: {why}");
            Ok(0)
        }
        News::Back { node } => {
            eprintln!("! {node} answers again");
            Ok(0)
        }
    }
}

/// What an older agent did not select.
fn is_wanted(args: &Args, namespace: Option<&str>, failure: &Failure) -> bool {
    namespace.is_none_or(|wanted| wanted == failure.namespace)
        && args.class.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(&failure.class))
        && args.workload.as_ref().is_none_or(|wanted| {
            failure.workload.as_ref().is_some_and(|it| wanted.is(&it.kind, &it.name))
        })
}
