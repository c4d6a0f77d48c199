//! Running commands and saying what runs.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, ExitCode, ExitStatus},
};

use anyhow::{Context as _, bail};

/// The workspace's folder.
pub fn workspace() -> &'static Path {
    // The manifest's folder is xtask/, its parent is there.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The cargo that runs this.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    command
}

/// A command with the rights of root: as it is, or through sudo.
pub fn as_root(program: impl AsRef<std::ffi::OsStr>) -> Command {
    if is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.arg("--preserve-env=PATH,CI,NO_COLOR,TERM,RUST_BACKTRACE").arg(program);
    command
}

/// Whether this process is root.
pub fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
    })
}

/// Runs it to its end.
///
/// # Errors
/// If it cannot be started.
pub fn status(command: &mut Command) -> anyhow::Result<ExitStatus> {
    command.status().with_context(|| format!("cannot run {}", shown(command)))
}

/// Runs it, and fails if it fails.
///
/// # Errors
/// If it cannot be started, or its exit code is not 0.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("{} failed ({status})", shown(command));
    }
    Ok(())
}

/// How something is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// In a few minutes, and for the tests as well: who waits for a lab waits for a network. The eBPF
    /// object is always optimised.
    Fast,
    /// To be measured.
    Release,
}

/// Builds the agent and a package beside it; the package's program.
///
/// # Errors
/// If it does not build.
pub fn build_beside_agent(package: &str, build: Build) -> anyhow::Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--quiet", "--package", "rollrace", "--package", package]);
    let folder = match build {
        Build::Fast => "debug",
        Build::Release => {
            command.arg("--release");
            "release"
        }
    };
    run(&mut command)?;
    Ok(workspace().join("target").join(folder).join(package))
}

/// Runs a program with the rights of root, and takes over its exit code.
///
/// # Errors
/// If it cannot be started.
pub fn hand_over(program: PathBuf, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let ended = status(as_root(program).args(arguments).current_dir(workspace()))?;
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The command as a person would type it.
pub fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// The first folder of `PATH` with this program.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(usual)
        .map(|folder| folder.join(program))
        .find(|file| file.exists())
}
