//! Cached files for a later run: written completely, and deleted when the cache
//! exceeds its limit.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};

/// The name of a file that is being written: these ends, and random letters and digits between.
const TEMPORARY: (&str, &str) = (".", ".tmp");
const RANDOM: usize = 6;

/// The age of a temporary file that nobody writes any more.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// The limit of a cache.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The number of files.
    pub files: usize,
    /// The sum of their sizes in bytes.
    pub bytes: u64,
}

/// Writes a file that only this user can read. A reader finds either the whole
/// file or the former one, also after the machine has failed.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = parent(path);
    temporary(directory, bytes)?.persist(path)?;
    File::open(directory)?.sync_all()
}

/// Writes the same file if there is none of that name.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = parent(path);
    match temporary(directory, bytes)?.persist_noclobber(path) {
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        written => written?.sync_all(),
    }?;
    File::open(directory)?.sync_all()
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

fn temporary(directory: &Path, bytes: &[u8]) -> io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix(TEMPORARY.0)
        .suffix(TEMPORARY.1)
        .rand_bytes(RANDOM)
        .tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Deletes the half-written files of processes that were killed. Others may be writing into the
/// directory now, so only files that are older than an hour count.
pub fn drop_abandoned(directory: &Path) {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => {
            let path = directory.display();
            tracing::warn!(%path, %error, "cannot read the directory of cached files");
            return;
        }
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(is_temporary) && is_abandoned(&entry) {
            drop_file(&entry.path());
        }
    }
}

fn is_temporary(name: &str) -> bool {
    let (prefix, suffix) = TEMPORARY;
    let random = name.strip_prefix(prefix);
    let random = random.and_then(|name| name.strip_suffix(suffix));
    random.is_some_and(|it| it.len() == RANDOM && it.bytes().all(|it| it.is_ascii_alphanumeric()))
}

fn is_abandoned(entry: &fs::DirEntry) -> bool {
    let written = entry.metadata().ok().filter(fs::Metadata::is_file);
    let written = written.and_then(|found| found.modified().ok());
    let age = written.and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_some_and(|age| age > ABANDONED)
}

/// Reads a file that this user owns and nobody else can write to. The checks concern
/// the file that is read, whatever happens to its name meanwhile.
pub fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    let problem = if !found.is_file() {
        "it is not a file"
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        "it belongs to another user"
    } else if found.mode() & 0o022 != 0 {
        "others may write to it"
    } else {
        let mut bytes = Vec::with_capacity(usize::try_from(found.len()).unwrap_or_default());
        file.read_to_end(&mut bytes)?;
        return Ok(bytes);
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

/// Records that a file was used, as its time of modification.
pub fn touch(path: &Path) {
    let opened = File::options().append(true).open(path);
    if let Err(error) = opened.and_then(|file| file.set_modified(SystemTime::now())) {
        tracing::debug!(path = %path.display(), %error, "cannot record that a file was used");
    }
}

/// Deletes the least recently used files of a directory beyond the limit.
/// `is_in_use` returns for a file's name whether the file must stay; none for a
/// file that does not belong to the cache.
pub fn prune(directory: &Path, room: Room, is_in_use: impl Fn(&str) -> Option<bool>) {
    let mut kept = match list(directory, is_in_use) {
        Ok(kept) => kept,
        Err(error) => {
            let path = directory.display();
            tracing::warn!(%path, %error, "cannot read the directory of cached files");
            return;
        }
    };
    let (mut files, mut bytes) = (kept.len(), kept.iter().map(|one| one.bytes).sum::<u64>());
    kept.sort_by_key(|one| one.used);
    for one in kept {
        if files <= room.files && bytes <= room.bytes {
            return;
        }
        if !one.in_use {
            drop_file(&directory.join(one.name));
            files -= 1;
            bytes -= one.bytes;
        }
    }
}

/// Deletes a file, if it exists.
pub fn drop_file(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot delete a cached file");
    }
}

struct CachedFile {
    name: String,
    bytes: u64,
    used: SystemTime,
    in_use: bool,
}

fn list(directory: &Path, is_in_use: impl Fn(&str) -> Option<bool>) -> io::Result<Vec<CachedFile>> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let Some(in_use) = is_in_use(&name) else {
            continue;
        };
        let metadata = entry.metadata()?;
        kept.push(CachedFile {
            name,
            bytes: metadata.len(),
            used: metadata.modified()?,
            in_use,
        });
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_is_replaced_completely_without_leftovers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        write_whole(&path, b"before").unwrap();
        write_whole(&path, b"after").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"after");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(write_whole(&directory.path().join("none/file"), b"").is_err());
        assert!(write_whole(directory.path(), b"").is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn the_least_recently_used_are_deleted_first_and_those_in_use_never() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let now = SystemTime::now();
        for (name, ago) in [("a", 50), ("b", 40), ("c", 30), ("d", 20), ("other", 99)] {
            write_whole(&path(name), b"1234").unwrap();
            let file = File::options().append(true).open(path(name)).unwrap();
            file.set_modified(now - Duration::from_secs(ago)).unwrap();
        }
        touch(&path("c"));
        let is_in_use = |name: &str| (name.len() == 1).then(|| name == "a");
        let room = |files, bytes| Room { files, bytes };
        prune(directory.path(), room(3, 100), is_in_use);
        assert_eq!(names(directory.path()), ["a", "c", "d", "other"]);
        prune(directory.path(), room(9, 11), is_in_use);
        assert_eq!(names(directory.path()), ["a", "c", "other"]);
        prune(directory.path(), room(0, 0), is_in_use);
        assert_eq!(names(directory.path()), ["a", "other"]);
    }

    #[test]
    fn half_written_files_of_killed_processes_are_deleted_after_an_hour() {
        let directory = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let create = |name: &str, age: Duration| {
            let file = File::create(directory.path().join(name)).unwrap();
            file.set_modified(now - age).unwrap();
        };
        let minutes = |number: u64| Duration::from_secs(60 * number);
        create(".aB3xYz.tmp", minutes(61));
        create(".new123.tmp", minutes(59));
        for other in [
            "aB3xYz.tmp",
            ".aB3xYz",
            ".editor's.tmp",
            ".toolong.tmp",
            "a",
        ] {
            create(other, minutes(600));
        }
        let (kept, path) = temporary(directory.path(), b"").unwrap().keep().unwrap();
        kept.set_modified(now - minutes(61)).unwrap();
        drop_abandoned(directory.path());
        assert!(!path.exists(), "a name of this version");
        let left = names(directory.path());
        let expected = [
            ".aB3xYz",
            ".editor's.tmp",
            ".new123.tmp",
            ".toolong.tmp",
            "a",
            "aB3xYz.tmp",
        ];
        assert_eq!(left, expected);
    }
}
