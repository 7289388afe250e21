//! Compiled guests on disk.
//!
//! A file holds Cranelift's output for one module and one configuration of the
//! engine. It is machine code that will be executed. So it is loaded only from
//! a directory that nobody else can write to, from a file of this user, and only if
//! a host with the directory's key has written it whole. A file that is torn, of
//! another version or of another module is compiled again.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, Permissions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use davit_core::digest::ModuleDigest;
use tracing::{debug, warn};
use wasmtime::component::Component;

use crate::cache_files::{self, Room};
use crate::precompiled;
use crate::seal::{self, Key};

const SUFFIX: &str = ".cwasm";
/// The limit of the cache. A compiled module is three to four times as large as
/// its source.
const ROOM: Room = Room {
    files: 64,
    bytes: 1 << 30,
};

/// Why a directory cannot hold compiled guests.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactsError {
    /// It cannot be created, read or written.
    #[error("cannot use {} for compiled guests", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is not safe to execute its files.
    #[error("cannot use {} for compiled guests: {problem}", path.display())]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: UnsafeProblem,
    },
}

/// Why it is not safe to execute a directory's files. Each text says what to
/// do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsafeProblem {
    /// A link may be changed to another directory.
    #[error("it is a symbolic link or not a directory: name the directory itself")]
    NotADirectory,
    /// Everybody may write to it.
    #[error(
        "others may write to it: empty it, because its files are executed, and make it private \
         (chmod 0700)"
    )]
    OthersWrite,
    /// Its owner may write to it.
    #[error(
        "it belongs to user {owner}, and Davit runs as user {own}: name a directory that does not \
         exist yet, or run Davit as user {owner}"
    )]
    OtherOwner {
        /// The user that owns the directory.
        owner: u32,
        /// The user that Davit runs as.
        own: u32,
    },
}

/// A private directory of compiled guests.
#[derive(Debug)]
pub(crate) struct CompiledArtifacts {
    directory: PathBuf,
    /// Wasmtime's hash of its version and of every setting that the machine
    /// code depends on.
    fingerprint: u64,
    key: Key,
}

impl CompiledArtifacts {
    /// Creates the directory if it does not exist, and checks that it is
    /// private.
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
        if let Some(problem) = make_private(&directory).map_err(io)? {
            return Err(ArtifactsError::Unsafe {
                path: directory,
                problem,
            });
        }
        cache_files::drop_abandoned(&directory);
        let key = Key::open(&directory).map_err(io)?;
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Self {
            directory,
            fingerprint: hasher.finish(),
            key,
        })
    }

    /// The output of an earlier run for this module, if it exists and is
    /// complete.
    pub(crate) fn load(
        &self,
        engine: &wasmtime::Engine,
        module: ModuleDigest,
    ) -> Option<Component> {
        let path = self.path(module);
        let bytes = match cache_files::read_own(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                warn!(path = %path.display(), %error, "cannot read a compiled guest");
                return None;
            }
        };
        let loaded = self
            .key
            .unseal(&self.header(module), &bytes)
            .ok_or_else(|| "the file is torn, or not of this directory's key".to_owned())
            .and_then(|code| {
                precompiled::deserialize(engine, code).map_err(|error| format!("{error:#}"))
            });
        match loaded {
            Ok(component) => {
                cache_files::touch(&path);
                Some(component)
            }
            Err(reason) => {
                warn!(path = %path.display(), reason, "cannot use a compiled guest; compiling it again");
                None
            }
        }
    }

    /// Stores the machine code of a module. A failure costs the next start some time
    /// and nothing else, so it is only logged.
    pub(crate) fn store(&self, code: &[u8], module: ModuleDigest) {
        let path = self.path(module);
        match cache_files::write_whole(&path, &self.key.seal(self.header(module), code)) {
            Ok(()) => debug!(path = %path.display(), "stored a compiled guest"),
            Err(error) => warn!(path = %path.display(), %error, "cannot store a compiled guest"),
        }
    }

    /// Deletes the least recently used files beyond the limit, except those of
    /// these modules.
    pub(crate) fn prune(&self, in_use: &BTreeSet<ModuleDigest>) {
        let in_use: BTreeSet<String> = in_use.iter().map(|module| self.name(*module)).collect();
        cache_files::prune(&self.directory, ROOM, |file| {
            file.ends_with(SUFFIX).then(|| in_use.contains(file))
        });
    }

    fn path(&self, module: ModuleDigest) -> PathBuf {
        self.directory.join(self.name(module))
    }

    fn name(&self, module: ModuleDigest) -> String {
        format!("{module}-{:016x}{SUFFIX}", self.fingerprint)
    }

    fn header(&self, module: ModuleDigest) -> Vec<u8> {
        let mut header = Vec::from(b"davit compiled guest 2\n");
        header.extend_from_slice(&module.0);
        header.extend_from_slice(&self.fingerprint.to_be_bytes());
        header
    }
}

