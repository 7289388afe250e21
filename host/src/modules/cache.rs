//! The module cache: fetched modules, by their digest.
//!
//! A module that is pinned or recorded by its digest is loaded from here, also while
//! its source is unavailable. A file's name is its digest, and the file is used only if
//! its content still has that digest.
//!
//! A module whose signatures were verified has a seal beside it, for the signatures that
//! were required. Only the key of the directory makes seals. So a restart needs no
//! registry, and a module that came from elsewhere does not count as signed.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use davit_core::api::VerifyConfig;
use davit_core::digest::ModuleDigest;
use davit_engine::cache_files::{self, Room};
use davit_engine::seal::Key;

use super::file::{self, FileProblem};
use crate::repeat::RepeatedLine;

/// The limit of the cache.
const ROOM: Room = Room {
    files: 64,
    bytes: 256 << 20,
};

/// The limit of the seals.
const SEALS: Room = Room {
    files: 256,
    bytes: 1 << 20,
};

const MODULE: &str = ".wasm";
const SEAL: &str = ".verified";

/// A directory of modules.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// Creates the directory if it does not exist, for this user only.
    pub(super) fn open(directory: PathBuf) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&directory)?;
        cache_files::drop_abandoned(&directory);
        Ok(Self { directory })
    }

    /// The module with this digest, if the cache has it undamaged.
    pub(super) fn load(&self, digest: ModuleDigest) -> Option<Vec<u8>> {
        let path = self.path(digest);
        let wasm = match file::read_whole(&path) {
            Ok(wasm) => wasm,
            Err(FileProblem::Io(error)) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                warn(&path, &error, "cannot read a cached module");
                return None;
            }
        };
        if ModuleDigest::of(&wasm) != digest {
            tracing::warn!(path = %path.display(), "a cached module is damaged and was removed");
            cache_files::drop_file(&path);
            return None;
        }
        cache_files::touch(&path);
        Some(wasm)
    }

    /// Adds a module, unless the cache has it undamaged. A failure is only logged: it
    /// matters at a later start while the source is unavailable.
    pub(super) fn add(&self, digest: ModuleDigest, wasm: &[u8]) {
        if let Err(error) = self.write(digest, wasm) {
            warn(&self.path(digest), &error, "cannot cache a module");
        }
    }

    /// The same, and returns a failure.
    pub(super) fn write(&self, digest: ModuleDigest, wasm: &[u8]) -> io::Result<()> {
        if self.load(digest).is_some() {
            return Ok(());
        }
        cache_files::write_whole(&self.path(digest), wasm)
    }

    /// Notes that a module has these signatures. A failure is only logged: the next
    /// start verifies them again.
    pub(super) fn note_verified(&self, digest: ModuleDigest, verify: &VerifyConfig) {
        let (path, header) = self.seal(digest, verify);
        let key = Key::open(&self.directory);
        let written = key.and_then(|key| cache_files::write_whole(&path, &key.seal(header, b"")));
        if let Err(error) = written {
            warn(
                &path,
                &error,
                "cannot note that a module's signatures were verified",
            );
        }
    }

    /// Whether a host with this directory has verified these signatures of a module.
    pub(super) fn is_verified(&self, digest: ModuleDigest, verify: &VerifyConfig) -> bool {
        let (path, header) = self.seal(digest, verify);
        let sealed = match cache_files::read_own(&path) {
            Ok(sealed) => sealed,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    warn(&path, &error, "cannot use a seal");
                }
                return false;
            }
        };
        let key = Key::open(&self.directory);
        let is_own = key.is_ok_and(|key| key.unseal(&header, &sealed).is_some());
        if is_own {
            cache_files::touch(&path);
        }
        is_own
    }

    /// Removes the least recently used modules and seals beyond the limits, except those
    /// in use.
    pub(super) fn prune(&self, in_use: &BTreeSet<ModuleDigest>) {
        self.prune_modules(ROOM, in_use);
        self.prune_files(SEAL, SEALS, in_use);
    }

    /// Removes the least recently used modules beyond this limit, except those in use.
    pub(super) fn prune_modules(&self, room: Room, in_use: &BTreeSet<ModuleDigest>) {
        self.prune_files(MODULE, room, in_use);
    }

    fn prune_files(&self, suffix: &str, room: Room, in_use: &BTreeSet<ModuleDigest>) {
        cache_files::prune(&self.directory, room, |file| {
            digest_of(file, suffix).map(|digest| in_use.contains(&digest))
        });
    }

    fn path(&self, digest: ModuleDigest) -> PathBuf {
        self.directory.join(file_name(digest))
    }

    /// The file of a seal, and the header that it has.
    fn seal(&self, digest: ModuleDigest, verify: &VerifyConfig) -> (PathBuf, Vec<u8>) {
        // Text, numbers and lists always have a form in JSON.
        let verify = serde_json::to_vec(verify).unwrap_or_default();
        let verify = ModuleDigest::of(&verify);
        let name = format!("{digest}-{}{SEAL}", short(verify));
        let header = [
            b"davit verified module 1\n".as_slice(),
            &digest.0,
            &verify.0,
        ]
        .concat();
        (self.directory.join(name), header)
    }
}

