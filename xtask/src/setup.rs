//! `cargo xtask setup`: what building and running needs, installed if it is missing.

mod deploying;

use std::{
    io::{IsTerminal as _, Write as _, stdin, stdout},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context as _, bail};

use crate::shell::{self, as_root, cargo, find, workspace};

/// Version of the linker: the newest that links with the LLVM of Debian's Rust.
const LINKER: &str = "0.13.0";
/// LLVM that Debian's `rustc-web` is built with.
const LLVM: &str = "22";

/// Arguments of `setup`.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Install without asking
    #[arg(long, short)]
    pub yes: bool,
}

/// What only the tests need, with the packages: the page is shown in a real browser.
const TEST_PROGRAMS: [(&str, &str); 2] =
    [("chromium", "chromium"), ("chromedriver", "chromium-driver")];

/// What booting another kernel takes, with the packages.
const VM_PROGRAMS: [(&str, &str); 6] = [
    ("ipvsadm", "ipvsadm"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("depmod", "kmod"),
    ("cpio", "cpio"),
    ("xz", "xz-utils"),
];

/// What something is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Building and the lab.
    Lab,
    /// Checks of what is deployed: kubectl, Helm, Prometheus as well.
    Deploying,
    /// The tests: a browser as well, and all of those.
    Tests,
    /// Other kernels: a machine to boot them in.
    Vm,
}

/// Installs what is missing; says nothing if nothing is.
///
/// # Errors
/// If it may not, or cannot.
pub fn ensure(what: For, yes: bool) -> anyhow::Result<()> {
    let mut missing = missing();
    if matches!(what, For::Deploying | For::Tests) {
        missing.extend(deploying::missing());
    }
    missing.extend(match what {
        For::Lab | For::Deploying => Vec::new(),
        For::Tests => {
            let mut missing = missing_of(&TEST_PROGRAMS);
            // The widths of the page's words.
            if !Path::new("/usr/share/fonts/truetype/dejavu").exists() {
                missing.push("fonts-dejavu-core");
            }
            missing
        }
        For::Vm => missing_of(&VM_PROGRAMS),
    });
    ensure_with(&missing, yes)?;
    if matches!(what, For::Deploying | For::Tests) { deploying::ensure() } else { Ok(()) }
}

fn ensure_with(missing: &[&'static str], yes: bool) -> anyhow::Result<()> {
    let linker = !has_linker();
    if missing.is_empty() && !linker {
        return Ok(());
    }
    if !missing.is_empty() {
        install(missing, yes)?;
    }
    if !has_linker() {
        println!("Building bpf-linker {LINKER} into target/tools (about a minute)");
        let prefix = format!("/usr/lib/llvm-{LLVM}");
        shell::run(
            cargo()
                .args([
                    "install",
                    "bpf-linker",
                    "--locked",
                    "--version",
                    LINKER,
                    "--no-default-features",
                ])
                .arg(format!("--features=llvm-{LLVM}"))
                .arg("--root")
                .arg(workspace().join("target/tools"))
                .env("LLVM_PREFIX", prefix),
        )?;
    }
    Ok(())
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure(For::Tests, args.yes)?;
    println!("Everything that building and running needs is here.");
    Ok(ExitCode::SUCCESS)
}

/// Debian packages that are missing here.
fn missing() -> Vec<&'static str> {
    let mut packages = Vec::new();
    let commands = [
        ("ip", "iproute2"),
        ("iptables-restore", "iptables"),
        ("nft", "nftables"),
        ("conntrack", "conntrack"),
    ];
    for (command, package) in commands {
        if find(command).is_none() {
            packages.push(package);
        }
    }
    // A compiler for crates that build C, and the C++ library that bpf-linker links.
    if find("cc").is_none() || find("c++").is_none() {
        packages.push("build-essential");
    }
    let core = Path::new("/usr/lib/rustlib/bpfel-unknown-none").exists();
    let debian = core && Path::new("/usr/bin/rustc").exists();
    if !debian && !has_nightly() {
        packages.extend(["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf"]);
    }
    if !has_linker() && !Path::new("/usr/lib/llvm-22/lib/libLLVM.so").exists() {
        packages.extend([
            "llvm-22-dev",
            "libpolly-22-dev",
            "libzstd-dev",
            "zlib1g-dev",
            "libxml2-dev",
        ]);
    }
    packages
}

/// Packages of those programs that are missing.
fn missing_of(programs: &[(&str, &'static str)]) -> Vec<&'static str> {
    let missing = programs.iter().filter(|(program, _)| find(program).is_none());
    missing.map(|(_, package)| *package).collect()
}

fn has_linker() -> bool {
    workspace().join("target/tools/bin/bpf-linker").exists() || find("bpf-linker").is_some()
}

/// A rustup nightly with the sources of `core`.
fn has_nightly() -> bool {
    let sysroot =
        std::process::Command::new("rustc").args(["+nightly", "--print", "sysroot"]).output();
    sysroot.is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout);
        Path::new(text.trim()).join("lib/rustlib/src/rust/library/core").exists()
    })
}

fn install(packages: &[&str], yes: bool) -> anyhow::Result<()> {
    let list = packages.join(" ");
    if find("apt-get").is_none() {
        bail!(
            "missing: {list} (names of Debian packages; this system has no apt-get). The BPF target also builds with \
             `rustup toolchain install nightly --component rust-src` and `cargo install bpf-linker`"
        );
    }
    println!("Missing Debian packages: {list}");
    if !yes {
        if !stdin().is_terminal() {
            bail!("not installing packages without being asked to: add --yes");
        }
        print!("Install them with apt-get? [Y/n] ");
        stdout().flush().context("cannot write to the terminal")?;
        let mut answer = String::new();
        stdin().read_line(&mut answer).context("cannot read the answer")?;
        if !matches!(answer.trim(), "" | "y" | "Y" | "yes") {
            bail!("nothing was installed; install them by hand: apt-get install {list}");
        }
    }
    shell::run(as_root("apt-get").args(["update", "-q"]))?;
    shell::run(
        as_root("env")
            .args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-q"])
            .args(packages),
    )
}
