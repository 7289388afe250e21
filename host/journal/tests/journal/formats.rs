//! Journals of each version of the format are in `tests/data/`, as that version wrote them. Every
//! later version reads them.

use std::fs;
use std::path::{Path, PathBuf};

use davit_journal::{Reader, SegmentState};

use crate::support::{
    HOUR, Record, SECOND, START, append, changes, everything, numbered, open, read, small, start,
    verify,
};

fn data(version: u32) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    tests.join(format!("data/format-{version}"))
}

#[test]
fn a_journal_of_format_1_is_read() {
    is_read(1, &[]);
}

/// It also has an entry in parts.
#[test]
fn a_journal_of_format_2_is_read() {
    let large = Record {
        payload: vec![7; 3 << 20],
        ..Record::numbered(30)
    };
    is_read(2, &[large]);
}

/// A segment that is finished, with these entries at its end, one with a torn tail, and one
/// without a keyframe.
fn is_read(version: u32, large: &[Record]) {
    let data = data(version);
    let reader = Reader::open(&data).unwrap();
    let segments = reader.segments();
    let states: Vec<SegmentState> = segments.iter().map(|info| info.state).collect();
    assert_eq!(
        states,
        [
            SegmentState::Finished,
            SegmentState::Unfinished { tail: 9 },
            SegmentState::WithoutKeyframe { tail: 0 },
        ]
    );
    let first = &segments[0];
    assert_eq!((first.sequence, first.start), (1, START));
    let parts = 3 * large.len() as u64;
    assert_eq!((first.keyframe, first.entries), (4, 30 + parts));
    let last = 29 + large.len() as i64;
    assert_eq!(first.times, Some((START, START + last * SECOND / 20)));
    assert_eq!(first.metadata, b"host-a");

    let mut expected = numbered(0..30);
    expected.extend_from_slice(large);
    expected.extend(numbered(30..40));
    assert!(changes(&data) == expected, "version {version}");
    let entries = read(&data, &everything());
    assert_eq!(entries.len(), 4 + 30 + large.len() + 2 + 10);
    let about = everything()
        .about(&crate::support::uid(3))
        .without_lead_in();
    assert_eq!(read(&data, &about).len(), 6);
    let verification = verify(&data);
    assert_eq!((verification.damages, verification.tails), (0, 9));
}

/// Records `tests/data/` once for each version of the format:
/// `cargo test -p davit-journal --test journal -- --ignored`.
#[test]
#[ignore = "writes into the source tree"]
fn record_a_journal_of_this_format() {
    let data = data(davit_journal::VERSION);
    assert!(!data.exists(), "a recorded journal stays as it is");
    let mut writer = open(&data, small());
    start(&mut writer, START, 4);
    append(&mut writer, 0..30, false);
    let large = Record {
        payload: vec![7; 3 << 20],
        ..Record::numbered(30)
    };
    large.append(&mut writer);
    start(&mut writer, START + 3 * SECOND / 2, 2);
    append(&mut writer, 30..40, true);
    drop(writer);
    let path = crate::support::segments(&data)[1].clone();
    let mut torn = fs::read(&path).unwrap();
    let mut writer = open(&data, small());
    writer.start_segment(START + HOUR, b"host-a").unwrap();
    append(&mut writer, 50..55, true);
    drop(writer);
    // As if the writer had been killed within a chunk.
    torn.extend(b"DJck\x01\0\0\0\x07");
    fs::write(&path, torn).unwrap();
    fs::remove_file(data.join("lock")).unwrap();
}
