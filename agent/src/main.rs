//! The binary: parses and dispatches, nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    rollrace::cli::run(std::env::args_os())
}
