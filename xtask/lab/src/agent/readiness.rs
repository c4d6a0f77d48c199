//! What `/readyz` of an agent said and when, looked at again and again.

use std::net::SocketAddr;

use anyhow::Result;
use jiff::Timestamp;
use serde::Serialize;

use super::looks::{Looks, Notes};
use crate::net::HttpAnswer;

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

/// Every change that was seen.
#[derive(Debug, Default)]
struct Changes(Vec<Readiness>);

impl Notes for Changes {
    fn note(&mut self, answer: &HttpAnswer) -> Result<()> {
        let (ready, said) = (answer.status == 200, answer.body.trim().to_owned());
        if self.0.last().is_none_or(|last| last.ready != ready || last.said != said) {
            self.0.push(Readiness { at: Timestamp::now(), ready, said });
        }
        Ok(())
    }
}

/// The looks at one agent's `/readyz`, until they are stopped.
#[derive(Debug)]
pub struct ReadinessWatch(Looks<Changes>);

impl ReadinessWatch {
    /// Looks from now on.
    pub fn start(operations: SocketAddr) -> Self {
        Self(Looks::start(operations, "/readyz", Changes::default()))
    }

    /// Tells every change that was seen.
    pub async fn stop(self) -> Result<Vec<Readiness>> {
        Ok(self.0.stop().await?.0)
    }
}
