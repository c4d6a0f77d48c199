//! What the watches of one API server tell each other: that it is back, and that its versions have
//! begun anew. One that was restored from a backup is behind what the agent has seen, and what it
//! says then is the truth all the same.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, Notify},
    time::{Instant, timeout},
};

use super::{stream::Stopped, watch::Changes};
use crate::engine::ClusterChange;

/// All watches find it out, one after the other: this long it is the same restart.
const SAME: Duration = Duration::from_secs(30);

/// Shared by all watches.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    changes: Changes,
    told: Arc<Mutex<Option<Instant>>>,
    back: Arc<Notify>,
}

impl Timeline {
    pub(super) fn new(changes: Changes) -> Self {
        Self { changes, told: Arc::default(), back: Arc::default() }
    }

    /// A watch that was lost is open again: the others need not wait any longer. Evidence that
    /// comes by several watches would be incomplete meanwhile.
    pub(super) fn is_back(&self) {
        self.back.notify_waiters();
    }

    /// Waits before the next try, at most until another watch is back.
    pub(super) async fn pause(&self, longest: Duration) {
        // Either way it is time to try.
        let _waited = timeout(longest, self.back.notified()).await;
    }

    /// The server knows no version as new as one that it gave out. Told before anything that is
    /// listed anew.
    pub(super) async fn restarted(&self) -> Result<(), Stopped> {
        let mut told = self.told.lock().await;
        if told.is_some_and(|at| at.elapsed() < SAME) {
            return Ok(());
        }
        tracing::warn!(
            "the API server is behind what it said before, as after a restore: \
                        everything is listed anew"
        );
        self.changes.send(ClusterChange::VersionsRestarted).await?;
        *told = Some(Instant::now());
        Ok(())
    }
}
