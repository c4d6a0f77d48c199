//! Whether everything is there that it takes: each check is fine, or says what breaks and the remedy.
//!
//! # Layout
//! - `node`: the kernel and this process's rights, on the machine where it runs
//! - `cluster`: the API server, who may do what, and the agents

mod cluster;
mod node;

use std::fmt;

use serde::Serialize;

pub use cluster::cluster;
pub use node::node;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Fine.
    Ok,
    /// Works, with something missing.
    Warning,
    /// It does not work like this.
    Broken,
    /// It could not be checked.
    Unknown,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warn",
            Self::Broken => "BROKEN",
            Self::Unknown => "unknown",
        })
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// How it came out.
    pub health: Health,
    /// What was checked.
    pub what: String,
    /// What was found.
    pub found: String,
    /// What breaks, and what to do; empty if it is fine.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Check {
    fn ok(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self { health: Health::Ok, what: what.into(), found: found.into(), remedy: String::new() }
    }

    fn not_ok(
        health: Health,
        what: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { health, what: what.into(), found: found.into(), remedy: remedy.into() }
    }
}

/// The worst of them.
pub fn worst(checks: &[Check]) -> Health {
    let worst = |health| checks.iter().any(|check| check.health == health);
    if worst(Health::Broken) {
        Health::Broken
    } else if worst(Health::Unknown) {
        Health::Unknown
    } else {
        Health::Ok
    }
}
