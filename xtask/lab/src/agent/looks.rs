//! What an agent says at one path, looked at again and again until that is stopped.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::net::{HttpAnswer, http_get};

/// Between two looks: fine beside the bar of a second, and cheap.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// An answer takes a few milliseconds; this long means that there is none.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Notes what there is to note of each answer.
pub trait Notes: Send + 'static {
    /// The next answer.
    fn note(&mut self, answer: &HttpAnswer) -> Result<()>;
}

/// The looks.
#[derive(Debug)]
pub struct Looks<N> {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<N>>,
    path: &'static str,
}

impl<N: Notes> Looks<N> {
    /// Looks from now on.
    pub fn start(at: SocketAddr, path: &'static str, notes: N) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self { stop, task: tokio::spawn(look(at, path, notes, stopped)), path }
    }

    /// Looks a last time, and hands out what was noted.
    pub async fn stop(self) -> Result<N> {
        // One that has already failed says why when it is joined.
        let _already_ended = self.stop.send(());
        self.task.await.with_context(|| format!("the watch of {} panicked", self.path))?
    }
}

async fn look<N: Notes>(
    at: SocketAddr,
    path: &'static str,
    mut notes: N,
    mut stopped: oneshot::Receiver<()>,
) -> Result<N> {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let last = tokio::select! {
            _ = ticks.tick() => false,
            _ = &mut stopped => true,
        };
        let answer = timeout(ANSWERS_WITHIN, http_get(at, path))
            .await
            .with_context(|| format!("{at} does not answer {path}"))??;
        notes.note(&answer)?;
        if last {
            return Ok(notes);
        }
    }
}
