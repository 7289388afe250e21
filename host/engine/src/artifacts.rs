//! Compiled guests on disk.
//!
//! A file holds what Cranelift made of one module for one configuration of the
//! engine. It is machine code that will be run, so it is taken only from a
//! directory that nobody else can write to, and only if it is whole: a file
//! that is torn, of another version or another module's is compiled anew.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};
use tracing::{debug, warn};
use wasmtime::component::Component;

use crate::digest::ModuleDigest;
use crate::precompiled;

/// Why a directory cannot hold compiled guests.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactsError {
    /// It cannot be made, read or written.
    #[error("cannot use {} for compiled guests", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not safe to run what lies there.
    #[error(
        "cannot use {} for compiled guests: {problem}. Name a directory that \
         does not exist yet, or make it private (chmod 0700)",
        path.display()
    )]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// A private directory of compiled guests.
#[derive(Debug)]
pub(crate) struct CompiledArtifacts {
    directory: PathBuf,
    /// Wasmtime's hash of its version and of every setting that the machine
    /// code depends on.
    fingerprint: u64,
}

impl CompiledArtifacts {
    /// Makes the directory if there is none, and checks that it is private.
    pub(crate) fn open(
        directory: PathBuf,
        engine: &wasmtime::Engine,
    ) -> Result<Self, ArtifactsError> {
        let io = |source| ArtifactsError::Io {
            path: directory.clone(),
            source,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(io)?;
        if let Some(problem) = not_private(&directory).map_err(io)? {
            return Err(ArtifactsError::Unsafe {
                path: directory,
                problem,
            });
        }
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Self {
            directory,
            fingerprint: hasher.finish(),
        })
    }

    /// What an earlier run compiled for this module, if it is there and whole.
    pub(crate) fn load(
        &self,
        engine: &wasmtime::Engine,
        module: ModuleDigest,
    ) -> Option<Component> {
        let path = self.path(module);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                warn!(path = %path.display(), %error, "cannot read a compiled guest");
                return None;
            }
        };
        let loaded = unseal(&self.header(module), &bytes)
            .ok_or_else(|| "it is torn or not this module's".to_owned())
            .and_then(|code| {
                precompiled::deserialize(engine, code).map_err(|error| format!("{error:#}"))
            });
        match loaded {
            Ok(component) => Some(component),
            Err(reason) => {
                warn!(path = %path.display(), reason, "compiling a guest anew");
                None
            }
        }
    }

    /// Keeps a compiled module. A failure costs the next start some time and
    /// nothing else, so it is only logged.
    pub(crate) fn store(&self, component: &Component, module: ModuleDigest) {
        let path = self.path(module);
        let stored = component
            .serialize()
            .map_err(|error| format!("{error:#}"))
            .and_then(|code| {
                let sealed = seal(self.header(module), &code);
                replace(&self.directory, &path, &sealed).map_err(|error| error.to_string())
            });
        match stored {
            Ok(()) => debug!(path = %path.display(), "kept a compiled guest"),
            Err(reason) => warn!(path = %path.display(), reason, "cannot keep a compiled guest"),
        }
    }

    fn path(&self, module: ModuleDigest) -> PathBuf {
        let name = format!("{module}-{:016x}.cwasm", self.fingerprint);
        self.directory.join(name)
    }

    fn header(&self, module: ModuleDigest) -> Vec<u8> {
        let mut header = Vec::from(b"davit compiled guest 1\n");
        header.extend_from_slice(&module.0);
        header.extend_from_slice(&self.fingerprint.to_be_bytes());
        header
    }
}

/// The header, a checksum over header and code, the code.
fn seal(header: Vec<u8>, code: &[u8]) -> Vec<u8> {
    let mut sealed = header;
    let checksum = checksum(&sealed, code);
    sealed.extend_from_slice(&checksum);
    sealed.extend_from_slice(code);
    sealed
}

fn unseal<'a>(header: &[u8], sealed: &'a [u8]) -> Option<&'a [u8]> {
    let (found, code) = sealed.strip_prefix(header)?.split_first_chunk::<32>()?;
    (*found == checksum(header, code)).then_some(code)
}

fn checksum(header: &[u8], code: &[u8]) -> [u8; 32] {
    Sha256::new()
        .chain_update(header)
        .chain_update(code)
        .finalize()
        .into()
}

/// Writes beside the target and renames, so that a reader finds either nothing
/// or all of it.
fn replace(directory: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (mut file, temporary) = create_temporary(directory)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Nothing is lost if this fails too: the name is never used again.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn create_temporary(directory: &Path) -> io::Result<(File, PathBuf)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!(".{}-{number}.tmp", std::process::id()));
    // Left behind by an earlier process of this number.
    let _ = fs::remove_file(&path);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    Ok((file, path))
}

/// What keeps the directory from being private, if anything. Who this process
/// is, is learnt from the owner of a file that it makes.
fn not_private(directory: &Path) -> io::Result<Option<&'static str>> {
    let found = fs::symlink_metadata(directory)?;
    if !found.is_dir() {
        return Ok(Some("it is a symbolic link or no directory"));
    }
    if found.mode() & 0o022 != 0 {
        return Ok(Some("others may write to it"));
    }
    let (probe, path) = create_temporary(directory)?;
    let owner = probe.metadata().map(|probe| probe.uid());
    fs::remove_file(path)?;
    if owner? != found.uid() {
        return Ok(Some("it belongs to another user"));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_sealed_file_opens_only_whole_and_under_its_own_header() {
        let sealed = seal(b"header".to_vec(), b"code");
        assert_eq!(unseal(b"header", &sealed), Some(b"code".as_slice()));
        assert_eq!(unseal(b"Header", &sealed), None);
        assert_eq!(unseal(b"header", &sealed[..sealed.len() - 1]), None);
        assert_eq!(unseal(b"header", b"header"), None);
        for position in 0..sealed.len() {
            let mut torn = sealed.clone();
            torn[position] ^= 1;
            assert_eq!(unseal(b"header", &torn), None, "byte {position}");
        }
    }

    #[test]
    fn only_a_private_directory_is_used() {
        let parent = tempfile::tempdir().unwrap();
        let engine = wasmtime::Engine::default();
        let open = |name: &str| CompiledArtifacts::open(parent.path().join(name), &engine);

        open("new/deep").unwrap();
        let made = fs::metadata(parent.path().join("new/deep")).unwrap();
        assert_eq!(made.mode() & 0o777, 0o700);
        assert_eq!(
            fs::read_dir(parent.path().join("new/deep"))
                .unwrap()
                .count(),
            0
        );

        for mode in [0o777, 0o770, 0o702] {
            fs::set_permissions(
                parent.path().join("new/deep"),
                fs::Permissions::from_mode(mode),
            )
            .unwrap();
            let error = open("new/deep").unwrap_err();
            assert!(error.to_string().contains("others may write"), "{error}");
        }

        symlink(parent.path().join("new"), parent.path().join("link")).unwrap();
        let error = open("link").unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");

        fs::write(parent.path().join("file"), "").unwrap();
        assert!(open("file").is_err());
    }

    #[test]
    fn a_write_that_fails_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let taken = directory.path().join("taken");
        fs::create_dir(&taken).unwrap();
        replace(directory.path(), &taken, b"x").unwrap_err();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
