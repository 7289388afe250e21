//! Which files have changed.
//!
//! The files are read again in a period: a watch of the operating system would miss the changes
//! of directories that are mounted from elsewhere. A file that was written with the same content,
//! as by a build that generates it, has not changed.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use davit_core::digest::ModuleDigest;

/// The most files that are read.
const MOST: usize = 10_000;
/// Directories of what is built or fetched.
const SKIPPED: [&str; 2] = ["target", "node_modules"];

/// Files and directories, with the content that they had.
pub(super) struct Sources {
    roots: Vec<PathBuf>,
    /// How many of the roots have to exist: the first ones, which the operator has named.
    named: usize,
    /// What the build writes.
    built: Option<PathBuf>,
    files: BTreeMap<PathBuf, FileState>,
    /// Whether they were read.
    is_read: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct FileState {
    modified: Option<SystemTime>,
    bytes: u64,
    digest: ModuleDigest,
}

impl Sources {
    /// The files below these paths, without the one that the build writes.
    pub(super) fn new(roots: Vec<PathBuf>, built: Option<PathBuf>) -> Self {
        Self {
            named: roots.len(),
            roots,
            built,
            files: BTreeMap::new(),
            is_read: false,
        }
    }

    /// Also what is below these paths, of which any may be absent, and be created later.
    pub(super) fn with_parts(mut self, parts: Vec<PathBuf>) -> Self {
        self.roots.extend(parts);
        self
    }

    /// Adds files that a build has read which started at this time. One that was written since
    /// then has changed: the build may have read what it had before.
    pub(super) fn add(&mut self, read: Vec<PathBuf>, started: SystemTime) {
        for path in read {
            if self.files.contains_key(&path) || self.roots.contains(&path) {
                continue;
            }
            let found = fs::metadata(&path).ok().filter(Metadata::is_file);
            let seen = found.and_then(|found| self.seen(&path, &found));
            let Some(seen) = seen else { continue };
            self.roots.push(path.clone());
            if seen.modified.is_some_and(|it| it < started) {
                self.files.insert(path, seen);
            }
        }
    }

