//! Makes the image of a static binary: `cargo xtask image` builds that first.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use rollrace_deploy::image;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rollrace-image: {error:#}");
            ExitCode::from(70)
        }
    }
}

fn run() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(binary), Some(out), None) = (arguments.next(), arguments.next(), arguments.next())
    else {
        bail!("usage: rollrace-image BINARY FOLDER");
    };
    std::fs::create_dir_all(&out).context("cannot make the folder")?;
    let image = image::build(&binary, &out)?;
    println!("{}", image.archive.display());
    println!("  {}", image.digest);
    println!("  {} bytes, {} in the archive", image.unpacked, image.packed);
    println!("  the files: {}", image.root.display());
    Ok(())
}
