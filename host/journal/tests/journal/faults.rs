//! The disk is full or fails: recording stops, the error is the caller's, and a later start of a
//! segment records again.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::rc::Rc;

use davit_journal::{Error, Files, Recovery, Settings, Storage, Writer};

use crate::support::{
    HOUR, Quick, Record, START, changes, directory, numbered, segments, small, verify,
};

/// What the disk does to the writer.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// How many more bytes fit.
    room: Option<usize>,
    /// How many bytes one operation writes at most.
    piece: Option<usize>,
    /// Every operation but writing fails.
    is_failing: bool,
    is_sync_failing: bool,
    /// Every second write is interrupted by a signal.
    is_interrupted: Option<bool>,
    /// Writing succeeds, but writes nothing.
    is_idle: bool,
}

#[derive(Clone, Default)]
struct Disk(Rc<RefCell<Faults>>);

impl Disk {
    fn fails(&self) -> io::Result<()> {
        broken(self.0.borrow().is_failing)
    }
}

fn broken(is_broken: bool) -> io::Result<()> {
    if is_broken {
        return Err(io::Error::other("input/output error"));
    }
    Ok(())
}

impl Storage for Disk {
    type File = File;

    fn create(&mut self, path: &Path) -> io::Result<File> {
        self.fails()?;
        Files.create(path)
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<usize> {
        let mut faults = self.0.borrow_mut();
        if faults.is_idle {
            return Ok(0);
        }
        if let Some(now) = &mut faults.is_interrupted {
            *now = !*now;
            if *now {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        let piece = faults.piece.unwrap_or(usize::MAX);
        let length = bytes
            .len()
            .min(piece)
            .min(faults.room.unwrap_or(usize::MAX));
        if length == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Some(room) = &mut faults.room {
            *room -= length;
        }
        Files.write(file, &bytes[..length])
    }

    fn sync(&mut self, file: &mut File) -> io::Result<()> {
        self.fails()?;
        broken(self.0.borrow().is_sync_failing)?;
        Quick.sync(file)
    }

    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        self.fails()?;
        Quick.sync_directory(path)
    }

    fn truncate(&mut self, path: &Path, length: u64) -> io::Result<()> {
        self.fails()?;
        Files.truncate(path, length)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.fails()?;
        Files.remove(path)
    }
}

fn open(disk: &Disk, directory: &Path) -> (Writer<Disk>, Recovery) {
    Writer::open_on(disk.clone(), directory, small(), START).unwrap()
}

fn start(writer: &mut Writer<Disk>, now: i64) -> Result<(), Error> {
    writer.start_segment(now, b"host-a")?;
    for number in 100..104 {
        Record::numbered(number).try_append(writer)?;
    }
    writer.end_keyframe()
}

/// The first error, and how many entries were flushed before it.
fn record(writer: &mut Writer<Disk>, entries: usize) -> (usize, Result<(), Error>) {
    for number in 0..entries {
        let flushed = Record::numbered(number)
            .try_append(writer)
            .and_then(|()| writer.flush(true));
        if flushed.is_err() {
            return (number, flushed);
        }
    }
    (entries, Ok(()))
}

#[test]
fn a_disk_that_is_full_at_any_byte_loses_nothing_that_was_flushed() {
    let disk = Disk::default();
    for room in 0.. {
        let directory = directory();
        let (mut writer, _) = open(&disk, directory.path());
        disk.0.borrow_mut().room = Some(room);
        let started = start(&mut writer, START);
        let (flushed, result) = match started {
            Ok(()) => record(&mut writer, 15),
            Err(error) => (0, Err(error)),
        };
        let is_full = result.is_err();
        if let Err(error) = result {
            assert!(
                matches!(
                    error,
                    Error::Io {
                        action: "write",
                        ..
                    }
                ),
                "{error}"
            );
            // Recording has stopped, and says so.
            assert!(writer.needs_segment(START));
            let again = Record::numbered(0).try_append(&mut writer);
            assert!(matches!(again, Err(Error::NoSegment)));
        }
        // What was half written is gone already.
        assert_eq!(changes(directory.path()), numbered(0..flushed), "{room}");
        let verification = verify(directory.path());
        assert_eq!((verification.tails, verification.damages), (0, 0), "{room}");

        // There is room again.
        disk.0.borrow_mut().room = None;
        start(&mut writer, START + HOUR).unwrap();
        record(&mut writer, 3).1.unwrap();
        writer.close().unwrap();
        let expected = [numbered(0..flushed), numbered(0..3)].concat();
        assert_eq!(changes(directory.path()), expected, "{room}");
        assert_eq!(verify(directory.path()).damages, 0, "{room}");
        if !is_full {
            assert!(room > 1000, "{room}");
            break;
        }
    }
}

#[test]
fn a_full_disk_at_the_end_of_a_segment_leaves_its_entries() {
    let disk = Disk::default();
    for room in 0.. {
        let directory = directory();
        let (mut writer, _) = open(&disk, directory.path());
        start(&mut writer, START).unwrap();
        record(&mut writer, 15).1.unwrap();
        disk.0.borrow_mut().room = Some(room);
        let closed = writer.close();
        disk.0.borrow_mut().room = None;
        assert_eq!(changes(directory.path()), numbered(0..15), "{room}");
        assert_eq!(verify(directory.path()).tails, 0, "{room}");
        if closed.is_ok() {
            break;
        }
    }
}

#[test]
fn short_and_interrupted_writes_are_continued() {
    let disk = Disk::default();
    disk.0.borrow_mut().piece = Some(3);
    disk.0.borrow_mut().is_interrupted = Some(false);
    let directory = directory();
    let (mut writer, _) = open(&disk, directory.path());
    start(&mut writer, START).unwrap();
    record(&mut writer, 15).1.unwrap();
    writer.close().unwrap();
    assert_eq!(changes(directory.path()), numbered(0..15));
}

#[test]
fn a_disk_that_writes_nothing_stops_recording() {
    let disk = Disk::default();
    let directory = directory();
    let (mut writer, _) = open(&disk, directory.path());
    start(&mut writer, START).unwrap();
    disk.0.borrow_mut().is_idle = true;
    let error = record(&mut writer, 1).1.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Io {
                action: "write",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_failing_fsync_stops_recording() {
    let disk = Disk::default();
    let directory = directory();
    let (mut writer, _) = open(&disk, directory.path());
    start(&mut writer, START).unwrap();
    record(&mut writer, 5).1.unwrap();
    disk.0.borrow_mut().is_sync_failing = true;
    let (_, result) = record(&mut writer, 1);
    let expected = format!("failed to sync {}", segments(directory.path())[0].display());
    assert_eq!(result.unwrap_err().to_string(), expected);
    assert!(writer.needs_segment(START));
    assert!(start(&mut writer, START).is_err());

    disk.0.borrow_mut().is_sync_failing = false;
    start(&mut writer, START + HOUR).unwrap();
    writer.close().unwrap();
    let expected = [numbered(0..5), numbered(0..1)].concat();
    assert_eq!(changes(directory.path()), expected);
}

/// What goes into such a file is lost, and the disk reports no error.
#[test]
fn a_segment_that_is_removed_while_it_is_written_is_a_failure() {
    let directory = directory();
    let mut writer = Writer::open_on(Files, directory.path(), small(), START)
        .unwrap()
        .0;
    writer.start_segment(START, b"host-a").unwrap();
    writer.end_keyframe().unwrap();
    Record::numbered(0).append(&mut writer);
    writer.flush(true).unwrap();
    fs::remove_file(&segments(directory.path())[0]).unwrap();
    Record::numbered(1).append(&mut writer);
    writer.flush(true).unwrap_err();
    assert!(writer.needs_segment(START));

    writer.start_segment(START + HOUR, b"host-a").unwrap();
    writer.end_keyframe().unwrap();
    Record::numbered(2).append(&mut writer);
    writer.close().unwrap();
    assert_eq!(changes(directory.path()), [Record::numbered(2)]);
}

#[test]
fn a_half_written_chunk_is_cut_once_the_disk_lets_it() {
    let disk = Disk::default();
    let directory = directory();
    let (mut writer, _) = open(&disk, directory.path());
    start(&mut writer, START).unwrap();
    record(&mut writer, 5).1.unwrap();
    *disk.0.borrow_mut() = Faults {
        room: Some(20),
        is_failing: true,
        ..Faults::default()
    };
    assert!(
        Record::numbered(5)
            .try_append(&mut writer)
            .and_then(|()| writer.flush(false))
            .is_err()
    );
    assert_eq!(verify(directory.path()).tails, 20);
    // No other segment before that: only the last one may have a tail.
    let error = start(&mut writer, START + HOUR).unwrap_err();
    assert!(matches!(error, Error::Io { action: "cut", .. }), "{error}");
    assert_eq!(segments(directory.path()).len(), 1);

    *disk.0.borrow_mut() = Faults::default();
    start(&mut writer, START + HOUR).unwrap();
    assert_eq!(verify(directory.path()).tails, 0);
    assert_eq!(changes(directory.path()), numbered(0..5));
}

#[test]
fn a_writer_that_is_opened_again_cuts_what_a_failing_disk_left() {
    let disk = Disk::default();
    let directory = directory();
    let (mut writer, _) = open(&disk, directory.path());
    start(&mut writer, START).unwrap();
    record(&mut writer, 5).1.unwrap();
    *disk.0.borrow_mut() = Faults {
        room: Some(20),
        is_failing: true,
        ..Faults::default()
    };
    assert!(record(&mut writer, 1).1.is_err());
    drop(writer);
    *disk.0.borrow_mut() = Faults::default();
    let (_, recovery) = open(&disk, directory.path());
    assert_eq!(recovery.cut.unwrap().bytes, 20);
}

#[test]
fn an_entry_that_is_too_large_is_refused_and_recording_continues() {
    let directory = directory();
    let (mut writer, _) = Writer::open(directory.path(), Settings::default(), START).unwrap();
    writer.start_segment(START, b"host-a").unwrap();
    writer.end_keyframe().unwrap();
    let long = "u".repeat(davit_journal::MAX_OBJECT + 1);
    let many = vec!["u"; davit_journal::MAX_OBJECTS + 1];
    let large = vec![0; davit_journal::MAX_ENTRY + 1];
    for (objects, payload, expected) in [
        (
            vec![long.as_str()],
            &[][..],
            "the uid of an object has the size 513; the limit is 512",
        ),
        (
            many,
            &[],
            "the entry's list of objects has the size 1001; the limit is 1000",
        ),
        (
            vec!["u"],
            &large,
            "the entry has the size 268435457; the limit is 268435456",
        ),
    ] {
        let error = writer.append(START, &objects, payload).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    writer.append(START, &["u"], b"next").unwrap();
    writer.close().unwrap();
    assert_eq!(changes(directory.path())[0].payload, b"next");
}
