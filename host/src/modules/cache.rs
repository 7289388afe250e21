//! The module cache: fetched modules, by their digest.
//!
//! A module that is pinned or recorded by its digest is loaded from here, also while
//! its source is unavailable. A file's name is its digest, and the file is used only if
//! its content still has that digest.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use davit_core::digest::ModuleDigest;
use davit_engine::cache_files::{self, Room};

/// The limit of the cache.
const ROOM: Room = Room {
    files: 64,
    bytes: 256 << 20,
};

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
        Ok(Self { directory })
    }

    /// The module with this digest, if the cache has it undamaged.
    pub(super) fn load(&self, digest: ModuleDigest) -> Option<Vec<u8>> {
        let path = self.path(digest);
        let wasm = match fs::read(&path) {
            Ok(wasm) => wasm,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read a cached module");
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
        if self.load(digest).is_some() {
            return;
        }
        let path = self.path(digest);
        if let Err(error) = cache_files::write_whole(&path, wasm) {
            tracing::warn!(path = %path.display(), %error, "cannot cache a module");
        }
    }

    /// Removes the least recently used modules beyond the limit, except those in use.
    pub(super) fn prune(&self, in_use: &BTreeSet<ModuleDigest>) {
        cache_files::prune(&self.directory, ROOM, |file| {
            digest_of(file).map(|digest| in_use.contains(&digest))
        });
    }

    fn path(&self, digest: ModuleDigest) -> PathBuf {
        self.directory.join(format!("{digest}.wasm"))
    }
}

/// The directory also holds compiled modules, under other names.
fn digest_of(file: &str) -> Option<ModuleDigest> {
    let digits = file.strip_suffix(".wasm")?;
    format!("sha256:{digits}").parse().ok()
}

#[cfg(test)]
mod tests {
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
