//! A directory with a file for each controller.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use davit_core::control::{ControllerRecord, Owner, Record};
use davit_engine::cache_files::write_whole;

use super::RecordError;

/// A directory with a file `NAME.json` for each controller.
pub struct Directory {
    path: PathBuf,
    writes: Mutex<()>,
}

impl Directory {
    /// Makes the directory if there is none, for this user alone.
    pub(super) fn open(path: PathBuf) -> Result<Self, RecordError> {
        let mut builder = DirBuilder::new();
        match builder.recursive(true).mode(0o700).create(&path) {
            Ok(()) => Ok(Self {
                path,
                writes: Mutex::default(),
            }),
            Err(source) => Err(file_error("make", path, source)),
        }
    }

    /// What is recorded of a controller; nothing if there is no file.
    pub(super) fn read(&self, owner: &Owner) -> Result<ControllerRecord, RecordError> {
        let path = self.path(&owner.name);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(ControllerRecord::default());
            }
            Err(source) => return Err(file_error("read", path, source)),
        };
        serde_json::from_slice(&text).map_err(|error| RecordError::Unreadable {
            place: path.display().to_string(),
            reason: error.to_string(),
        })
    }

    /// Writes a changed file, if it is changed.
    pub(super) fn write(&self, owner: &Owner, record: Record) -> Result<(), RecordError> {
        // Two writes at once would lose one of them.
        let _one = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.read(owner)?;
        let mut after = before.clone();
        after.write(record);
        if after == before {
            return Ok(());
        }
        let path = self.path(&owner.name);
        let text = serde_json::to_vec_pretty(&after).map_err(io::Error::from);
        let written = text.and_then(|text| write_whole(&path, &text));
        written.map_err(|source| file_error("write", path, source))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.json"))
    }
}

fn file_error(verb: &'static str, path: PathBuf, source: io::Error) -> RecordError {
    RecordError::File { verb, path, source }
}
