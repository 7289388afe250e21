//! What readers yield, also beside a writer and after the clock was set back.

use std::os::unix::fs::PermissionsExt as _;

use davit_journal::{Part, Query, Reader, SegmentState};

use crate::support::*;

#[test]
fn a_span_starts_with_the_keyframe_of_the_segment_that_covers_it() {
    let directory = directory();
    let mut writer = open(directory.path(), small());
    start(&mut writer, START, 3);
    append(&mut writer, 0..40, false);
    start(&mut writer, START + 2 * SECOND, 5);
    append(&mut writer, 40..80, false);
    writer.close().unwrap();

    let query = Query::new(START + SECOND, START + 3 * SECOND);
    let entries = read(directory.path(), &query);
    let parts: Vec<(Part, u64, usize)> =
        runs(entries.iter().map(|entry| (entry.part, entry.segment)));
    assert_eq!(
        parts,
        [
            (Part::Keyframe, 1, 3),
            (Part::LeadIn, 1, 20),
            (Part::Span, 1, 20),
            (Part::Keyframe, 2, 5),
            (Part::Span, 2, 20),
        ]
    );
    let later = Query::new(START + 3 * SECOND, i64::MAX);
    let entries = read(directory.path(), &later);
    assert_eq!(entries[0].segment, 2);
    let span = read(directory.path(), &query.without_lead_in());
    let span: Vec<Record> = span.into_iter().map(Record::from).collect();
    assert_eq!(span, numbered(20..60));
}

/// How often each value follows itself.
fn runs(values: impl Iterator<Item = (Part, u64)>) -> Vec<(Part, u64, usize)> {
    let mut runs: Vec<(Part, u64, usize)> = Vec::new();
    for (part, segment) in values {
        match runs.last_mut() {
            Some(last) if (last.0, last.1) == (part, segment) => last.2 += 1,
            _ => runs.push((part, segment, 1)),
        }
    }
    runs
}

#[test]
fn a_time_between_two_segments_is_covered_by_the_first() {
    let directory = directory();
    let mut writer = open(directory.path(), small());
    start(&mut writer, START, 1);
    append(&mut writer, 0..2, true);
    start(&mut writer, START + HOUR, 1);
    writer.close().unwrap();
    let entries = read(directory.path(), &Query::new(START + HOUR / 2, i64::MAX));
    assert_eq!(entries[0].segment, 1);
    assert_eq!(entries.len(), 4);
}

#[test]
fn the_entries_about_an_object_are_all_that_name_it() {
    let directory = directory();
    finished(directory.path(), 300);
    for number in 0..7 {
        let query = everything().about(&uid(number)).without_lead_in();
        let found: Vec<Record> = read(directory.path(), &query)
            .into_iter()
            .map(Record::from)
            .collect();
        let expected = numbered(0..300)
            .into_iter()
            .filter(|record| record.objects == [uid(number)]);
        assert_eq!(found, expected.collect::<Vec<Record>>());
    }
    assert_eq!(read(directory.path(), &everything().about("none")), []);
}

#[test]
fn entries_about_an_object_are_read_from_its_blocks_alone() {
    let directory = directory();
    let mut writer = open(directory.path(), small());
    start(&mut writer, START, 4);
    append(&mut writer, 0..100, false);
    let last = Record {
        objects: vec!["the one".to_owned()],
        ..Record::numbered(100)
    };
    last.append(&mut writer);
    writer.close().unwrap();
    // Every other block is damaged: to read one would be an error.
    let segment = &segments(directory.path())[0];
    let mut bytes = std::fs::read(segment).unwrap();
    let chunks = chunks(&bytes);
    let blocks = chunks.len() - 1;
    assert!(blocks > 10, "{blocks}");
    for (start, _) in &chunks[..blocks - 1] {
        bytes[start + 50] ^= 1;
    }
    std::fs::write(segment, bytes).unwrap();
    let query = everything().about("the one");
    let found: Vec<Record> = read(directory.path(), &query)
        .into_iter()
        .map(Record::from)
        .collect();
    assert_eq!(found, [last]);
    assert!(verify(directory.path()).damages > 10);
}

#[test]
fn a_reader_sees_what_was_flushed_while_the_writer_continues() {
    let directory = directory();
    let mut writer = open(directory.path(), small());
    start(&mut writer, START, 2);
    for number in 0..50 {
        append(&mut writer, number..number + 1, true);
        assert_eq!(changes(directory.path()), numbered(0..number + 1));
    }
    let reader = Reader::open(directory.path()).unwrap();
    append(&mut writer, 50..60, true);
    writer.close().unwrap();
    assert_eq!(
        reader.segments()[0].state,
        SegmentState::Unfinished { tail: 0 }
    );
    let then = reader.entries(&everything()).map(Result::unwrap);
    assert_eq!(then.count(), 52);
    assert_eq!(changes(directory.path()), numbered(0..60));
}

