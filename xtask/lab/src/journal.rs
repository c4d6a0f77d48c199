//! The lab's journal: what happened and when, written as JSON lines and kept for the comparison.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::watch;

/// Something that happened in the lab.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A pod's network exists and its container has been started.
    PodStarted {
        /// Its node.
        node: String,
        /// `namespace/name`.
        pod: String,
        /// Its UID.
        uid: String,
        /// Its addresses, one of each family (the node's, on the host network).
        addresses: Vec<IpAddr>,
    },
    /// The kubelet has seen the pod's deletion.
    PodTerminating {
        /// Its node.
        node: String,
        /// `namespace/name`.
        pod: String,
    },
    /// A signal was sent to a container.
    Signal {
        /// Its node.
        node: String,
        /// `namespace/name`.
        pod: String,
        /// `SIGTERM` or `SIGKILL`.
        signal: String,
    },
    /// A container has exited.
    ContainerExited {
        /// Its node.
        node: String,
        /// `namespace/name`.
        pod: String,
        /// Its exit code, 128 + signal when a signal ended it.
        code: i32,
    },
    /// A pod's link and namespace are gone.
    PodNetworkGone {
        /// Its node.
        node: String,
        /// `namespace/name`.
        pod: String,
    },
    /// A proxy's rules name a backend since now.
    RuleAdded {
        /// The proxy's node.
        node: String,
        /// The backend.
        backend: SocketAddr,
    },
    /// A proxy's rules name a backend no more.
    RuleGone {
        /// The proxy's node.
        node: String,
        /// The backend.
        backend: SocketAddr,
    },
    /// Anything of the run itself: load starts, rollout starts, completes, …
    Phase {
        /// What.
        name: String,
    },
}

/// An event and its time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// When, by the machine's clock.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// The journal; clones share it. Bounded by the run: a few entries a pod and node.
#[derive(Debug, Clone)]
pub struct Journal {
    shared: Arc<Mutex<Shared>>,
    length: watch::Sender<usize>,
}

#[derive(Debug)]
struct Shared {
    file: File,
    entries: Vec<Entry>,
    failure: Option<String>,
}

impl Journal {
    /// A journal that writes to a file.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self {
            shared: Arc::new(Mutex::new(Shared { file, entries: Vec::new(), failure: None })),
            length: watch::Sender::new(0),
        })
    }

    /// Notes an event that happens now.
    pub fn note(&self, event: Event) {
        self.note_at(Timestamp::now(), event);
    }

    /// Notes an event of a given time.
    pub fn note_at(&self, at: Timestamp, event: Event) {
        let entry = Entry { at, event };
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let written = serde_json::to_string(&entry)
            .map_err(anyhow::Error::from)
            .and_then(|line| writeln!(shared.file, "{line}").map_err(anyhow::Error::from));
        if let Err(error) = written {
            shared.failure.get_or_insert(format!("{error:#}"));
        }
        shared.entries.push(entry);
        let length = shared.entries.len();
        drop(shared);
        self.length.send_replace(length);
    }

    /// Notes a step of the run.
    pub fn phase(&self, name: &str) {
        self.note(Event::Phase { name: name.to_owned() });
    }

    /// All entries so far; an error when the file could not be written.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match &shared.failure {
            Some(failure) => anyhow::bail!("write the journal: {failure}"),
            None => Ok(shared.entries.clone()),
        }
    }

    /// Waits until the entries satisfy a condition.
    pub async fn wait_for(&self, mut condition: impl FnMut(&[Entry]) -> bool) -> Result<()> {
        let mut length = self.length.subscribe();
        loop {
            length.borrow_and_update();
            if condition(&self.entries()?) {
                return Ok(());
            }
            length.changed().await.context("the journal ended")?;
        }
    }
}
