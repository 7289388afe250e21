//! A writer is killed: its last segment ends anywhere.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use davit_journal::{Reader, Recovery, SegmentState};

use crate::support::{
    HOUR, START, append, changes, chunks, directory, everything, finished, numbered, open, read,
    reopen, segments, small, start, verify,
};

/// A segment whose writer was killed: six entries of the keyframe, 20 flushed ones, 2 lost ones.
fn killed(directory: &Path) -> Vec<u8> {
    let mut writer = open(directory, small());
    start(&mut writer, START, 6);
    append(&mut writer, 0..20, true);
    append(&mut writer, 20..22, false);
    drop(writer);
    fs::read(&segments(directory)[0]).unwrap()
}

/// How many of the flushed entries are in the first bytes of the segment.
fn whole_entries(chunks: &[(usize, usize)], length: usize) -> usize {
    let whole = chunks.iter().filter(|(_, end)| *end <= length).count();
    whole.saturating_sub(chunks.len() - 20)
}

#[test]
fn what_was_flushed_survives_the_end_of_the_process() {
    let directory = directory();
    killed(directory.path());
    assert_eq!(changes(directory.path()), numbered(0..20));
    let reader = Reader::open(directory.path()).unwrap();
    assert_eq!(
        reader.segments()[0].state,
        SegmentState::Unfinished { tail: 0 }
    );
}

/// The process that is killed: it records, and prints how much it has flushed.
#[test]
#[ignore = "runs within the test that kills it"]
fn recording_process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let mut writer = open(Path::new(&directory), small());
    start(&mut writer, START, 3);
    for number in 0.. {
        append(&mut writer, number..number + 1, true);
        println!("\nflushed {}", number + 1);
    }
}

const DIRECTORY: &str = "JOURNAL_OF_THE_TEST";

#[test]
fn kill_9_loses_nothing_that_was_flushed_and_readers_see_whole_entries_meanwhile() {
    let directory = directory();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "crashes::recording_process",
            "--nocapture",
        ])
        .env(DIRECTORY, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut flushed = 0;
    for line in lines.map(Result::unwrap) {
        let Some(number) = line.strip_prefix("flushed ") else {
            continue;
        };
        flushed = number.parse().unwrap();
        if flushed % 40 == 0 {
            let seen = changes(directory.path());
            assert!(seen.len() >= flushed);
            assert_eq!(seen, numbered(0..seen.len()));
            assert_eq!(verify(directory.path()).damages, 0);
        }
        if flushed == 1000 {
            child.kill().unwrap();
        }
    }
    assert!(!child.wait().unwrap().success());
    let (writer, _) = reopen(directory.path(), small(), START).unwrap();
    let kept = changes(directory.path());
    assert!(kept.len() >= flushed, "{} of {flushed}", kept.len());
    assert_eq!(kept, numbered(0..kept.len()));
    drop(writer);
}

#[test]
fn a_segment_cut_at_any_byte_keeps_its_whole_chunks() {
    let directory = directory();
    let bytes = killed(directory.path());
    let chunks = chunks(&bytes);
    let path = segments(directory.path())[0].clone();
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let expected = numbered(0..whole_entries(&chunks, length));
        assert_eq!(changes(directory.path()), expected, "{length}");
        assert_eq!(verify(directory.path()).damages, 0, "{length}");
    }
}

#[test]
fn a_writer_cuts_a_torn_tail_at_any_byte_and_says_how_much() {
    let directory = directory();
    let bytes = killed(directory.path());
    let chunks = chunks(&bytes);
    let (body, _) = chunks[0];
    let path = segments(directory.path())[0].clone();
    for length in 0..=bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let (mut writer, recovery) = reopen(directory.path(), small(), START).unwrap();
        let ends = chunks
            .iter()
            .map(|(_, end)| *end)
            .filter(|end| *end <= length);
        let kept = ends.max().unwrap_or(if length < body { 0 } else { body });
        let cut = recovery
            .cut
            .as_ref()
            .map(|cut| (cut.path.clone(), cut.bytes as usize));
        let expected = (kept < length || kept == 0).then(|| (path.clone(), length - kept));
        assert_eq!(cut, expected, "{length}");
        assert_eq!(path.exists(), kept > 0, "{length}");
        if path.exists() {
            assert_eq!(fs::read(&path).unwrap(), bytes[..kept]);
        }

        // It records on, in another segment.
        start(&mut writer, START + HOUR, 2);
        append(&mut writer, 30..33, true);
        writer.close().unwrap();
        let expected = [
            numbered(0..whole_entries(&chunks, length)),
            numbered(30..33),
        ];
        assert_eq!(changes(directory.path()), expected.concat(), "{length}");
        assert_eq!(verify(directory.path()).tails, 0);
        for segment in &segments(directory.path()) {
            fs::remove_file(segment).unwrap();
        }
    }
}

#[test]
fn a_segment_whose_keyframe_is_incomplete_says_so_and_is_not_replayed() {
    let directory = directory();
    finished(directory.path(), 10);
    let mut writer = open(directory.path(), small());
    writer.start_segment(START + HOUR, b"host-a").unwrap();
    append(&mut writer, 100..120, true);
    drop(writer);

    let reader = Reader::open(directory.path()).unwrap();
    let state = reader.segments()[1].state;
    assert_eq!(state, SegmentState::WithoutKeyframe { tail: 0 });
    let entries = read(directory.path(), &everything());
    assert!(entries.iter().all(|entry| entry.segment == 1));
    let verification = reader.verify().unwrap();
    assert_eq!(
        (verification.without_keyframe, verification.damages),
        (1, 0)
    );
}

#[test]
fn a_finished_segment_is_left_as_it_is() {
    let directory = directory();
    finished(directory.path(), 10);
    let before = fs::read(&segments(directory.path())[0]).unwrap();
    let (writer, recovery) = reopen(directory.path(), small(), START).unwrap();
    assert_eq!(recovery, Recovery::default());
    drop(writer);
    assert_eq!(fs::read(&segments(directory.path())[0]).unwrap(), before);
}

/// Pages that did not reach the disk are zero after the machine stopped.
#[test]
fn a_hole_of_zeros_loses_only_its_own_chunks() {
    let directory = directory();
    let bytes = killed(directory.path());
    let all = chunks(&bytes);
    let path = segments(directory.path())[0].clone();
    let (from, to) = (all[8].0, all[9].1);
    let mut holed = bytes.clone();
    holed[from..to].fill(0);
    holed.extend([0; 5000]);
    fs::write(&path, &holed).unwrap();
    let (writer, recovery) = reopen(directory.path(), small(), START).unwrap();
    assert_eq!(recovery.cut.unwrap().bytes, 5000);
    drop(writer);
    let reader = Reader::open(directory.path()).unwrap();
    let (good, bad): (Vec<_>, Vec<_>) = reader.entries(&everything()).partition(Result::is_ok);
    assert_eq!(bad.len(), 1);
    // Two chunks, and the rest of the block of eight entries.
    assert!(good.len() >= 26 - 9, "{}", good.len());
}
