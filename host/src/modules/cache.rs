//! Modules that were fetched, kept by their digest.
//!
//! A module that is pinned or recorded by its digest is had from here, also
//! when its source is away. The file's name is its digest, so what lies there
//! is believed only if it still has that digest.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use davit_engine::ModuleDigest;

/// More modules than this, or more bytes, are not kept.
const MOST_FILES: usize = 64;
const MOST_BYTES: u64 = 256 << 20;

/// A directory of modules.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// Makes the directory if there is none, for this user alone.
    pub(super) fn open(directory: PathBuf) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&directory)?;
        Ok(Self { directory })
    }

    /// The module of a digest, if it is there and whole.
    pub(super) fn load(&self, digest: ModuleDigest) -> Option<Vec<u8>> {
        let path = self.path(digest);
        let wasm = match fs::read(&path) {
            Ok(wasm) => wasm,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read a kept module");
                return None;
            }
        };
        if ModuleDigest::of(&wasm) != digest {
            tracing::warn!(path = %path.display(), "a kept module is damaged, and is dropped");
            drop_file(&path);
            return None;
        }
        touch(&path);
        Some(wasm)
    }

    /// Keeps a module. A failure costs a later start without the source its
    /// module, so it is told, and nothing else.
    pub(super) fn keep(&self, digest: ModuleDigest, wasm: &[u8]) {
        let path = self.path(digest);
        if path.is_file() {
            touch(&path);
            return;
        }
        // Written beside and renamed: a reader finds all of it or nothing.
        let temporary = self
            .directory
            .join(format!(".{digest}-{}.tmp", std::process::id()));
        let written = fs::write(&temporary, wasm).and_then(|()| fs::rename(&temporary, &path));
        if let Err(error) = written {
            drop_file(&temporary);
            tracing::warn!(path = %path.display(), %error, "cannot keep a module");
        }
    }

    /// Drops the modules that were not used for the longest time, as far as
    /// there are too many. Those in use stay, however many they are.
    pub(super) fn prune(&self, in_use: &BTreeSet<ModuleDigest>) {
        self.prune_to(in_use, MOST_FILES, MOST_BYTES);
    }

    fn prune_to(&self, in_use: &BTreeSet<ModuleDigest>, most_files: usize, most_bytes: u64) {
        let mut kept = match self.kept() {
            Ok(kept) => kept,
            Err(error) => {
                let path = self.directory.display();
                tracing::warn!(%path, %error, "cannot look through the kept modules");
                return;
            }
        };
        let (mut files, mut bytes) = (kept.len(), kept.iter().map(|one| one.bytes).sum::<u64>());
        kept.sort_by_key(|one| one.used);
        for one in kept {
            if files <= most_files && bytes <= most_bytes {
                return;
            }
            if in_use.contains(&one.digest) {
                continue;
            }
            drop_file(&self.path(one.digest));
            files -= 1;
            bytes -= one.bytes;
        }
    }

    fn kept(&self) -> io::Result<Vec<Kept>> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(digest) = name.to_str().and_then(digest_of) else {
                continue;
            };
            let metadata = entry.metadata()?;
            kept.push(Kept {
                digest,
                bytes: metadata.len(),
                used: metadata.modified()?,
            });
        }
        Ok(kept)
    }

    fn path(&self, digest: ModuleDigest) -> PathBuf {
        self.directory.join(format!("{digest}.wasm"))
    }
}

/// A module on disk.
struct Kept {
    digest: ModuleDigest,
    bytes: u64,
    used: SystemTime,
}

/// The directory also holds what the engine compiled, under other names.
fn digest_of(file: &str) -> Option<ModuleDigest> {
    let digits = file.strip_suffix(".wasm")?;
    format!("sha256:{digits}").parse().ok()
}

/// Notes that a module was used: its file's time of modification says when.
fn touch(path: &Path) {
    let opened = File::options().append(true).open(path);
    if let Err(error) = opened.and_then(|file| file.set_modified(SystemTime::now())) {
        tracing::debug!(path = %path.display(), %error, "cannot note that a module is used");
    }
}

fn drop_file(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot drop a kept module");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("deep/cache")).unwrap();
        (directory, cache)
    }

    /// Keeps a module that was last used so many seconds ago.
    fn keep(cache: &Cache, wasm: &[u8], ago: u64) -> ModuleDigest {
        let digest = ModuleDigest::of(wasm);
        cache.keep(digest, wasm);
        let file = File::options()
            .append(true)
            .open(cache.path(digest))
            .unwrap();
        let used = SystemTime::now() - Duration::from_secs(ago);
        file.set_modified(used).unwrap();
        digest
    }

    #[test]
    fn what_is_kept_is_had_again_and_nothing_else() {
        let (_directory, cache) = cache();
        let digest = keep(&cache, b"wasm", 0);
        assert_eq!(cache.load(digest).unwrap(), b"wasm");
        assert_eq!(cache.load(ModuleDigest::of(b"other")), None);
        assert_eq!(fs::read_dir(&cache.directory).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_file_is_dropped_and_may_be_kept_anew() {
        let (_directory, cache) = cache();
        let digest = keep(&cache, b"wasm", 0);
        fs::write(cache.path(digest), b"wasp").unwrap();
        assert_eq!(cache.load(digest), None);
        cache.keep(digest, b"wasm");
        assert_eq!(cache.load(digest).unwrap(), b"wasm");
    }

    #[test]
    fn the_longest_unused_go_first_and_those_in_use_never() {
        let (_directory, cache) = cache();
        let oldest = keep(&cache, b"1111", 50);
        let old = keep(&cache, b"2222", 40);
        let read_again = keep(&cache, b"3333", 30);
        let new = keep(&cache, b"4444", 20);
        fs::write(cache.directory.join("x-0.cwasm"), b"compiled").unwrap();
        cache.load(read_again).unwrap();
        cache.prune_to(&BTreeSet::from([oldest]), 3, 100);
        assert_eq!(cache.load(old), None);
        cache.prune_to(&BTreeSet::from([oldest]), 9, 11);
        assert_eq!(cache.load(new), None);
        assert!(cache.load(read_again).is_some());
        cache.prune_to(&BTreeSet::from([oldest]), 0, 0);
        assert_eq!(cache.load(read_again), None);
        assert!(cache.load(oldest).is_some());
        assert!(cache.directory.join("x-0.cwasm").is_file());
    }
}
