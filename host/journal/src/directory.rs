//! The directory of a journal: its names, its lock, and the segments that are removed from it.

use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::held::HeldSegments;
use crate::segment::SegmentFile;
use crate::storage::{FILE_MODE, Storage, create_directory};
use crate::{Cause, Cut, Error};

const EXTENSION: &str = ".journal";
/// The file that a writer locks while it records in a directory.
const LOCK: &str = "lock";
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A segment as the directory lists it. Nothing of the file was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Listing {
    pub(crate) sequence: u64,
    pub(crate) start: i64,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// The sequence comes first: names sort as the segments follow each other, also if the clock was
/// set back between two of them.
pub(crate) fn file_name(sequence: u64, start: i64) -> String {
    format!("{sequence:012}-{start:017}{EXTENSION}")
}

/// The segments of a directory, in the order in which they were written.
pub(crate) fn list(directory: &Path) -> Result<Vec<Listing>, Error> {
    let failed = |source| Error::io("list", directory, source);
    let mut segments = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let Some((sequence, start)) = name.to_str().and_then(parse_name) else {
            continue;
        };
        match entry.metadata() {
            Ok(metadata) if !metadata.is_file() => {}
            Ok(metadata) => segments.push(Listing {
                sequence,
                start,
                path: entry.path(),
                bytes: metadata.len(),
            }),
            // The writer removed it just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    segments.sort();
    Ok(segments)
}

fn parse_name(name: &str) -> Option<(u64, i64)> {
    let (sequence, start) = name.strip_suffix(EXTENSION)?.split_once('-')?;
    Some((sequence.parse().ok()?, start.parse().ok()?))
}

/// A directory that one writer records in, and the segments in it that no writer has open.
pub(crate) struct Directory {
    path: PathBuf,
    /// Held until it is dropped, or the process ends.
    _lock: File,
    /// The oldest first.
    segments: VecDeque<Listing>,
    next_sequence: u64,
    removed: u64,
    held: HeldSegments,
    unreadable_held: usize,
    removed_held: u64,
}

impl Directory {
    /// Creates the directory if it does not exist, and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        create_directory(path).map_err(|source| Error::io("create the directory", path, source))?;
        let lock = lock(path)?;
        let segments = VecDeque::from(list(path)?);
        let last = segments.back().map_or(0, |last| last.sequence);
        let (mut held, unreadable_held) = HeldSegments::read(path)?;
        held.retain(|sequence| segments.iter().any(|one| one.sequence == sequence));
        let directory = Self {
            path: path.to_owned(),
            _lock: lock,
            segments,
            next_sequence: last.saturating_add(1),
            removed: 0,
            held,
            unreadable_held,
            removed_held: 0,
        };
        directory.refuse_other_versions()?;
        Ok(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The sequence number of a segment that was never used here.
    pub(crate) fn take_sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.saturating_add(1);
        sequence
    }

    pub(crate) fn close(&mut self, segment: Listing) {
        self.segments.push_back(segment);
    }

    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    /// The size of the closed segments, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// How many segments were removed by age or size.
    pub(crate) fn removed(&self) -> u64 {
        self.removed
    }

    /// How many lines of the list of held segments could not be read.
    pub(crate) fn unreadable_held(&self) -> usize {
        self.unreadable_held
    }

    /// How many segments were removed by size that were held for longer.
    pub(crate) fn removed_held(&self) -> u64 {
        self.removed_held
    }

    /// Keeps a segment until this time, unless the directory becomes too large.
    pub(crate) fn hold(&mut self, sequence: u64, until: i64) -> Result<(), Error> {
        self.held.hold(&self.path, sequence, until)
    }

    fn refuse_other_versions(&self) -> Result<(), Error> {
        for segment in &self.segments {
            if let Err(error @ Error::Version { .. }) = SegmentFile::open(&segment.path) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Cuts the last segment behind its last good chunk. A header that is damaged otherwise than
    /// by a killed writer is left as it is.
    pub(crate) fn cut_tail(&mut self, storage: &mut impl Storage) -> Result<Option<Cut>, Error> {
        let Some(last) = self.segments.back_mut() else {
            return Ok(None);
        };
        let path = last.path.clone();
        let end = match SegmentFile::open(&path) {
            Ok(segment) if segment.trailer.is_some() => return Ok(None),
            Ok(segment) => segment.scan().end,
            Err(Error::Damage(damage)) if damage.cause == Cause::Short => 0,
            Err(Error::Damage(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let bytes = last.bytes.saturating_sub(end);
        last.bytes = end;
        if end == 0 {
            let removed = storage.remove(&path);
            removed.map_err(|source| Error::io("remove", &path, source))?;
            self.segments.pop_back();
        } else if bytes > 0 {
            let cut = storage.truncate(&path, end);
            cut.map_err(|source| Error::io("cut", &path, source))?;
        }
        Ok((bytes > 0 || end == 0).then_some(Cut { path, bytes }))
    }

    /// Removes each segment whose successor started before `oldest`: all in it is older. Ends at
    /// the first one that is held.
    pub(crate) fn remove_older(
        &mut self,
        storage: &mut impl Storage,
        oldest: i64,
        now: i64,
    ) -> Result<Vec<PathBuf>, Error> {
        let mut removed = Vec::new();
        let is_old = |second: &Listing| second.start < oldest;
        while self.segments.get(1).is_some_and(is_old) && !self.is_first_held(now) {
            removed.extend(self.remove_first(storage)?);
        }
        Ok(removed)
    }

    /// Removes the first segments until the others have at most this size together, but always
    /// leaves the last `least` of them.
    pub(crate) fn remove_surplus(
        &mut self,
        storage: &mut impl Storage,
        bytes: u64,
        least: usize,
        now: i64,
    ) -> Result<Vec<PathBuf>, Error> {
        let mut removed = Vec::new();
        while self.segments.len() > least && self.bytes() > bytes {
            self.removed_held += u64::from(self.is_first_held(now));
            removed.extend(self.remove_first(storage)?);
        }
        Ok(removed)
    }

    fn is_first_held(&self, now: i64) -> bool {
        let first = self.segments.front();
        first.is_some_and(|first| self.held.holds(first.sequence, now))
    }

    fn remove_first(&mut self, storage: &mut impl Storage) -> Result<Option<PathBuf>, Error> {
        let Some(first) = self.segments.front() else {
            return Ok(None);
        };
        match storage.remove(&first.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove", &first.path, source));
            }
            _ => {}
        }
        self.removed += 1;
        self.held.forget(first.sequence);
        Ok(self.segments.pop_front().map(|first| first.path))
    }
}

/// A process that another thread has just started holds the lock of a former writer until it
/// executes its program: then a later attempt succeeds.
fn lock(directory: &Path) -> Result<File, Error> {
    let path = directory.join(LOCK);
    let mut options = File::options();
    options.create(true).append(true).mode(FILE_MODE);
    let file = options.open(&path);
    let file = file.map_err(|source| Error::io("open", &path, source))?;
    for attempt in 0.. {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if attempt < LOCK_ATTEMPTS => sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Err(Error::Locked(directory.to_owned())),
            Err(TryLockError::Error(source)) => return Err(Error::io("lock", &path, source)),
        }
    }
    Ok(file)
}