#[test]
fn a_removed_segment_is_an_error_and_the_others_are_read() {
    let directory = directory();
    let mut writer = open(directory.path(), small());
    start(&mut writer, START, 0);
    append(&mut writer, 0..5, true);
    start(&mut writer, START + SECOND, 0);
    append(&mut writer, 5..10, true);
    let reader = Reader::open(directory.path()).unwrap();
    std::fs::remove_file(&segments(directory.path())[0]).unwrap();
    let results: Vec<_> = reader.entries(&everything()).collect();
    assert!(
        results[0]
            .as_ref()
            .unwrap_err()
            .to_string()
            .ends_with("the segment was removed")
    );
    let rest: Vec<Record> = results
        .into_iter()
        .skip(1)
        .map(|entry| entry.unwrap().into())
        .collect();
    assert_eq!(rest, numbered(5..10));
}

#[test]
fn entries_keep_their_order_when_the_clock_was_set_back() {
    let directory = directory();
    let mut writer = open(directory.path(), small());
    start(&mut writer, START, 1);
    append(&mut writer, 20..60, false);
    assert!(!writer.needs_segment(START + 3 * SECOND));
    // Back by two seconds within a segment, and then before its start.
    append(&mut writer, 20..40, false);
    assert!(!writer.needs_segment(START - 6 * HOUR + 1));
    assert!(writer.needs_segment(START - 6 * HOUR));
    start(&mut writer, START - 1, 1);
    append(&mut writer, 0..40, false);
    writer.close().unwrap();

    let all = [numbered(20..60), numbered(20..40), numbered(0..40)].concat();
    assert_eq!(changes(directory.path()), all);
    // A span finds the entries of every pass of the clock.
    let query = Query::new(START + SECOND, START + 2 * SECOND).without_lead_in();
    let found: Vec<Record> = read(directory.path(), &query)
        .into_iter()
        .map(Record::from)
        .collect();
    assert_eq!(
        found,
        [numbered(20..40), numbered(20..40), numbered(20..40)].concat()
    );
    assert_eq!(verify(directory.path()).damages, 0);
}

#[test]
fn a_single_segment_can_be_read_without_its_directory() {
    let directory = directory();
    finished(directory.path(), 10);
    let elsewhere = directory.path().join("sent-by-mail");
    std::fs::rename(&segments(directory.path())[0], &elsewhere).unwrap();
    assert_eq!(changes(&elsewhere), numbered(0..10));
    assert_eq!(
        Reader::open(&elsewhere).unwrap().segments()[0].metadata,
        b"host-a"
    );
}

#[test]
fn a_cut_copies_the_segments_that_cover_a_span() {
    let directory = directory();
    let mut writer = open(directory.path(), small());
    for second in 0..5 {
        start(&mut writer, START + second * SECOND, 2);
        append(
            &mut writer,
            second as usize * 20..second as usize * 20 + 20,
            true,
        );
    }
    let copies = directory.path().join("copies");
    let reader = Reader::open(directory.path()).unwrap();
    let cut = reader
        .cut(START + 3 * SECOND / 2, START + 5 * SECOND, &copies)
        .unwrap();
    assert_eq!((cut.segments, cut.damages, cut.entries), (4, 0, 4 * 22));
    assert_eq!(changes(&copies), numbered(20..100));
    // Never over another segment.
    let again = reader.cut(START, START + SECOND, &copies);
    assert!(again.is_ok());
    let again = reader.cut(START, START + SECOND, &copies);
    assert!(
        again
            .unwrap_err()
            .to_string()
            .starts_with("failed to create")
    );
    drop(writer);
}

/// Whatever the process's mask allows.
#[test]
fn only_its_user_can_read_a_journal() {
    let parent = directory();
    let (journal, copies) = (parent.path().join("journal"), parent.path().join("copies"));
    let mut writer = open(&journal, small());
    start(&mut writer, START, 2);
    append(&mut writer, 0..20, true);
    let reader = Reader::open(&journal).unwrap();
    reader.cut(START, START + SECOND, &copies).unwrap();
    drop(writer);
    for directory in [journal, copies] {
        let mut paths = vec![directory.clone()];
        let entries = std::fs::read_dir(&directory).unwrap();
        paths.extend(entries.map(|entry| entry.unwrap().path()));
        assert!(paths.len() > 1);
        for path in paths {
            let mode = path.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{}", path.display());
        }
    }
}

#[test]
fn a_path_that_does_not_exist_is_no_damage() {
    let missing = directory().path().join("missing");
    let Err(error) = Reader::open(&missing) else {
        panic!("it does not exist");
    };
    let expected = format!("failed to open {}", missing.display());
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_second_writer_of_a_directory_is_refused() {
    let directory = directory();
    let writer = open(directory.path(), small());
    let Err(error) = reopen(directory.path(), small(), START) else {
        panic!("two writers");
    };
    let expected = format!(
        "another process records its journal in {}",
        directory.path().display()
    );
    assert_eq!(error.to_string(), expected);
    drop(writer);
    open(directory.path(), small());
}