/// The name of a module's file.
pub(super) fn file_name(digest: ModuleDigest) -> String {
    format!("{digest}{MODULE}")
}

/// The first sixteen digits.
fn short(digest: ModuleDigest) -> String {
    digest.to_string().chars().take(16).collect()
}

/// The module of a file with this suffix. The directory also holds compiled modules,
/// under other names.
fn digest_of(file: &str, suffix: &str) -> Option<ModuleDigest> {
    let name = file.strip_suffix(suffix)?;
    let digits = name.split('-').next()?;
    format!("sha256:{digits}").parse().ok()
}

/// Several controllers may have the same module, and each load may fail alike.
fn warn(path: &Path, error: &dyn Display, what: &str) {
    static FAILURES: RepeatedLine = RepeatedLine::new();
    let path = path.display();
    if let Some(suppressed) = FAILURES.admit(&format!("{what} {path}")) {
        tracing::warn!(%path, %error, "{what}{suppressed}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("deep/cache")).unwrap();
        (directory, cache)
    }

    fn keep(cache: &Cache, wasm: &[u8]) -> ModuleDigest {
        let digest = ModuleDigest::of(wasm);
        cache.add(digest, wasm);
        digest
    }

    #[test]
    fn a_cached_module_is_loaded_by_its_digest() {
        let (_directory, cache) = cache();
        let digest = keep(&cache, b"wasm");
        assert_eq!(cache.load(digest).unwrap(), b"wasm");
        assert_eq!(cache.load(ModuleDigest::of(b"other")), None);
        assert_eq!(fs::read_dir(&cache.directory).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_module_is_removed_and_can_be_cached_again() {
        let (_directory, cache) = cache();
        let digest = keep(&cache, b"wasm");
        for torn in [b"wasp".as_slice(), b"was", b""] {
            fs::write(cache.path(digest), torn).unwrap();
            assert_eq!(cache.load(digest), None);
            fs::write(cache.path(digest), torn).unwrap();
            cache.add(digest, b"wasm");
            assert_eq!(cache.load(digest).unwrap(), b"wasm");
        }
    }

    fn verify(pem: &str) -> VerifyConfig {
        serde_json::from_value(serde_json::json!({"allOf": [{"key": {"pem": pem}}]})).unwrap()
    }

    /// Modules of every source are in the same directory.
    #[test]
    fn a_module_counts_as_verified_only_with_a_seal_for_the_same_signatures() {
        let (_directory, cache) = cache();
        let (one, other) = (keep(&cache, b"one"), keep(&cache, b"other"));
        assert!(!cache.is_verified(one, &verify("a")));
        cache.note_verified(one, &verify("a"));
        assert!(cache.is_verified(one, &verify("a")));
        assert!(!cache.is_verified(one, &verify("b")));
        assert!(!cache.is_verified(other, &verify("a")));

        // A file that was copied, or written without the key.
        let (path, _) = cache.seal(one, &verify("a"));
        fs::copy(&path, cache.seal(other, &verify("a")).0).unwrap();
        assert!(!cache.is_verified(other, &verify("a")));
        fs::copy(&path, cache.seal(one, &verify("b")).0).unwrap();
        assert!(!cache.is_verified(one, &verify("b")));
        let elsewhere = tempfile::tempdir().unwrap();
        let elsewhere = Cache::open(elsewhere.path().to_owned()).unwrap();
        elsewhere.note_verified(other, &verify("a"));
        fs::copy(
            elsewhere.seal(other, &verify("a")).0,
            cache.seal(other, &verify("a")).0,
        )
        .unwrap();
        assert!(!cache.is_verified(other, &verify("a")));
        assert!(cache.is_verified(one, &verify("a")));
    }

    #[test]
    fn seals_of_modules_in_use_are_not_pruned() {
        let (_directory, cache) = cache();
        let in_use = ModuleDigest::of(b"in use");
        cache.note_verified(in_use, &verify("a"));
        for number in 0..SEALS.files {
            cache.note_verified(ModuleDigest::of(&number.to_le_bytes()), &verify("a"));
        }
        cache.prune(&BTreeSet::from([in_use]));
        assert!(cache.is_verified(in_use, &verify("a")));
        let left = fs::read_dir(&cache.directory).unwrap().count();
        let key = 1;
        assert_eq!(left, SEALS.files + key);
    }

    #[test]
    fn compiled_modules_and_modules_in_use_are_not_pruned() {
        let (_directory, cache) = cache();
        let in_use = keep(&cache, b"in use");
        fs::write(cache.directory.join("x-0.cwasm"), b"compiled").unwrap();
        for number in 0..ROOM.files {
            keep(&cache, number.to_string().as_bytes());
        }
        cache.prune(&BTreeSet::from([in_use]));
        assert!(cache.load(in_use).is_some());
        let left = fs::read_dir(&cache.directory).unwrap().count();
        assert_eq!(left, ROOM.files + 1);
    }
}
