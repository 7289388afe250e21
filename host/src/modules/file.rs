//! Reads modules and certificates from files.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{MOST_BYTES, blocking};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{purpose} {path} cannot be read", path = path.display())]
pub struct FileError {
    /// Its purpose: `the module`.
    pub purpose: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The problem.
    #[source]
    pub problem: FileProblem,
}

/// A problem with a file.
#[derive(Debug, thiserror::Error)]
pub enum FileProblem {
    /// It is missing, or Davit may not read it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A directory, a pipe or a device: a read might never end.
    #[error("it is not a regular file")]
    NotRegular,
    /// It is larger than the largest module.
    #[error("it has more than {MOST_BYTES} bytes, the largest module that Davit loads")]
    TooLarge,
}

/// The content of a file; `purpose` names its purpose in the error.
pub(super) async fn read(purpose: &'static str, path: &Path) -> Result<Vec<u8>, FileError> {
    let path = path.to_owned();
    blocking(move || read_whole(&path).map_err(|problem| error(purpose, &path, problem))).await
}

/// Identifies a file's content without reading it. A file that is written or replaced
/// has another version, also through the links by which a mounted `ConfigMap` changes.
pub(super) fn version(purpose: &'static str, path: &Path) -> Result<String, FileError> {
    let found = regular(path).map_err(|problem| error(purpose, path, problem))?;
    Ok(format!(
        "{}/{}/{}/{}.{}",
        found.dev(),
        found.ino(),
        found.len(),
        found.mtime(),
        found.mtime_nsec()
    ))
}

fn error(purpose: &'static str, path: &Path, problem: FileProblem) -> FileError {
    FileError {
        purpose,
        path: path.to_owned(),
        problem,
    }
}

/// The content of a regular file that is no larger than the largest module.
pub(crate) fn read_whole(path: &Path) -> Result<Vec<u8>, FileProblem> {
    // Opening a pipe would wait for a writer.
    regular(path)?;
    let mut bytes = Vec::new();
    let mut limited = File::open(path)?.take(MOST_BYTES as u64 + 1);
    limited.read_to_end(&mut bytes)?;
    if bytes.len() > MOST_BYTES {
        return Err(FileProblem::TooLarge);
    }
    Ok(bytes)
}

fn regular(path: &Path) -> Result<Metadata, FileProblem> {
    let found = fs::metadata(path)?;
    if found.is_file() {
        Ok(found)
    } else {
        Err(FileProblem::NotRegular)
    }
}
