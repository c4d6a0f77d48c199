//! Builds the eBPF object and leaves it in `OUT_DIR` for `include_bytes!`.
//!
//! A BPF target needs a `core` built for it. Two toolchains have one: Debian's `rustc-web` with
//! `libstd-rust-web-dev-bpf`, and a rustup nightly with `rust-src`. The build takes whichever it
//! finds, Debian's first, and says in one line what to install if neither is there.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, exit},
};

/// The BPF target of a machine of this endianness.
const TARGET: &str =
    if cfg!(target_endian = "big") { "bpfeb-unknown-none" } else { "bpfel-unknown-none" };

const WHAT_TO_INSTALL: &str = "run `cargo xtask setup`; or by hand: on Debian `apt-get install rustc-web cargo-web \
     libstd-rust-web-dev-bpf`, elsewhere `rustup toolchain install nightly --component rust-src`";

fn main() {
    if env::var_os("CARGO_FEATURE_PROBE").is_none() {
        return;
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for input in ["agent-ebpf/src", "agent-ebpf/Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(input).display());
    }
    println!("cargo::rerun-if-env-changed=PATH");
    let Some(path) = path_with_linker(&workspace) else {
        fail("there is no bpf-linker", "run `cargo xtask setup`, or `cargo install bpf-linker`");
    };
    let Some(mut cargo) = toolchain() else {
        fail("no Rust toolchain here can build for the BPF target", WHAT_TO_INSTALL);
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let target = out.join("bpf");
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let inherited = name.starts_with("CARGO") && name != "CARGO_HOME";
        if inherited
            || [
                "RUSTFLAGS",
                "RUSTDOCFLAGS",
                "RUSTUP_TOOLCHAIN",
                "RUSTC_WRAPPER",
                "RUSTC_WORKSPACE_WRAPPER",
            ]
            .contains(&name.as_str())
        {
            cargo.env_remove(name);
        }
    }
    let status = cargo
        .args(["build", "--release", "--locked", "--target", TARGET])
        .args(["--package", "rollrace-ebpf", "--bin", "rollrace-ebpf", "--features", "bpf"])
        .arg("--target-dir")
        .arg(&target)
        .env("PATH", path)
        .current_dir(&workspace)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => {
            fail(&format!("building the eBPF object failed ({status})"), "its messages are above")
        }
        Err(error) => fail(&format!("cannot run {cargo:?}: {error}"), WHAT_TO_INSTALL),
    }
    let object = target.join(TARGET).join("release/rollrace-ebpf");
    println!("cargo::rustc-env=ROLLRACE_BPF_OBJECT={}", object.display());
}

/// A cargo that can build for the target.
fn toolchain() -> Option<Command> {
    let debian = Path::new("/usr/bin/rustc");
    let core = Path::new("/usr/lib/rustlib").join(TARGET);
    if debian.exists() && core.exists() && Path::new("/usr/bin/cargo").exists() {
        let mut cargo = Command::new("/usr/bin/cargo");
        // Debian's compiler is a release; the eBPF crates use features of the language that are
        // still called unstable.
        cargo.env("RUSTC", debian).env("RUSTC_BOOTSTRAP", "1");
        return Some(cargo);
    }
    let sysroot = Command::new("rustc").args(["+nightly", "--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout).ok()?.trim());
    if !sysroot.join("lib/rustlib/src/rust/library/core").exists() {
        return None;
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["+nightly", "-Zbuild-std=core"]).env_remove("RUSTC");
    Some(cargo)
}

/// `PATH` with the folder of bpf-linker: as it is, or with what `cargo xtask setup` installed.
fn path_with_linker(workspace: &Path) -> Option<std::ffi::OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let own = workspace.join("target/tools/bin");
    let mut folders: Vec<PathBuf> = vec![own];
    folders.extend(env::split_paths(&path));
    folders
        .iter()
        .any(|folder| folder.join("bpf-linker").exists())
        .then(|| env::join_paths(folders).ok())?
}

fn fail(what: &str, remedy: &str) -> ! {
    println!("cargo::error={what}: {remedy}");
    exit(1)
}
