//! `rollrace redact IN OUT`

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};

use super::Failed;
use crate::{record::Recording, redact::redact};

/// Arguments of `redact`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Names and addresses are replaced, the same by the same: the copy replays alike.
Times, counts, ports and Kubernetes' own words stay.

Example:
  rollrace redact agent.record.jsonl for-everybody.jsonl && rollrace replay for-everybody.jsonl"
)]
pub struct Args {
    /// The recording
    from: PathBuf,
    /// Where the copy goes; an existing file is replaced
    to: PathBuf,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), Failed> {
    if args.from == args.to {
        return Err(Failed::usage(anyhow!("the copy cannot take the recording's own place")));
    }
    // That it is a recording, and of this format, before anything is written.
    Recording::read(&args.from).map_err(Failed::unavailable)?;
    let (from, to) = (args.from.display(), args.to.display());
    let lines = redact(&args.from, &args.to)
        .with_context(|| format!("cannot write {to} from {from}"))
        .map_err(Failed::unavailable)?;
    eprintln!("rollrace: {lines} lines in {to}; look it over before you give it away");
    Ok(())
}
