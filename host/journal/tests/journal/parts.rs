//! Entries that are larger than a chunk may be.

use std::fs;

use davit_journal::{Error, MAX_OBJECTS, Part, Reader, SegmentState, Settings};

use crate::support::{
    Record, START, changes, chunks, directory, everything, numbered, open, read, segments, small,
    uid, verify,
};

const MIB: usize = 1 << 20;

/// An entry about one object, with bytes that do not compress.
fn large(size: usize) -> Record {
    let mut state = size as u64 | 1;
    let payload = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    });
    Record {
        time: START,
        objects: vec![uid(3)],
        payload: payload.take(size).collect(),
    }
}

#[test]
fn an_entry_of_any_size_is_read_as_it_was_recorded() {
    for settings in [small(), Settings::default()] {
        let directory = directory();
        let mut writer = open(directory.path(), settings);
        let sizes = [
            MIB,
            2 * MIB - 38,
            2 * MIB - 37,
            2 * MIB,
            3 * MIB,
            5 * MIB + 1,
        ];
        let mut expected: Vec<Record> = sizes.into_iter().map(large).collect();
        expected.push(Record {
            objects: vec!["u".repeat(512); MAX_OBJECTS],
            ..large(2 * MIB)
        });
        writer.start_segment(START, b"host-a").unwrap();
        expected[5].append(&mut writer);
        writer.end_keyframe().unwrap();
        for record in &expected {
            record.append(&mut writer);
            Record::numbered(3).append(&mut writer);
        }
        writer.flush(false).unwrap();
        let mut all: Vec<Record> = expected.clone();
        all.retain(|record| record.objects.len() == 1);
        let is_large = |record: &Record| record.payload.len() >= MIB;
        for state in [SegmentState::Unfinished { tail: 0 }, SegmentState::Finished] {
            let reader = Reader::open(directory.path()).unwrap();
            assert_eq!(reader.segments()[0].state, state);
            let entries = read(directory.path(), &everything());
            let keyframe = entries.iter().find(|entry| entry.part == Part::Keyframe);
            assert_eq!(keyframe.unwrap().payload, expected[5].payload);
            let mut found = changes(directory.path());
            found.retain(is_large);
            assert!(found == expected, "{state:?}");
            let about = everything().about(&uid(3)).without_lead_in();
            let about = read(directory.path(), &about).into_iter().map(Record::from);
            assert!(
                about.filter(is_large).collect::<Vec<_>>() == all,
                "{state:?}"
            );
            assert_eq!(verify(directory.path()).damages, 0);
            if let SegmentState::Unfinished { .. } = state {
                writer = {
                    writer.close().unwrap();
                    open(directory.path(), small())
                };
            }
        }
    }
}

/// A segment with an entry in five parts between two others, and what its file has.
fn recorded(directory: &std::path::Path) -> Vec<u8> {
    let mut writer = open(directory, small());
    writer.start_segment(START, b"host-a").unwrap();
    writer.end_keyframe().unwrap();
    Record::numbered(0).append(&mut writer);
    writer.flush(false).unwrap();
    large(4 * MIB + 1).append(&mut writer);
    Record::numbered(1).append(&mut writer);
    writer.close().unwrap();
    fs::read(&segments(directory)[0]).unwrap()
}

#[test]
fn a_part_that_is_damaged_costs_its_entry_alone() {
    let directory = directory();
    let bytes = recorded(directory.path());
    let path = segments(directory.path())[0].clone();
    let large_chunks = chunks(&bytes).into_iter();
    let large_chunks: Vec<_> = large_chunks
        .filter(|(start, end)| end - start > MIB / 2)
        .collect();
    assert_eq!(large_chunks.len(), 4, "the fifth has one byte");
    for (start, end) in large_chunks {
        let mut damaged = bytes.clone();
        damaged[usize::midpoint(start, end)] ^= 1;
        fs::write(&path, damaged).unwrap();
        let reader = Reader::open(directory.path()).unwrap();
        let entries: Vec<_> = reader.entries(&everything()).collect();
        let errors = entries.iter().filter(|entry| entry.is_err()).count();
        let found = entries.into_iter().filter_map(Result::ok).map(Record::from);
        assert_eq!((found.collect::<Vec<_>>(), errors), (numbered(0..2), 1));
    }
}

#[test]
fn an_entry_whose_last_part_is_missing_is_no_entry() {
    let directory = directory();
    let bytes = recorded(directory.path());
    let path = segments(directory.path())[0].clone();
    for (_, end) in chunks(&bytes)
        .into_iter()
        .filter(|(_, end)| *end > MIB)
        .take(4)
    {
        fs::write(&path, &bytes[..end]).unwrap();
        let mut writer = open(directory.path(), small());
        assert_eq!(changes(directory.path()), numbered(0..1));
        // The next segment does not continue it.
        writer.start_segment(START, b"host-a").unwrap();
        writer.end_keyframe().unwrap();
        Record::numbered(1).append(&mut writer);
        writer.close().unwrap();
        assert_eq!(changes(directory.path()), numbered(0..2));
        fs::remove_file(&segments(directory.path())[1]).unwrap();
    }
}

#[test]
fn a_failing_disk_leaves_no_part_of_an_entry() {
    let directory = directory();
    let mut writer = open(directory.path(), small());
    let refused = large(3 * MIB).try_append(&mut writer);
    assert!(matches!(refused, Err(Error::NoSegment)), "{refused:?}");
}
