//! How far a run is: one live line on a terminal, plain lines otherwise. On standard error, so
//! that standard output has the result only.

use std::io::{IsTerminal, Write, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Lines between two when there is no terminal.
const PLAIN_EVERY_SECONDS: u64 = 5;

/// The progress of a run.
pub struct Progress {
    started: Instant,
    terminal: bool,
    state: Mutex<State>,
}

struct State {
    phase: String,
    last_plain: Option<u64>,
}

impl Progress {
    /// Shows progress.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            terminal: stderr().is_terminal(),
            state: Mutex::new(State { phase: String::new(), last_plain: None }),
        }
    }

    /// The next phase begins.
    pub fn phase(&self, phase: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        phase.clone_into(&mut state.phase);
        state.last_plain = None;
        self.write(&format!("{:>4} s  {phase}", self.seconds()));
    }

    /// The clients' counts so far.
    pub fn load(&self, requests: u64, failed: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.seconds();
        let due = state.last_plain.is_none_or(|last| now >= last + PLAIN_EVERY_SECONDS);
        if self.terminal || due {
            state.last_plain = Some(now);
            self.write(&format!(
                "{now:>4} s  {:<18} {requests:>7} requests  {failed:>5} failed",
                state.phase
            ));
        }
    }

    /// The run is over.
    pub fn done(&self) {
        self.write(&format!("{:>4} s  done", self.seconds()));
        if self.terminal {
            eprintln!();
        }
    }

    fn seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    fn write(&self, line: &str) {
        if self.terminal {
            eprint!("\r\x1b[K{line}");
            // A terminal that is gone cannot be told so.
            drop(stderr().flush());
        } else {
            eprintln!("{line}");
        }
    }
}
