//! The command line: parse first, then act. One file a subcommand.

mod agent;
mod ask;
mod completions;
mod doctor;
#[cfg(all(test, feature = "probe"))]
mod documented;
mod explain;
mod local;
mod redact;
mod replay;
mod report;
mod ui;
mod watch;

use std::{ffi::OsString, fmt, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// Attributes failed connections to the Kubernetes rollout that broke them.
#[derive(Debug, Parser)]
#[command(name = "rollrace", version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch this node's connections and the cluster's rollouts (what the `DaemonSet` runs)
    #[cfg(feature = "probe")]
    Agent(agent::Args),
    /// List rollouts, newest first, with the connections that each of them broke
    Report(report::Args),
    /// Say why a rollout broke connections, and what to change
    Explain(explain::Args),
    /// Show failed connections as they happen
    Watch(watch::Args),
    /// Check that everything is there that it takes, on a cluster or on this node
    Doctor(doctor::Args),
    /// Run a recording through the engine again and print what it decides
    Replay(replay::Args),
    /// Show what many agents know in the browser, as one page
    Ui(ui::Args),
    /// Copy a recording with names and addresses replaced, to show it to anybody
    Redact(redact::Args),
    /// Print completions for a shell
    Completions(completions::Args),
    /// Print the kernel's struct layout as JSON
    #[cfg(feature = "probe")]
    #[command(name = crate::probe::layout::SUBCOMMAND, hide = true)]
    KernelLayout,
}

/// What the process exits with: what the on-call commands found, or why there is no answer
/// (`sysexits.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Nothing failed: 0.
    Clean,
    /// Failures were found: 1.
    Failures,
    /// It could not be told: 2.
    CouldNotTell,
    /// Bad usage: 64.
    Usage,
    /// Something needed is unavailable: 69.
    Unavailable,
    /// Internal error: 70.
    Internal,
}

impl Exit {
    fn code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Failures => 1,
            Self::CouldNotTell => 2,
            Self::Usage => 64,
            Self::Unavailable => 69,
            Self::Internal => 70,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error with the exit code that it means.
#[derive(Debug)]
pub struct Failed {
    exit: Exit,
    error: anyhow::Error,
}

impl Failed {
    /// Something needed is unavailable.
    pub fn unavailable(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Unavailable, error: error.into() }
    }

    /// What was asked for could not be told.
    pub fn could_not_tell(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::CouldNotTell, error: error.into() }
    }

    /// Bad usage.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Usage, error: error.into() }
    }
}

impl From<anyhow::Error> for Failed {
    fn from(error: anyhow::Error) -> Self {
        Self { exit: Exit::Internal, error }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

/// kubectl finds a plugin by its name, `kubectl-rollrace`; its help then speaks of `kubectl rollrace`.
fn named_as_called(program: Option<&OsString>) -> clap::Command {
    let stem = program.and_then(|program| std::path::Path::new(program).file_stem());
    if stem.is_some_and(|stem| stem == "kubectl-rollrace") {
        Cli::command().bin_name("kubectl rollrace")
    } else {
        Cli::command()
    }
}

/// Parses and runs; what `main` returns.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let command = named_as_called(arguments.first());
    let parsed = command.try_get_matches_from(arguments);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors.
            let code = if error.use_stderr() { Exit::Usage.code() } else { 0 };
            return match error.print() {
                Ok(()) => ExitCode::from(code),
                Err(_) => ExitCode::from(Exit::Internal.code()),
            };
        }
    };
    let result = match cli.command {
        #[cfg(feature = "probe")]
        Command::Agent(args) => agent::run(args).map(done),
        Command::Report(args) => report::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Replay(args) => replay::run(&args).map(done),
        Command::Redact(args) => redact::run(&args).map(done),
        Command::Completions(args) => completions::run(&args, Cli::command()).map(done),
        Command::Ui(args) => ui::run(&args).map(done),
        #[cfg(feature = "probe")]
        Command::KernelLayout => kernel_layout().map(done),
    };
    match result {
        Ok(code) => code,
        Err(failed) => {
            eprintln!("rollrace: {failed}");
            ExitCode::from(failed.exit.code())
        }
    }
}

fn done((): ()) -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(feature = "probe")]
fn kernel_layout() -> Result<(), Failed> {
    use anyhow::Context as _;

    let layout = crate::probe::layout::Layout::read(&crate::probe::layout::folder())
        .map_err(Failed::unavailable)?;
    serde_json::to_writer(std::io::stdout().lock(), &layout).context("cannot write the layout")?;
    Ok(())
}
