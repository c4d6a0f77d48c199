//! What a client of the soak writes down: each failure as it comes, and its counts at the end.

use std::fs::File;
use std::io::Write;
use std::iter::Sum;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::kind::Kind;
use crate::app::connection::{Trouble, now};
use crate::app::failure::Failure;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum Line {
    /// Something failed that should not have.
    Failure(Failure),
    /// Once a second: how far it has come.
    Progress(Counts),
    /// The last line.
    End(Counts),
}

/// What a client has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Connections that were answered.
    pub connections: u64,
    /// Exchanges that went well: a request and its answer, a stream to its end, a probe.
    pub exchanges: u64,
    /// Failures.
    pub failed: u64,
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, counts| Self {
            connections: sum.connections + counts.connections,
            exchanges: sum.exchanges + counts.exchanges,
            failed: sum.failed + counts.failed,
        })
    }
}

/// One connection as its client knows it.
#[derive(Debug, Clone, Copy)]
pub struct Track {
    /// The client's own address and port.
    pub local: SocketAddr,
    /// When connect was called, in nanoseconds since the epoch.
    pub started: i64,
    /// Exchanges so far.
    pub exchanges: u64,
}

/// The log of one kind of traffic, shared by its tasks.
#[derive(Debug)]
pub struct Tally {
    inner: Mutex<(File, Counts)>,
}

impl Tally {
    /// An empty log.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { inner: Mutex::new((file, Counts::default())) })
    }

    /// One more connection.
    pub fn connected(&self) {
        self.lock().1.connections += 1;
    }

    /// One more exchange.
    pub fn exchanged(&self) {
        self.lock().1.exchanges += 1;
    }

    /// A failure of what was begun at that time.
    pub fn failed(&self, track: Track, start: i64, trouble: Trouble) -> Result<()> {
        let failure = Failure {
            start,
            connect_start: track.started,
            end: now(),
            phase: trouble.phase,
            class: trouble.class,
            error: trouble.error,
            errno: trouble.errno,
            local: track.local,
            reused: track.exchanges > 0,
            pod: None,
        };
        self.lock().1.failed += 1;
        self.note(&Line::Failure(failure))
    }

    /// Writes how far it has come.
    pub fn progress(&self) -> Result<()> {
        let counts = self.lock().1;
        self.note(&Line::Progress(counts))
    }

    /// Writes the last line.
    pub fn end(&self) -> Result<()> {
        let counts = self.lock().1;
        self.note(&Line::End(counts))
    }

    fn note(&self, line: &Line) -> Result<()> {
        let text = serde_json::to_string(line).context("encode a line of a client's log")?;
        writeln!(self.lock().0, "{text}").context("write a client's log")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (File, Counts)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a client writes of a kind.
pub fn log(folder: &Path, client: &str, kind: Kind) -> PathBuf {
    folder.join(format!("{client}-{}.jsonl", kind.name()))
}

/// How far a client has come by its log; nowhere, before it has begun.
pub fn so_far(path: &Path) -> Counts {
    // The last line may be half written.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let counts = text.lines().rev().find_map(|line| match serde_json::from_str(line) {
        Ok(Line::Progress(counts) | Line::End(counts)) => Some(counts),
        _ => None,
    });
    counts.unwrap_or_default()
}

/// Reads a whole log.
pub fn read(path: &Path) -> Result<(Counts, Vec<Failure>)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let mut failures = Vec::new();
    for line in text.lines() {
        match serde_json::from_str(line).with_context(|| format!("a line of {}", path.display()))? {
            Line::Failure(failure) => failures.push(failure),
            Line::Progress(_) => {}
            Line::End(counts) => return Ok((counts, failures)),
        }
    }
    bail!("the log {} has no last line: its client did not end in order", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_without_its_last_line_is_none() {
        let path = std::env::temp_dir().join(format!("soak-truth-{}", std::process::id()));
        let tally = Tally::create(&path).expect("a log");
        tally.exchanged();
        tally.progress().expect("written");
        assert_eq!(so_far(&path).exchanges, 1);
        assert!(read(&path).is_err());
        tally.end().expect("written");
        let (counts, failures) = read(&path).expect("a whole log");
        assert_eq!((counts.exchanges, failures.len()), (1, 0));
        std::fs::remove_file(&path).expect("removed");
    }
}
