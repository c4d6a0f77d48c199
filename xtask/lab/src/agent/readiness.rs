//! What `/readyz` of an agent said and when, looked at again and again.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::net::http_get;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// An agent answers within milliseconds; this long means that it does not.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// From this moment on it said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// When it was first seen.
    pub at: Timestamp,
    /// Ready.
    pub ready: bool,
    /// What it said; of an agent that is not ready, why.
    pub said: String,
}

/// The looks at one agent's `/readyz`, until they are stopped.
#[derive(Debug)]
pub struct ReadinessWatch {
    stop: oneshot::Sender<()>,
    looks: JoinHandle<Result<Vec<Readiness>>>,
}

impl ReadinessWatch {
    /// Looks from now on.
    pub fn start(operations: SocketAddr) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self { stop, looks: tokio::spawn(look(operations, stopped)) }
    }

    /// Tells every change that was seen.
    pub async fn stop(self) -> Result<Vec<Readiness>> {
        // A watch that has already failed says why when it is joined.
        let _already_ended = self.stop.send(());
        self.looks.await.context("the watch of /readyz panicked")?
    }
}

async fn look(
    operations: SocketAddr,
    mut stopped: oneshot::Receiver<()>,
) -> Result<Vec<Readiness>> {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen: Vec<Readiness> = Vec::new();
    loop {
        let last = tokio::select! {
            _ = ticks.tick() => false,
            _ = &mut stopped => true,
        };
        let answer = timeout(ANSWERS_WITHIN, http_get(operations, "/readyz"))
            .await
            .with_context(|| format!("{operations} does not answer /readyz"))??;
        let (ready, said) = (answer.status == 200, answer.body.trim().to_owned());
        if seen.last().is_none_or(|last| last.ready != ready || last.said != said) {
            seen.push(Readiness { at: Timestamp::now(), ready, said });
        }
        if last {
            return Ok(seen);
        }
    }
}
