//! The history's file in `--state-dir`: what one agent leaves to the next, as versioned JSON.
//!
//! It is written anew beside the old one and put in its place, so that a crash leaves one or the
//! other whole. A file that is damaged, of another format or of another node is set aside, never
//! overwritten unread.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::engine::{History, Recalled};

/// Version of the format.
pub const VERSION: u32 = 1;

/// Identity of the running kernel's boot (`Documentation/admin-guide/sysctl/kernel.rst`).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Why the history cannot be kept.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// The folder or a file in it cannot be used.
    #[error(
        "cannot {what} {path}: name a folder that the agent may write with --state-dir, or leave it away"
    )]
    File {
        /// Operation.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another agent uses the folder.
    #[error("{path} is in use by another agent: stop it, or name another folder with --state-dir")]
    InUse {
        /// The folder.
        path: PathBuf,
    },
}

/// What every format has.
#[derive(Deserialize)]
struct AnyHeader {
    rollrace_history: u32,
}

#[derive(Serialize, Deserialize)]
struct Content<H> {
    rollrace_history: u32,
    boot: Arc<str>,
    history: H,
}

/// What was found in the folder.
#[derive(Debug)]
pub enum Found {
    /// Nothing: the first agent here.
    Nothing,
    /// What an earlier agent left.
    Left(Box<Recalled>),
    /// Something that is of no use; it lies there now.
    SetAside {
        /// Where it lies.
        to: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// The folder, held by this agent for as long as this lives.
#[derive(Debug)]
pub struct HistoryFile {
    path: PathBuf,
    boot: Arc<str>,
    _lock: File,
}

impl HistoryFile {
    /// Takes the folder, and reads what an earlier agent left for this node.
    ///
    /// # Errors
    /// If the folder cannot be made, written or read, or another agent holds it.
    pub fn open(folder: &Path, node: &str) -> Result<(Self, Found), HistoryError> {
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| HistoryError::File { what, path, source }
        };
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        let lock_path = folder.join("lock");
        let lock = File::create(&lock_path).map_err(failed("write", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(HistoryError::InUse { path: folder.to_owned() });
            }
            Err(fs::TryLockError::Error(error)) => return Err(failed("lock", &lock_path)(error)),
        }
        let boot = fs::read_to_string(BOOT_ID).map_err(failed("read", Path::new(BOOT_ID)))?;
        let path = folder.join("history.json");
        let file = Self { path, boot: boot.trim().into(), _lock: lock };
        let bytes = match fs::read(&file.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((file, Found::Nothing));
            }
            Err(error) => return Err(failed("read", &file.path)(error)),
        };
        match file.understand(&bytes, node) {
            Ok(recalled) => Ok((file, Found::Left(Box::new(recalled)))),
            Err(why) => {
                let to = file.path.with_extension("json.set-aside");
                fs::rename(&file.path, &to).map_err(failed("set aside", &file.path))?;
                Ok((file, Found::SetAside { to, why }))
            }
        }
    }

    fn understand(&self, bytes: &[u8], node: &str) -> Result<Recalled, String> {
        let damaged = |error| format!("it is damaged: {error}");
        let AnyHeader { rollrace_history: format } =
            serde_json::from_slice(bytes).map_err(damaged)?;
        if format != VERSION {
            return Err(format!("it is of format {format}, and this agent reads {VERSION}"));
        }
        let Content { boot, history, .. } =
            serde_json::from_slice::<Content<History>>(bytes).map_err(damaged)?;
        if &*history.node != node {
            return Err(format!("it is of the node {}", history.node));
        }
        Ok(Recalled { same_boot: boot == self.boot, history })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it, and returns its size in bytes. Blocks.
    ///
    /// # Errors
    /// If it cannot be written; what was there before remains.
    pub fn write(&self, history: &History) -> Result<u64, HistoryError> {
        let beside = self.path.with_extension("json.new");
        let failed = |source| HistoryError::File { what: "write", path: beside.clone(), source };
        let content = Content { rollrace_history: VERSION, boot: self.boot.clone(), history };
        let mut out = BufWriter::new(File::create(&beside).map_err(failed)?);
        serde_json::to_writer(&mut out, &content).map_err(|error| failed(error.into()))?;
        out.write_all(b"\n").map_err(failed)?;
        let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_all().map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        fs::rename(&beside, &self.path).map_err(|source| HistoryError::File {
            what: "replace",
            path: self.path.clone(),
            source,
        })?;
        Ok(size)
    }
}
