//! A directory with a file for each controller.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use davit_engine::cache_files::write_whole;

use super::RecordError;
use super::book::Book;

/// A directory with a file `NAME.json` for each controller.
pub struct Directory(PathBuf);

impl Directory {
    /// Makes the directory if there is none, for this user alone.
    pub(super) fn open(path: PathBuf) -> Result<Self, RecordError> {
        let mut builder = DirBuilder::new();
        match builder.recursive(true).mode(0o700).create(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(file_error("make", path, source)),
        }
    }

    /// What is remembered of a controller; nothing if there is no file.
    pub(super) fn read(&self, name: &str) -> Result<Book, RecordError> {
        let path = self.path(name);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Book::default()),
            Err(source) => return Err(file_error("read", path, source)),
        };
        serde_json::from_slice(&text).map_err(|error| RecordError::Unreadable {
            place: path.display().to_string(),
            reason: error.to_string(),
        })
    }

    /// Writes a changed file, if it is changed.
    pub(super) fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut Book),
    ) -> Result<(), RecordError> {
        let before = self.read(name)?;
        let mut book = before.clone();
        change(&mut book);
        if book == before {
            return Ok(());
        }
        let path = self.path(name);
        let text = serde_json::to_vec_pretty(&book).map_err(io::Error::from);
        let written = text.and_then(|text| write_whole(&path, &text));
        written.map_err(|source| file_error("write", path, source))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }
}

fn file_error(verb: &'static str, path: PathBuf, source: io::Error) -> RecordError {
    RecordError::File { verb, path, source }
}