    /// Reads what is new; returns the first path whose content has changed since the last time.
    /// What the operator has named and is absent is an error the first time. Later it is gone, until
    /// it is back: an editor may write a file by replacing it.
    pub(super) fn changed(&mut self) -> Result<Option<PathBuf>> {
        let mut present = BTreeMap::new();
        for (at, root) in self.roots.iter().enumerate() {
            match fs::metadata(root) {
                Ok(found) => self.visit(root, &found, &mut present)?,
                // Cargo reads no settings that it may not look at.
                Err(_) if at >= self.named => {}
                Err(error) if error.kind() == ErrorKind::NotFound && self.is_read => {}
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("{} cannot be read", root.display()));
                }
            }
        }
        let changed = present
            .iter()
            .find(|(path, seen)| self.files.get(*path).map(|one| one.digest) != Some(seen.digest));
        let gone = self.files.keys().find(|path| !present.contains_key(*path));
        let changed = changed.map(|(path, _)| path).or(gone).cloned();
        (self.files, self.is_read) = (present, true);
        Ok(changed)
    }

    /// A file may go while the directory is read.
    fn visit(
        &self,
        path: &Path,
        found: &Metadata,
        present: &mut BTreeMap<PathBuf, FileState>,
    ) -> Result<()> {
        if found.is_dir() {
            for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                // A link may lead out of the directory, or back into it.
                let Ok(metadata) = entry.metadata() else {
                    continue;
                };
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let is_source = !name.starts_with('.') && !SKIPPED.contains(&&*name);
                if is_source && !metadata.is_symlink() {
                    self.visit(&entry.path(), &metadata, present)?;
                }
            }
            return Ok(());
        }
        if !found.is_file() || self.built.as_deref() == Some(path) {
            return Ok(());
        }
        if present.len() == MOST {
            bail!("there are more than {MOST} files to watch: name the sources with --watch");
        }
        if let Some(seen) = self.seen(path, found) {
            present.insert(path.to_owned(), seen);
        }
        Ok(())
    }

    fn seen(&self, path: &Path, found: &Metadata) -> Option<FileState> {
        let (modified, bytes) = (found.modified().ok(), found.len());
        let known = self.files.get(path).copied();
        let is_known =
            |one: &FileState| modified.is_some() && (one.modified, one.bytes) == (modified, bytes);
        known.filter(is_known).or_else(|| {
            let content = fs::read(path).ok()?;
            Some(FileState {
                modified,
                bytes,
                digest: ModuleDigest::of(&content),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_another_content_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), text).unwrap();
        };
        write("src/lib.rs", "one");
        write("guest.wasm", "one");
        let mut sources = Sources::new(vec![path("")], Some(path("guest.wasm")));
        assert_eq!(sources.changed().unwrap(), Some(path("src/lib.rs")));
        assert_eq!(sources.changed().unwrap(), None);

        write("src/lib.rs", "other");
        assert_eq!(sources.changed().unwrap(), Some(path("src/lib.rs")));
        write("src/lib.rs", "other");
        assert_eq!(sources.changed().unwrap(), None, "the same again");
        write("src/new.rs", "");
        assert_eq!(sources.changed().unwrap(), Some(path("src/new.rs")));
        fs::remove_file(path("src/new.rs")).unwrap();
        assert_eq!(sources.changed().unwrap(), Some(path("src/new.rs")));

        for built in ["guest.wasm", "target/a.d", "node_modules/a.js", ".git/HEAD"] {
            write(built, "two");
        }
        assert_eq!(sources.changed().unwrap(), None);
        let mut absent = Sources::new(vec![path("absent")], None);
        let error = absent.changed().unwrap_err().to_string();
        assert!(error.ends_with("absent cannot be read"), "{error}");
    }

    #[test]
    fn a_part_may_be_created_later() {
        let directory = tempfile::tempdir().unwrap();
        let part = directory.path().join("build.rs");
        let mut sources = Sources::new(vec![], None).with_parts(vec![part.clone()]);
        assert_eq!(sources.changed().unwrap(), None);
        fs::write(&part, "one").unwrap();
        assert_eq!(sources.changed().unwrap(), Some(part));
    }

    #[test]
    fn a_file_that_is_absent_for_a_moment_has_changed_and_changes_when_it_is_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        fs::write(&path, "one").unwrap();
        let mut sources = Sources::new(vec![path.clone()], None);
        assert_eq!(sources.changed().unwrap(), Some(path.clone()));
        fs::remove_file(&path).unwrap();
        assert_eq!(sources.changed().unwrap(), Some(path.clone()));
        assert_eq!(sources.changed().unwrap(), None);
        fs::write(&path, "one").unwrap();
        assert_eq!(sources.changed().unwrap(), Some(path));
    }

    #[test]
    fn what_a_build_has_read_is_watched_from_then_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["lib.rs", "text.txt", "other.txt"] {
            fs::write(path(name), name).unwrap();
        }
        let mut sources = Sources::new(vec![path("lib.rs")], None);
        sources.changed().unwrap();
        let read = || ["lib.rs", "text.txt", "absent.txt"].map(path).to_vec();
        let later = SystemTime::now() + std::time::Duration::from_secs(1);
        for _ in 0..2 {
            sources.add(read(), later);
            assert_eq!(sources.changed().unwrap(), None);
        }
        fs::write(path("other.txt"), "new").unwrap();
        assert_eq!(sources.changed().unwrap(), None, "it was not read");
        fs::write(path("text.txt"), "new").unwrap();
        assert_eq!(sources.changed().unwrap(), Some(path("text.txt")));

        // Written while the build ran.
        let before = SystemTime::UNIX_EPOCH;
        sources.add(vec![path("other.txt")], before);
        assert_eq!(sources.changed().unwrap(), Some(path("other.txt")));
        assert_eq!(sources.changed().unwrap(), None);
    }

    #[test]
    fn a_directory_of_too_many_files_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..=MOST {
            fs::write(directory.path().join(number.to_string()), "").unwrap();
        }
        let mut sources = Sources::new(vec![directory.path().to_owned()], None);
        let error = sources.changed().unwrap_err().to_string();
        assert!(error.contains("--watch"), "{error}");
    }
}
