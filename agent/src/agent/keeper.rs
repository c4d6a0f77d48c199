//! Keeps the history: writes it now and then, and once more at the end, without making the engine
//! wait for the disk.

use std::{path::Path, sync::Arc};

use futures::FutureExt as _;
use jiff::Timestamp;
use tokio::task::{JoinError, JoinHandle};
use tracing::{info, warn};

use crate::{
    engine::{Recalled, State},
    history::{Found, HistoryError, HistoryFile},
    http::HistoryStatus,
    model::Mono,
};

/// How often it is written, and for each MiB of it: at most some 100 kB a second.
const EVERY_NANOS: u64 = 10_000_000_000;

/// Writes the history.
pub struct Keeper {
    file: Arc<HistoryFile>,
    left: Option<Box<Recalled>>,
    status: HistoryStatus,
    due: Mono,
    writing: Option<JoinHandle<Result<u64, HistoryError>>>,
    taken: Timestamp,
}

impl Keeper {
    /// Takes the folder.
    ///
    /// # Errors
    /// See [`HistoryFile::open`].
    pub fn open(folder: &Path, node: &str) -> Result<Self, HistoryError> {
        let (file, found) = HistoryFile::open(folder, node)?;
        let left = match found {
            Found::Nothing => None,
            Found::Left(recalled) => Some(recalled),
            Found::SetAside { to, why } => {
                warn!(file = %to.display(), "the history of an earlier agent was set aside: {why}");
                None
            }
        };
        let status = HistoryStatus {
            path: file.path().into(),
            written: None,
            bytes: 0,
            failed: 0,
            left_out: 0,
        };
        Ok(Self {
            file: Arc::new(file),
            left,
            status,
            due: Mono(0),
            writing: None,
            taken: Timestamp::UNIX_EPOCH,
        })
    }

    /// What an earlier agent left: to be taken up once.
    pub fn left(&mut self) -> Option<Box<Recalled>> {
        let left = self.left.take()?;
        let until = left.history.clock.wall(left.history.whole_until);
        info!(%until, same_boot = left.same_boot, "the history of an earlier agent was taken up");
        Some(left)
    }

    /// How it stands.
    pub fn status(&self) -> &HistoryStatus {
        &self.status
    }

    /// Begins to write if it is time; takes note of how the last time ended.
    pub fn tick(&mut self, state: &State, now: Mono) {
        if let Some(writing) = &mut self.writing {
            let Some(ended) = writing.now_or_never() else { return };
            self.writing = None;
            self.ended(ended);
        }
        if now < self.due {
            return;
        }
        self.due = now.plus(EVERY_NANOS * (1 + self.status.bytes / 1_048_576));
        self.begin(state);
    }

    /// Writes it for the last time, and waits for that.
    pub async fn finish(mut self, state: &State) {
        if let Some(writing) = self.writing.take() {
            // A failure of that one is a failure of the next.
            drop(writing.await);
        }
        self.begin(state);
        if let Some(writing) = self.writing.take() {
            self.ended(writing.await);
        }
    }

    fn begin(&mut self, state: &State) {
        let history = state.history();
        self.taken = history.clock.wall;
        self.status.left_out = history.left_out;
        let file = self.file.clone();
        self.writing = Some(tokio::task::spawn_blocking(move || file.write(&history)));
    }

    fn ended(&mut self, ended: Result<Result<u64, HistoryError>, JoinError>) {
        match ended {
            Ok(written) => self.note(written),
            Err(error) => warn!("the task that writes the history ended: {error}"),
        }
    }

    fn note(&mut self, written: Result<u64, HistoryError>) {
        match written {
            Ok(bytes) => {
                self.status.bytes = bytes;
                self.status.written = Some(self.taken);
            }
            Err(error) => {
                self.status.failed += 1;
                // Once, then every ten minutes or so.
                if self.status.failed % 60 == 1 {
                    let failed = self.status.failed;
                    warn!(
                        failed,
                        "a restart now would lose history: {error:#}",
                        error = anyhow::Error::from(error)
                    );
                }
            }
        }
    }
}
