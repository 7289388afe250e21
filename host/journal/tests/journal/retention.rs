//! Old segments are removed by age and by size.

use std::path::PathBuf;

use davit_journal::Settings;

use crate::support::{
    HOUR, Record, START, append, changes, directory, hours, numbered, open, reopen, segments,
    small, start,
};

fn sequences(segments: &[PathBuf]) -> Vec<u64> {
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let number = |path| name(path).split('-').next().unwrap().parse().unwrap();
    segments.iter().map(number).collect()
}

#[test]
fn a_segment_is_removed_when_all_in_it_is_too_old() {
    let directory = directory();
    let settings = Settings {
        max_age: hours(3),
        ..small()
    };
    let mut writer = open(directory.path(), settings);
    for hour in 0..8 {
        start(&mut writer, START + hour * HOUR, 1);
        append(&mut writer, 0..3, true);
        // The state of three hours ago can be read.
        let listed = segments(directory.path());
        let first = 1.max(hour - 3);
        assert_eq!(
            sequences(&listed),
            (first as u64..=hour as u64 + 1).collect::<Vec<u64>>()
        );
    }
    assert_eq!(writer.totals().removed, 3);
    writer.close().unwrap();

    // A host that was down for a day keeps the last segment.
    let settings = Settings {
        max_age: hours(3),
        ..small()
    };
    let (writer, recovery) = reopen(directory.path(), settings, START + 32 * HOUR).unwrap();
    assert_eq!(recovery.removed.len(), 4);
    assert_eq!(sequences(&segments(directory.path())), [8]);
    drop(writer);
}

#[test]
fn the_directory_stays_below_its_size() {
    let directory = directory();
    let total_bytes = 20_000;
    let settings = Settings {
        total_bytes,
        ..small()
    };
    let mut writer = open(directory.path(), settings.clone());
    for round in 0..30 {
        start(&mut writer, START + round * HOUR, 10);
        for number in 0..20 {
            append(&mut writer, number..number + 1, true);
            let sizes = segments(directory.path()).into_iter();
            let sum: u64 = sizes.map(|path| path.metadata().unwrap().len()).sum();
            assert!(sum <= total_bytes, "{sum} bytes");
            assert_eq!(sum, writer.totals().bytes);
        }
    }
    assert!(writer.totals().removed > 5);
    assert!(writer.totals().segments > 3);
    writer.close().unwrap();
    let settings = Settings {
        total_bytes: 5000,
        ..settings
    };
    let (_, recovery) = reopen(directory.path(), settings, START).unwrap();
    assert!(recovery.removed.len() > 2);
}

#[test]
fn the_segment_that_is_written_is_never_removed() {
    let directory = directory();
    let settings = Settings {
        total_bytes: 1,
        max_age: hours(0),
        ..small()
    };
    let mut writer = open(directory.path(), settings);
    start(&mut writer, START, 10);
    append(&mut writer, 0..100, true);
    assert_eq!(changes(directory.path()), numbered(0..100));
}

/// A crash before the end of a keyframe would else leave a journal without any state.
#[test]
fn the_last_whole_segment_stays_until_the_next_one_has_its_keyframe() {
    let directory = directory();
    let settings = Settings {
        total_bytes: 1,
        ..small()
    };
    let mut writer = open(directory.path(), settings);
    start(&mut writer, START, 10);
    append(&mut writer, 0..20, true);
    writer.start_segment(START + HOUR, b"").unwrap();
    for number in 0..100 {
        Record::numbered(number).append(&mut writer);
        writer.flush(true).unwrap();
    }
    drop(writer);
    assert_eq!(changes(directory.path()), numbered(0..20));
}

