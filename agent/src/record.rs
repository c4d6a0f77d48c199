//! Recordings: every input of the engine as versioned JSON lines.
//!
//! The first line is a header with the engine's configuration; each further line is one input. A
//! recording that was cut off is used as far as it is whole.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::engine::{Config, Input};

/// Version of the format.
pub const VERSION: u32 = 1;

/// What every version's header has.
#[derive(Deserialize)]
struct AnyHeader {
    rollrace_recording: u32,
}

#[derive(Serialize, Deserialize)]
struct Header {
    rollrace_recording: u32,
    config: Config,
}

/// Why a recording cannot be used.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The file cannot be opened or written.
    #[error("cannot {what} the recording {path}")]
    File {
        /// Operation.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no recording.
    #[error("{path} is no rollrace recording: its first line is not a header")]
    NotARecording {
        /// Which.
        path: PathBuf,
    },
    /// It is of another version.
    #[error(
        "{path} is a recording of format {found}, this rollrace reads format {VERSION}: use the rollrace that made it"
    )]
    Version {
        /// Which.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
}

/// Writes a recording.
pub struct Recorder {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Recorder {
    /// Begins a recording; an existing file is replaced.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn create(path: &Path, config: &Config) -> Result<Self, RecordError> {
        let error = |source| RecordError::File { what: "create", path: path.to_owned(), source };
        let file = BufWriter::new(File::create(path).map_err(error)?);
        let mut recorder = Self { path: path.to_owned(), file };
        recorder.line(&Header { rollrace_recording: VERSION, config: config.clone() })?;
        Ok(recorder)
    }

    /// Adds an input.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn input(&mut self, input: &Input) -> Result<(), RecordError> {
        self.line(input)
    }

    /// Hands what is buffered to the kernel.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        self.file.flush().map_err(|source| self.failed(source))
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), RecordError> {
        serde_json::to_writer(&mut self.file, value)
            .map_err(io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"))
            .map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> RecordError {
        RecordError::File { what: "write", path: self.path.clone(), source }
    }
}

/// A recording read back.
#[derive(Debug)]
pub struct Recording {
    /// The engine's configuration.
    pub config: Config,
    /// Inputs, in order.
    pub inputs: Vec<Input>,
    /// The number of the line at which it was cut off or damaged, if it was.
    pub cut_off_at: Option<usize>,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// If it cannot be read, is none, or of another version.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        let failed = |source| RecordError::File { what: "read", path: path.to_owned(), source };
        // Bytes, not text: a line may be cut off within a character.
        let mut lines = BufReader::new(File::open(path).map_err(failed)?).split(b'\n');
        let first = lines.next().transpose().map_err(failed)?.unwrap_or_default();
        let no_header = |_| RecordError::NotARecording { path: path.to_owned() };
        let AnyHeader { rollrace_recording: found } =
            serde_json::from_slice(&first).map_err(no_header)?;
        if found != VERSION {
            return Err(RecordError::Version { path: path.to_owned(), found });
        }
        let header: Header = serde_json::from_slice(&first).map_err(no_header)?;
        let mut recording = Self { config: header.config, inputs: Vec::new(), cut_off_at: None };
        for (number, line) in lines.enumerate() {
            let line = line.map_err(failed)?;
            if let Ok(input) = serde_json::from_slice(&line) {
                recording.inputs.push(input);
            } else {
                recording.cut_off_at = Some(number + 2);
                break;
            }
        }
        Ok(recording)
    }
}
