//! Copies of modules beside a journal, by their digests: a later version of Davit has other
//! built-in guests, and the calls of the journal can be made again only with those that it names.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use davit_core::digest::ModuleDigest;
use davit_engine::cache_files::{self, Room};

use super::cache::{self, Cache};
use super::file;

/// The name of the directory in a journal's directory.
const DIRECTORY: &str = "modules";

/// The limit of the copies.
pub(super) const ROOM: Room = Room {
    files: 64,
    bytes: 64 << 20,
};

/// The copies beside a journal.
#[derive(Clone, Debug)]
pub(crate) struct ModuleCopies {
    directory: PathBuf,
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
        }
    }

    /// The directory of the copies.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The module with this digest, if there is an undamaged copy.
    pub(crate) fn load(&self, digest: ModuleDigest) -> Option<Vec<u8>> {
        // A reader of the journal changes nothing in it. The journal may come from anybody: the
        // file may be a pipe, or a link to a device.
        let wasm = file::read_whole(&self.path(digest)).ok()?;
        (ModuleDigest::of(&wasm) == digest).then_some(wasm)
    }

    /// Writes a copy, unless there is an undamaged one. Its time is now in both cases.
    pub(crate) fn write(&self, digest: ModuleDigest, wasm: &[u8]) -> io::Result<()> {
        Cache::open(self.directory.clone())?.write(digest, wasm)
    }

    /// Notes that a module was in use until now: its copy is not the oldest one.
    pub(super) fn touch(&self, digest: ModuleDigest) {
        cache_files::touch(&self.path(digest));
    }

    /// Removes the oldest copies beyond the limit, except those of these modules.
    pub(super) fn prune(&self, spared: &BTreeSet<ModuleDigest>) {
        if self.directory.exists()
            && let Ok(cache) = Cache::open(self.directory.clone())
        {
            cache.prune_modules(ROOM, spared);
        }
    }

    fn path(&self, digest: ModuleDigest) -> PathBuf {
        self.directory.join(cache::file_name(digest))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_copy_is_found_beside_the_journal_and_beside_its_segments() {
        let directory = tempfile::tempdir().unwrap();
        let digest = ModuleDigest::of(b"wasm");
        let copies = ModuleCopies::of(directory.path());
        assert_eq!(copies.load(digest), None);
        copies.prune(&BTreeSet::new());
        assert!(!directory.path().join(DIRECTORY).exists());
        copies.write(digest, b"wasm").unwrap();
        let segment = directory.path().join("1.journal");
        fs::write(&segment, b"").unwrap();
        let found = ModuleCopies::of(&segment).load(digest);
        assert_eq!(found.unwrap(), b"wasm");
        assert_eq!(ModuleCopies::of(&segment).load(ModuleDigest::of(b"")), None);
    }

    #[test]
    fn the_oldest_copies_are_removed_and_not_those_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let digest = |number: usize| ModuleDigest::of(&number.to_le_bytes());
        let copies = ModuleCopies::of(directory.path());
        for number in 0..ROOM.files + 2 {
            let wasm = number.to_le_bytes();
            copies.write(digest(number), &wasm).unwrap();
        }
        copies.touch(digest(1));
        copies.prune(&BTreeSet::from([digest(0)]));
        let all = 0..ROOM.files + 2;
        let removed = all.filter(|number| copies.load(digest(*number)).is_none());
        assert_eq!(removed.collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn a_damaged_copy_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let digest = ModuleDigest::of(b"wasm");
        let copies = ModuleCopies::of(directory.path());
        copies.write(digest, b"wasm").unwrap();
        let path = copies.path(digest);
        fs::write(&path, b"wasp").unwrap();
        assert_eq!(copies.load(digest), None);
        assert!(path.exists());
    }

    /// A pipe has no end until somebody writes, and a device may have none.
    #[test]
    fn a_copy_that_is_not_a_regular_file_is_none_and_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let digest = ModuleDigest::of(b"wasm");
        let copies = ModuleCopies::of(directory.path());
        fs::create_dir(copies.directory()).unwrap();
        let path = copies.path(digest);
        let pipe = || {
            let made = Command::new("mkfifo").arg(&path).status();
            assert!(made.unwrap().success());
        };
        let device = || symlink("/dev/zero", &path).unwrap();
        let make: [&dyn Fn(); 2] = [&pipe, &device];
        for make in make {
            make();
            let (sender, answer) = mpsc::channel();
            let reader = copies.clone();
            std::thread::spawn(move || {
                let before = reader.load(digest);
                reader.write(digest, b"wasm").unwrap();
                sender.send((before, reader.load(digest))).unwrap();
            });
            let (before, after) = answer.recv_timeout(Duration::from_secs(10)).unwrap();
            assert_eq!(before, None);
            assert_eq!(after.unwrap(), b"wasm");
            fs::remove_file(&path).unwrap();
        }
    }
}