/// Why the directory is not private, if it is not. A file that this process
/// creates shows which user the process runs as.
///
/// The kubelet lets a pod's `fsGroup` write to everything on a volume that it
/// mounts again. So the directory loses that permission, and the files that the
/// group may have written.
fn make_private(directory: &Path) -> io::Result<Option<UnsafeProblem>> {
    let found = fs::symlink_metadata(directory)?;
    if !found.is_dir() {
        return Ok(Some(UnsafeProblem::NotADirectory));
    }
    if found.mode() & 0o002 != 0 {
        return Ok(Some(UnsafeProblem::OthersWrite));
    }
    let probe = tempfile::tempfile_in(directory)?;
    let (own, owner) = (probe.metadata()?.uid(), found.uid());
    if own != owner {
        return Ok(Some(UnsafeProblem::OtherOwner { owner, own }));
    }
    if found.mode() & 0o020 != 0 {
        fs::set_permissions(directory, Permissions::from_mode(0o700))?;
        let path = directory.display();
        warn!(%path, "removed the group's permission to write; compiling guests again");
        drop_compiled(directory)?;
    }
    Ok(None)
}

fn drop_compiled(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(SUFFIX) || name == seal::NAME {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::{Duration, SystemTime};

    use super::*;

    /// Each problem has its own remedy.
    #[test]
    fn an_unsafe_directory_is_refused_with_advice() {
        for (problem, expected) in [
            (
                UnsafeProblem::NotADirectory,
                "it is a symbolic link or not a directory: name the directory itself",
            ),
            (
                UnsafeProblem::OthersWrite,
                "others may write to it: empty it, because its files are executed, and make it \
                 private (chmod 0700)",
            ),
            (
                UnsafeProblem::OtherOwner {
                    owner: 1000,
                    own: 65532,
                },
                "it belongs to user 1000, and Davit runs as user 65532: name a directory that does \
                 not exist yet, or run Davit as user 1000",
            ),
        ] {
            let error = ArtifactsError::Unsafe {
                path: "/cache".into(),
                problem,
            };
            let expected = format!("cannot use /cache for compiled guests: {expected}");
            assert_eq!(error.to_string(), expected);
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

        let deep = parent.path().join("new/deep");
        for mode in [0o777, 0o772, 0o702] {
            fs::set_permissions(&deep, Permissions::from_mode(mode)).unwrap();
            let error = open("new/deep").unwrap_err();
            assert!(error.to_string().contains("others may write"), "{error}");
        }

        symlink(parent.path().join("new"), parent.path().join("link")).unwrap();
        let error = open("link").unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");

        fs::write(parent.path().join("file"), "").unwrap();
        assert!(open("file").is_err());
    }

    /// The state in which the kubelet leaves a volume that a second pod mounts.
    #[test]
    fn the_groups_write_permission_is_removed_with_its_files() {
        let parent = tempfile::tempdir().unwrap();
        let engine = wasmtime::Engine::default();
        let directory = parent.path().join("modules");
        let open = || CompiledArtifacts::open(directory.clone(), &engine);
        open().unwrap();
        let (wasm, compiled) = (directory.join("a.wasm"), directory.join("a-0.cwasm"));
        for file in [&wasm, &compiled] {
            fs::write(file, "").unwrap();
        }
        let key = directory.join(seal::NAME);
        let first = fs::read(&key).unwrap();
        open().unwrap();
        assert!(compiled.is_file());
        fs::set_permissions(&directory, Permissions::from_mode(0o2770)).unwrap();
        open().unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
        assert!(wasm.is_file() && !compiled.is_file());
        assert_ne!(fs::read(&key).unwrap(), first);
    }

    #[test]
    fn unused_files_are_deleted_beyond_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let engine = wasmtime::Engine::default();
        let artifacts =
            CompiledArtifacts::open(directory.path().join("compiled"), &engine).unwrap();
        let module = |number: u8| ModuleDigest([number; 32]);
        for number in 0..=64 {
            cache_files::write_whole(&artifacts.path(module(number)), b"code").unwrap();
        }
        // Files that are written at the same moment may have the same time.
        let oldest = fs::File::options()
            .append(true)
            .open(artifacts.path(module(1)))
            .unwrap();
        let before = SystemTime::now() - Duration::from_secs(60);
        oldest.set_modified(before).unwrap();
        let of_another_wasmtime = artifacts.directory.join(format!("{}-0{SUFFIX}", module(0)));
        cache_files::write_whole(&of_another_wasmtime, b"code").unwrap();
        let wasm = artifacts.directory.join("module.wasm");
        cache_files::write_whole(&wasm, b"wasm").unwrap();
        artifacts.prune(&BTreeSet::from([module(0)]));
        assert!(artifacts.path(module(0)).is_file() && wasm.is_file());
        assert!(!artifacts.path(module(1)).is_file());
        let left = fs::read_dir(&artifacts.directory).unwrap().count();
        let (wasm, key) = (1, 1);
        assert_eq!(left, ROOM.files + wasm + key);
    }
}
