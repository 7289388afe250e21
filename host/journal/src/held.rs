//! The segments that stay whatever their age: a small file beside them, which outlives the
//! writer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::Error;
use crate::storage::FILE_MODE;

/// The name of the file: a line for each segment, with its sequence number and the time.
const NAME: &str = "held";
/// The file that replaces it.
const NEXT: &str = "held.next";
/// A segment is held for this much longer than asked, in microseconds, so that the file is
/// written once an hour and not with each object.
const SLACK: i64 = 3_600_000_000;

/// Until when segments are held, by their sequence numbers.
#[derive(Debug, Default)]
pub(crate) struct HeldSegments(BTreeMap<u64, i64>);

impl HeldSegments {
    /// Reads the file of a directory, and returns how many of its lines hold nothing, because they
    /// cannot be read. A file that is no text counts for one.
    pub(crate) fn read(directory: &Path) -> Result<(Self, usize), Error> {
        let path = directory.join(NAME);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Ok((Self::default(), 1));
            }
            Err(source) => return Err(Error::io("read", &path, source)),
        };
        let lines = text.lines().filter_map(|line| {
            let (sequence, until) = line.split_once(' ')?;
            Some((sequence.parse().ok()?, until.parse().ok()?))
        });
        let held: Vec<(u64, i64)> = lines.collect();
        let unreadable = text.lines().count() - held.len();
        Ok((Self(held.into_iter().collect()), unreadable))
    }

    /// Whether a segment is held at this time.
    pub(crate) fn holds(&self, sequence: u64, now: i64) -> bool {
        self.0.get(&sequence).is_some_and(|until| *until > now)
    }

    /// Holds a segment. The disk has that when this returns.
    pub(crate) fn hold(
        &mut self,
        directory: &Path,
        sequence: u64,
        until: i64,
    ) -> Result<(), Error> {
        if self.holds(sequence, until.saturating_sub(1)) {
            return Ok(());
        }
        let former = self.0.insert(sequence, until.saturating_add(SLACK));
        let written = self.write(directory);
        if written.is_err() {
            // The next call writes it.
            match former {
                Some(former) => self.0.insert(sequence, former),
                None => self.0.remove(&sequence),
            };
        }
        written.map_err(|source| Error::io("write", &directory.join(NAME), source))
    }

    /// Forgets the segments that are no more: their numbers may be used again.
    pub(crate) fn retain(&mut self, exists: impl Fn(u64) -> bool) {
        self.0.retain(|sequence, _| exists(*sequence));
    }

    /// A segment was removed. The file has that the next time that it is written.
    pub(crate) fn forget(&mut self, sequence: u64) {
        self.0.remove(&sequence);
    }

    /// Replaces the file whole, so that a crash leaves the former one.
    fn write(&self, directory: &Path) -> io::Result<()> {
        let mut text = String::new();
        for (sequence, until) in &self.0 {
            // Writing to a text does not fail.
            let _ = writeln!(text, "{sequence} {until}");
        }
        let next = directory.join(NEXT);
        let mut options = File::options();
        options.write(true).create(true).truncate(true);
        let mut file = options.mode(FILE_MODE).open(&next)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&next, directory.join(NAME))?;
        File::open(directory)?.sync_all()
    }
}
