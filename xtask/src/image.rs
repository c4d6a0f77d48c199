//! `cargo xtask image`: a static binary, and the image of it.

use std::{path::PathBuf, process::ExitCode};

use crate::{
    setup,
    shell::{self, cargo, workspace},
};

/// Arguments of `image`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Then, for example:\n  podman load -i target/image/rollrace-0.1.0.oci.tar\n  ctr -n k8s.io images import --base-name registry.example.com/rollrace target/image/rollrace-0.1.0.oci.tar\n  skopeo copy oci-archive:target/image/rollrace-0.1.0.oci.tar docker://registry.example.com/rollrace:0.1.0"
)]
pub struct Args {
    /// Install what is missing without asking
    #[arg(long, short)]
    yes: bool,
    /// A static binary that was built before, instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// If something does not build.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    setup::ensure(setup::For::Lab, args.yes)?;
    build(args.binary.clone())?;
    Ok(ExitCode::SUCCESS)
}

/// Makes it, of a binary that is there or of one that is built for it; its folder.
///
/// # Errors
/// If something does not build.
pub fn build(binary: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let binary = match binary {
        Some(binary) => binary,
        None => static_binary()?,
    };
    let folder = workspace().join("target/image");
    let arguments =
        ["run", "--quiet", "--package", "rollrace-deploy", "--bin", "rollrace-image", "--"];
    shell::run(cargo().args(arguments).arg(binary).arg(&folder))?;
    Ok(folder)
}

/// Builds a binary that needs no library at run time. The target is named although it is this
/// machine's own, so that the flags are not those of build scripts.
fn static_binary() -> anyhow::Result<PathBuf> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    println!("Building a static binary (minutes the first time)");
    shell::run(
        cargo()
            .args(["build", "--quiet", "--locked", "--profile", "dist", "--package", "rollrace"])
            .args(["--target", &target])
            .env("RUSTFLAGS", "-C target-feature=+crt-static"),
    )?;
    Ok(workspace().join("target").join(target).join("dist/rollrace"))
}
