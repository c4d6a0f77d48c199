//! `bench throughput`: connections and bytes through a Service, with and without somebody who watches.
//!
//! A round has each watcher once, so that what changes on the machine in the meantime changes all of them.
//! Ratios are of one round; of several there is a mean with its confidence interval.
//!
//! # Layout
//! - [`watchers`]: who watches
//! - [`bulk`]: bytes

mod bulk;
mod watchers;

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};

use self::watchers::{ALL, Watcher};
use crate::{
    agent,
    figures::{Bar, Figure, Figures, Output},
    loss::{api::ApiServer, load::Load, objects::Shop, world::World},
};

/// New connections with the agent, of those without.
const CONNECTIONS_BAR: f64 = 0.98;
/// Bytes with the agent, of those without.
const BULK_BAR: f64 = 0.99;
/// Threads of each client.
const THREADS: u32 = 2;
/// Student's t for a 95 % interval, by degrees of freedom from 4 on; beyond, the normal one is close.
const STUDENT: [f64; 16] = [
    2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093,
];

/// Options of `throughput`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench throughput --json before.json
  cargo xtask bench throughput --rounds 30

Programs that are not installed are left out. Exit code: 0 if every bar is met, 1 if one is missed, 70 if
it could not be measured. Needs root.")]
pub struct Args {
    /// Rounds; each has every watcher once
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(5..=1_000))]
    rounds: u16,
    /// How long each lasts, in milliseconds, for connections and again for bytes
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    millis: u64,
    /// The rollrace binary [default: the `rollrace` beside this one]
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// What went through, round by round.
#[derive(Default)]
struct Rounds {
    connections: Vec<f64>,
    bulk: Vec<f64>,
}

/// Measures.
///
/// # Errors
/// If something does not start.
pub fn run(args: &Args) -> Result<ExitCode> {
    let binary = agent::binary(args.agent.as_deref())?;
    let world = World::build()?;
    bulk::serve(&world)?;
    let api = ApiServer::start(&world.node)?;
    api.apply(Shop::new().before());
    let (there, missing): (Vec<Watcher>, Vec<Watcher>) =
        ALL.into_iter().partition(|watcher| watcher.is_installed());
    for watcher in missing {
        println!("{} is not installed, and left out", watcher.name());
    }
    let time = Duration::from_millis(args.millis);
    let mut measured: BTreeMap<&str, Rounds> = BTreeMap::new();
    // The first is for warming up; then each begins with another one.
    for round in 0..=usize::from(args.rounds) {
        for place in 0..there.len() {
            let watcher = there[(round + place) % there.len()];
            let watching = watcher
                .start(&world.node, &binary)
                .with_context(|| format!("start {}", watcher.name()))?;
            let truth = Load::start(&world, THREADS, 0, time).finish()?;
            let bytes = bulk::measure(&world, time)?;
            watching.stop()?;
            if round > 0 {
                let rounds = measured.entry(watcher.name()).or_default();
                #[expect(clippy::cast_precision_loss, reason = "some thousands")]
                rounds.connections.push(truth.answered as f64 / truth.seconds);
                rounds.bulk.push(bytes);
            }
        }
    }
    figures(&there, &measured)?.finish(&args.output)
}

fn figures(there: &[Watcher], measured: &BTreeMap<&str, Rounds>) -> Result<Figures> {
    let mut figures = Figures::default();
    let nobody = measured.get(Watcher::Nobody.name()).context("nobody was measured")?;
    let alone = |of: &[f64]| interval(of).0;
    figures.add("new connections, nobody watches", alone(&nobody.connections), "1/s");
    figures.add("bulk, nobody watches", alone(&nobody.bulk) / 1e9, "GB/s");
    for watcher in there.iter().filter(|watcher| **watcher != Watcher::Nobody) {
        let Some(rounds) = measured.get(watcher.name()) else { continue };
        for (what, with, without, bar) in [
            ("new connections", &rounds.connections, &nobody.connections, CONNECTIONS_BAR),
            ("bulk", &rounds.bulk, &nobody.bulk, BULK_BAR),
        ] {
            let ratios: Vec<f64> = with.iter().zip(without).map(|(with, out)| with / out).collect();
            let (mean, low, high) = interval(&ratios);
            figures.push(Figure {
                name: format!("{what}, {}", watcher.name()),
                value: mean,
                interval: Some((low, high)),
                unit: "of nobody".to_owned(),
                bar: (*watcher == Watcher::Agent).then_some(Bar::AtLeast(bar)),
            });
        }
    }
    Ok(figures)
}

/// Mean and 95 % confidence interval.
fn interval(of: &[f64]) -> (f64, f64, f64) {
    let count = f64::from(u32::try_from(of.len()).unwrap_or(u32::MAX));
    let mean = of.iter().sum::<f64>() / count;
    let variance = of.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let t = STUDENT.get(of.len().saturating_sub(5)).copied().unwrap_or(2.0);
    let half = t * (variance / count).sqrt();
    (mean, mean - half, mean + half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_as_wide_as_its_rounds_differ() {
        let (mean, low, high) = interval(&[0.9, 1.0, 1.1, 1.0, 1.0]);
        assert!((mean - 1.0).abs() < 1e-9 && low < 0.92 && high > 1.08, "{low} {high}");
        let (_, low, high) = interval(&[1.0; 10]);
        assert!((low - 1.0).abs() < 1e-9 && (high - 1.0).abs() < 1e-9);
    }
}