#[test]
fn a_segment_ends_by_age_and_by_size() {
    let directory = directory();
    let settings = Settings {
        segment_age: hours(4),
        segment_bytes: 2000,
        ..small()
    };
    let mut writer = open(directory.path(), settings);
    assert!(writer.needs_segment(START));
    // However large the keyframe is, it does not end its segment.
    start(&mut writer, START, 200);
    assert!(writer.totals().bytes > 2000);
    assert!(!writer.needs_segment(START + 4 * HOUR - 1));
    assert!(writer.needs_segment(START + 4 * HOUR));
    append(&mut writer, 0..10, true);
    assert!(!writer.needs_segment(START));
    append(&mut writer, 10..50, true);
    assert!(writer.needs_segment(START));
}

#[test]
fn other_files_of_the_directory_are_left_alone() {
    let directory = directory();
    for name in ["notes.txt", "x.journal", "1-2.journal.bak"] {
        std::fs::write(directory.path().join(name), b"mine").unwrap();
    }
    std::fs::create_dir(directory.path().join("1-2.journal")).unwrap();
    let settings = Settings {
        total_bytes: 1,
        ..small()
    };
    let mut writer = open(directory.path(), settings);
    start(&mut writer, START, 1);
    start(&mut writer, START + HOUR, 1);
    assert_eq!(changes(directory.path()), []);
    for name in ["notes.txt", "x.journal", "1-2.journal.bak"] {
        assert!(directory.path().join(name).exists());
    }
}

#[test]
fn a_segment_that_is_held_stays_whatever_its_age() {
    let directory = directory();
    let settings = || Settings {
        max_age: hours(1),
        ..small()
    };
    let mut writer = open(directory.path(), settings());
    start(&mut writer, START, 1);
    append(&mut writer, 0..3, true);
    writer.hold(START + 5 * HOUR).unwrap();
    // Once an hour is enough.
    let written = || {
        std::fs::metadata(directory.path().join("held"))
            .unwrap()
            .modified()
    };
    let before = written().unwrap();
    writer.hold(START + 5 * HOUR + 1).unwrap();
    writer.hold(START + HOUR).unwrap();
    assert_eq!(written().unwrap(), before);
    start(&mut writer, START + 2 * HOUR, 1);
    start(&mut writer, START + 4 * HOUR, 1);
    assert_eq!(
        sequences(&segments(directory.path())),
        [1, 2, 3],
        "later ones stay too"
    );
    writer.close().unwrap();

    // Another writer knows it too.
    let (mut writer, recovery) = reopen(directory.path(), settings(), START + 5 * HOUR).unwrap();
    assert!(recovery.removed.is_empty());
    start(&mut writer, START + 7 * HOUR, 1);
    assert_eq!(sequences(&segments(directory.path())), [3, 4]);
    assert_eq!(writer.totals().removed_held, 0);
}

#[test]
fn a_segment_that_is_held_is_removed_by_size_and_counted() {
    let directory = directory();
    let settings = Settings {
        total_bytes: 4_000,
        ..small()
    };
    let mut writer = open(directory.path(), settings);
    start(&mut writer, START, 10);
    append(&mut writer, 0..100, true);
    writer.hold(START + 100 * HOUR).unwrap();
    for round in 1..9 {
        start(&mut writer, START + round * HOUR, 10);
        append(&mut writer, 0..100, true);
    }
    assert!(!sequences(&segments(directory.path())).contains(&1));
    assert_eq!(writer.totals().removed_held, 1);
}

#[test]
fn a_damaged_list_of_held_segments_holds_nothing_and_is_reported() {
    let directory = directory();
    let held = directory.path().join("held");
    let lines = |content: &[u8]| {
        std::fs::write(&held, content).unwrap();
        let opened = davit_journal::Writer::open(directory.path(), small(), START).unwrap();
        opened.1.unreadable_held
    };
    assert_eq!(lines(b"1 5\n2 7\n"), 0);
    assert_eq!(lines(b"1\n2 x\n3 9\n"), 2);
    assert_eq!(lines(b"1 5\n\xff\n"), 1, "no text");
    let mut writer = open(directory.path(), small());
    start(&mut writer, START, 1);
    writer.hold(START + HOUR).unwrap();
}
