//! `rollrace completions SHELL`

use clap_complete::{Shell, generate};

use super::{Failed, ask::print};

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rollrace completions bash > /etc/bash_completion.d/rollrace
  rollrace completions zsh > \"${fpath[1]}/_rollrace\"
  rollrace completions fish > ~/.config/fish/completions/rollrace.fish")]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Runs it.
pub fn run(args: &Args, mut command: clap::Command) -> Result<(), Failed> {
    let mut script = Vec::new();
    generate(args.shell, &mut command, "rollrace", &mut script);
    print(&String::from_utf8_lossy(&script))
}
