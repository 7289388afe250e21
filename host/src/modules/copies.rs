//! Copies of modules beside a journal, by their digests: a later version of Davit has other
//! built-in guests, and the calls of the journal can be made again only with those that it names.
//!
//! The disk of the journal delays no controller: a copy is written by a thread of its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use davit_core::digest::ModuleDigest;
use davit_engine::cache_files::Room;

use super::cache::{self, Cache};

/// The name of the directory in a journal's directory.
const DIRECTORY: &str = "modules";

/// The limit of the copies.
const ROOM: Room = Room {
    files: 64,
    bytes: 64 << 20,
};

/// The copies beside a journal. Clones share what was copied.
#[derive(Clone, Debug)]
pub(crate) struct ModuleCopies {
    directory: PathBuf,
    /// The modules of this process that are copied, or are being copied.
    copied: Arc<Mutex<BTreeSet<ModuleDigest>>>,
}

impl ModuleCopies {
    /// Those beside this journal: its directory, or one of its segments. Nothing is created.
    pub(crate) fn of(journal: &Path) -> Self {
        let directory = if journal.is_file() {
            journal.parent().unwrap_or(Path::new("."))
        } else {
            journal
        };
        Self {
            directory: directory.join(DIRECTORY),
            copied: Arc::default(),
        }
    }

    /// The module with this digest, if there is an undamaged copy.
    pub(crate) fn load(&self, digest: ModuleDigest) -> Option<Vec<u8>> {
        // A reader of the journal changes nothing in it.
        let wasm = std::fs::read(self.directory.join(cache::file_name(digest))).ok()?;
        (ModuleDigest::of(&wasm) == digest).then_some(wasm)
    }

    /// Copies a module, and does not wait for the disk. A failure is logged, and the next load of
    /// the module repeats the attempt.
    pub(super) fn add(&self, digest: ModuleDigest, wasm: &[u8]) {
        if !self.lock().insert(digest) {
            return;
        }
        let (copies, wasm) = (self.clone(), wasm.to_vec());
        let thread = std::thread::Builder::new().name("module-copy".to_owned());
        let started = thread.spawn(move || {
            if let Err(error) = copies.write(digest, &wasm) {
                copies.give_up(digest, &error);
            }
        });
        if let Err(error) = started {
            self.give_up(digest, &error);
        }
    }

    /// Writes a copy now.
    pub(crate) fn write(&self, digest: ModuleDigest, wasm: &[u8]) -> std::io::Result<()> {
        let cache = Cache::open(self.directory.clone())?;
        cache.write(digest, wasm)?;
        let in_use = self.lock().clone();
        cache.prune_modules(ROOM, &in_use);
        Ok(())
    }

    fn give_up(&self, digest: ModuleDigest, error: &std::io::Error) {
        self.lock().remove(&digest);
        let path = self.directory.display();
        tracing::warn!(
            %path, module = %digest, %error,
            "the journal has no copy of a module: a later version of Davit needs it to replay"
        );
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<ModuleDigest>> {
        self.copied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn until(done: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < deadline, "in vain");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_copy_is_found_beside_the_journal_and_beside_its_segments() {
        let directory = tempfile::tempdir().unwrap();
        let digest = ModuleDigest::of(b"wasm");
        let copies = ModuleCopies::of(directory.path());
        assert_eq!(copies.load(digest), None);
        assert!(!directory.path().join(DIRECTORY).exists());
        copies.add(digest, b"wasm");
        until(|| copies.load(digest).is_some());
        let segment = directory.path().join("1.journal");
        std::fs::write(&segment, b"").unwrap();
        let found = ModuleCopies::of(&segment).load(digest);
        assert_eq!(found.unwrap(), b"wasm");
        assert_eq!(ModuleCopies::of(&segment).load(ModuleDigest::of(b"")), None);
    }

    #[test]
    fn a_copy_that_failed_is_written_with_the_next_load() {
        let directory = tempfile::tempdir().unwrap();
        let digest = ModuleDigest::of(b"wasm");
        let copies = ModuleCopies::of(directory.path());
        // There is no room for the directory.
        let place = directory.path().join(DIRECTORY);
        std::fs::write(&place, b"").unwrap();
        copies.add(digest, b"wasm");
        until(|| copies.lock().is_empty());
        std::fs::remove_file(&place).unwrap();
        copies.add(digest, b"wasm");
        until(|| copies.load(digest).is_some());
    }

    #[test]
    fn the_oldest_copies_are_removed_and_not_those_of_this_process() {
        let directory = tempfile::tempdir().unwrap();
        let digest = |number: usize| ModuleDigest::of(&number.to_le_bytes());
        let copies = ModuleCopies::of(directory.path());
        copies.add(digest(0), &0_usize.to_le_bytes());
        until(|| copies.load(digest(0)).is_some());
        for number in 1..=ROOM.files {
            let wasm = number.to_le_bytes();
            copies.write(digest(number), &wasm).unwrap();
        }
        let all = 0..=ROOM.files;
        let removed = all.filter(|number| copies.load(digest(*number)).is_none());
        assert_eq!(removed.collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_damaged_copy_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let digest = ModuleDigest::of(b"wasm");
        let copies = ModuleCopies::of(directory.path());
        copies.write(digest, b"wasm").unwrap();
        let path = copies.directory.join(cache::file_name(digest));
        std::fs::write(&path, b"wasp").unwrap();
        assert_eq!(copies.load(digest), None);
        assert!(path.exists());
    }
}
