//! Small journals in directories of their own, and what is in them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use davit_journal::{
    Entry, Error, Files, Part, Query, Reader, Recovery, Settings, Storage, Verification,
};
use tempfile::TempDir;

pub(crate) const SECOND: i64 = 1_000_000;
pub(crate) const HOUR: i64 = 3600 * SECOND;
/// Some time in 2026.
pub(crate) const START: i64 = 1_780_000_000 * SECOND;

/// An entry as a test records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) time: i64,
    pub(crate) objects: Vec<String>,
    pub(crate) payload: Vec<u8>,
}

impl Record {
    /// One object, and a payload that follows from the number.
    pub(crate) fn numbered(number: usize) -> Self {
        let payload = format!(
            "{{change {number} of pod web-{:05}}}",
            number * 7919 % 100_000
        );
        Self {
            time: START + number as i64 * SECOND / 20,
            objects: vec![uid(number % 7)],
            payload: payload.into_bytes(),
        }
    }

    pub(crate) fn append<S: Storage>(&self, writer: &mut davit_journal::Writer<S>) {
        self.try_append(writer).unwrap();
    }

    pub(crate) fn try_append<S: Storage>(
        &self,
        writer: &mut davit_journal::Writer<S>,
    ) -> Result<(), Error> {
        let objects: Vec<&str> = self.objects.iter().map(String::as_str).collect();
        writer.append(self.time, &objects, &self.payload)
    }
}

impl From<Entry> for Record {
    fn from(entry: Entry) -> Self {
        Self {
            time: entry.time,
            objects: entry.objects,
            payload: entry.payload,
        }
    }
}

/// The files of the machine, without the wait for the disk.
#[derive(Clone, Copy)]
pub(crate) struct Quick;

impl Storage for Quick {
    type File = File;

    fn create(&mut self, path: &Path) -> io::Result<File> {
        Files.create(path)
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<usize> {
        Files.write(file, bytes)
    }

    fn sync(&mut self, _: &mut File) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&mut self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, path: &Path, length: u64) -> io::Result<()> {
        Files.truncate(path, length)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        Files.remove(path)
    }
}

pub(crate) type Writer = davit_journal::Writer<Quick>;

/// Opens a directory at a time, with what was found there.
pub(crate) fn reopen(
    directory: &Path,
    settings: Settings,
    now: i64,
) -> Result<(Writer, Recovery), Error> {
    Writer::open_on(Quick, directory, settings, now)
}

pub(crate) fn uid(number: usize) -> String {
    format!(
        "{:08x}-2f6a-4d0e-9c1b-{number:012x}",
        number * 2_654_435_761 % (1 << 32)
    )
}

pub(crate) fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Blocks of a few entries.
pub(crate) fn small() -> Settings {
    Settings {
        block_bytes: 500,
        ..Settings::default()
    }
}

pub(crate) fn open(directory: &Path, settings: Settings) -> Writer {
    reopen(directory, settings, START).unwrap().0
}

/// Starts a segment with a keyframe of the numbers 1,000 and up.
pub(crate) fn start(writer: &mut Writer, now: i64, keyframe: usize) {
    writer.start_segment(now, b"host-a").unwrap();
    for number in 0..keyframe {
        Record::numbered(1000 + number).append(writer);
    }
    writer.end_keyframe().unwrap();
}

/// The numbers as entries, each flushed on its own if `is_flushed`.
pub(crate) fn append(writer: &mut Writer, numbers: std::ops::Range<usize>, is_flushed: bool) {
    for number in numbers {
        Record::numbered(number).append(writer);
        if is_flushed {
            writer.flush(false).unwrap();
        }
    }
}

/// A finished segment with a keyframe of four entries, and these entries.
pub(crate) fn finished(directory: &Path, entries: usize) {
    let mut writer = open(directory, small());
    start(&mut writer, START, 4);
    append(&mut writer, 0..entries, true);
    writer.close().unwrap();
}

pub(crate) fn everything() -> Query {
    Query::new(i64::MIN, i64::MAX)
}

/// The entries of a query, which meets no damage.
pub(crate) fn read(path: &Path, query: &Query) -> Vec<Entry> {
    let reader = Reader::open(path).unwrap();
    reader.entries(query).map(Result::unwrap).collect()
}

/// The entries of all spans, without keyframes.
pub(crate) fn changes(path: &Path) -> Vec<Record> {
    let entries = read(path, &everything()).into_iter();
    let changes = entries.filter(|entry| entry.part == Part::Span);
    changes.map(Record::from).collect()
}

pub(crate) fn numbered(numbers: std::ops::Range<usize>) -> Vec<Record> {
    numbers.map(Record::numbered).collect()
}

pub(crate) fn verify(path: &Path) -> Verification {
    Reader::open(path).unwrap().verify().unwrap()
}

/// The segments of a directory, in their order.
pub(crate) fn segments(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut segments: Vec<PathBuf> = paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "journal")
        })
        .collect();
    segments.sort();
    segments
}

pub(crate) fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}

/// Where the chunks of a segment start and end, as `docs/journal.md` describes them.
pub(crate) fn chunks(bytes: &[u8]) -> Vec<(usize, usize)> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut chunks = Vec::new();
    let mut at = 40 + number(32);
    while bytes.len() >= at + 44 && &bytes[at..at + 4] == b"DJck" {
        let end = at + 44 + number(at + 16);
        chunks.push((at, end));
        at = end;
    }
    chunks
}
