//! What a writer does to files: the place at which tests have a full or failing disk.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Only the user who records may read a journal: it has what the guests read of the cluster, and
/// their configuration.
pub(crate) const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// Creates a directory and those above it, unless they exist.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(path)
}

/// The operations of a file system that a [`Writer`](crate::Writer) uses.
pub trait Storage {
    /// A segment that is open for writing.
    type File;

    /// Creates a file that must not exist.
    fn create(&mut self, path: &Path) -> io::Result<Self::File>;

    /// Appends a part of the bytes, and returns how many.
    fn write(&mut self, file: &mut Self::File, bytes: &[u8]) -> io::Result<usize>;

    /// Waits until what was written is on the disk.
    fn sync(&mut self, file: &mut Self::File) -> io::Result<()>;

    /// Waits until the names in a directory are on the disk.
    fn sync_directory(&mut self, path: &Path) -> io::Result<()>;

    /// Cuts a file to a length, in bytes.
    fn truncate(&mut self, path: &Path, length: u64) -> io::Result<()>;

    /// Removes a file.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
}

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files;

impl Storage for Files {
    type File = File;

    fn create(&mut self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(FILE_MODE);
        options.open(path)
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<usize> {
        file.write(bytes)
    }

    fn sync(&mut self, file: &mut File) -> io::Result<()> {
        file.sync_data()?;
        // What goes into a file without a name is lost with the process, and no error says so.
        if file.metadata()?.nlink() == 0 {
            return Err(io::Error::new(
                ErrorKind::NotFound,
                "the segment has been removed while it was written",
            ));
        }
        Ok(())
    }

    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn truncate(&mut self, path: &Path, length: u64) -> io::Result<()> {
        OpenOptions::new().write(true).open(path)?.set_len(length)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}
