//! Bits flip, and files come from anywhere: damage is reported, and no entry is wrong.

use std::fs;
use std::path::Path;

use davit_journal::{Cause, Entry, Error, Reader, Settings};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::support::{
    START, append, chunks, directory, everything, finished, open, read, reopen, segments, small,
    start, verify,
};

/// The entries of a damaged journal, and whether any damage was reported. Each entry is one of
/// the `good` ones, in their order.
fn survivors(path: &Path, good: &[Entry]) -> Result<(usize, bool), TestCaseError> {
    let reader = Reader::open(path).unwrap();
    let mut rest = good.iter();
    let (mut count, mut is_reported) = (0, false);
    for entry in reader.entries(&everything()) {
        match entry {
            Ok(entry) => {
                prop_assert!(rest.any(|good| *good == entry), "a wrong entry: {entry:?}");
                count += 1;
            }
            Err(_) => is_reported = true,
        }
    }
    Ok((count, is_reported))
}

#[test]
fn a_bit_flip_anywhere_is_reported_or_harmless() {
    for is_finished in [true, false] {
        let directory = directory();
        if is_finished {
            finished(directory.path(), 12);
        } else {
            let mut writer = open(directory.path(), small());
            start(&mut writer, START, 4);
            append(&mut writer, 0..12, true);
        }
        let path = segments(directory.path())[0].clone();
        let bytes = fs::read(&path).unwrap();
        let good = read(directory.path(), &everything());
        for place in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << (place % 8);
            fs::write(&path, &flipped).unwrap();
            let (count, is_reported) = survivors(directory.path(), &good).unwrap();
            let verification = verify(directory.path());
            // A flip in the last chunk of an unfinished segment looks like a torn tail.
            assert!(
                verification.damages > 0 || verification.tails > 0,
                "no report of the flip at {place}"
            );
            assert!(
                is_reported || count == good.len() || verification.tails > 0,
                "{} entries are missing after a flip at {place}",
                good.len() - count
            );
        }
    }
}

#[test]
fn damage_names_its_segment_place_and_cause() {
    let directory = directory();
    finished(directory.path(), 12);
    let path = segments(directory.path())[0].clone();
    let bytes = fs::read(&path).unwrap();
    let chunks = chunks(&bytes);
    let (second, end) = chunks[3];
    for (place, cause) in [
        (0, Cause::SegmentHeader),
        (second + 5, Cause::ChunkHeader),
        (end - 1, Cause::Checksum),
        (chunks[chunks.len() - 1].1 - 1, Cause::Index),
    ] {
        let mut flipped = bytes.clone();
        flipped[place] ^= 1;
        fs::write(&path, &flipped).unwrap();
        let verification = verify(directory.path());
        let damage = &verification.damage[0];
        assert_eq!((&damage.path, damage.cause), (&path, cause));
        let start = chunks.iter().rfind(|(start, _)| *start <= place);
        assert_eq!(damage.offset, start.map_or(0, |(start, _)| *start as u64));
    }
}

#[test]
fn a_damaged_chunk_costs_the_rest_of_its_block_alone() {
    let directory = directory();
    finished(directory.path(), 60);
    let path = segments(directory.path())[0].clone();
    let bytes = fs::read(&path).unwrap();
    let good = read(directory.path(), &everything());
    for (_, end) in chunks(&bytes) {
        let mut flipped = bytes.clone();
        flipped[end - 1] ^= 1;
        fs::write(&path, &flipped).unwrap();
        let (count, _) = survivors(directory.path(), &good).unwrap();
        // A block has about ten entries of fifty bytes.
        assert!(count + 10 >= good.len(), "{count} of {}", good.len());
    }
}

/// A payload may hold what looks like a chunk; after damage before it, it is not taken for one.
#[test]
fn a_chunk_within_a_payload_is_no_chunk() {
    let directory = directory();
    finished(directory.path(), 12);
    let path = segments(directory.path())[0].clone();
    let bytes = fs::read(&path).unwrap();
    let (from, to) = chunks(&bytes)[3];
    let elsewhere = crate::support::directory();
    let fastest = Settings {
        level: -7,
        ..small()
    };
    let mut writer = open(elsewhere.path(), fastest);
    start(&mut writer, START, 0);
    // What does not compress stands in the file as it is.
    let noise = |numbers: std::ops::Range<u32>| {
        numbers.flat_map(|number| crc32(&number.to_le_bytes()).to_le_bytes())
    };
    let payload: Vec<u8> = noise(0..1000)
        .chain(bytes[from..to].iter().copied())
        .chain(noise(1000..3000))
        .collect();
    writer.append(START, &["a"], &payload).unwrap();
    writer.close().unwrap();
    let path = segments(elsewhere.path())[0].clone();
    let mut outer = fs::read(&path).unwrap();
    let inner = &bytes[from..from + 44];
    assert!(
        outer.windows(44).any(|window| window == inner),
        "the payload was compressed"
    );
    let (start, _) = chunks(&outer)[1];
    outer[start + 5] ^= 1;
    fs::write(&path, &outer).unwrap();
    let reader = Reader::open(elsewhere.path()).unwrap();
    let entries: Vec<_> = reader.entries(&everything()).collect();
    assert!(
        matches!(entries[..], [Err(Error::Damage(_))]),
        "{entries:?}"
    );
}

#[test]
fn another_version_is_refused_by_its_name() {
    let directory = directory();
    finished(directory.path(), 3);
    finished(directory.path(), 3);
    // Also of a segment that is not the last.
    for path in segments(directory.path()) {
        let bytes = fs::read(&path).unwrap();
        let mut other = bytes.clone();
        other[8] = 7;
        let checksum = crc32(&other[..12]);
        other[12..16].copy_from_slice(&checksum.to_le_bytes());
        fs::write(&path, &other).unwrap();
        let expected = format!(
            "{} has version 7 of the journal's format; this version of Davit knows version 2 and \
             those before it",
            path.display()
        );
        let error = Reader::open(directory.path()).unwrap_err();
        assert_eq!(error.to_string(), expected);
        let Err(error) = reopen(directory.path(), small(), START) else {
            panic!("a writer of another version");
        };
        assert_eq!(error.to_string(), expected);
        fs::write(&path, bytes).unwrap();
    }
}

/// The checksums match, so only what the chunk holds proves that it is wrong.
#[test]
fn a_chunk_that_does_not_hold_what_its_header_says_costs_the_rest_of_its_block() {
    let directory = directory();
    finished(directory.path(), 20);
    let path = segments(directory.path())[0].clone();
    let bytes = fs::read(&path).unwrap();
    let (start, _) = chunks(&bytes)[3];
    // The number of its entries, its size and its times.
    for place in [start + 8, start + 12, start + 20, start + 28] {
        let mut forged = bytes.clone();
        forge(&mut forged, place, bytes[place] ^ 1);
        fs::write(&path, &forged).unwrap();
        let damage = verify(directory.path()).damage;
        let causes: Vec<Cause> = damage.iter().map(|damage| damage.cause).collect();
        assert_eq!(causes[0], Cause::Contents);
        assert!(causes.len() > 2, "{causes:?}");
        assert!(
            causes[1..]
                .iter()
                .all(|cause| *cause == Cause::Continuation)
        );
        let reader = Reader::open(directory.path()).unwrap();
        let errors = reader.entries(&everything()).filter(Result::is_err);
        assert_eq!(errors.count(), 1);
    }
}

/// The checksum of every part, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ ((crc & 1) * 0xedb8_8320);
        }
    }
    !crc
}

/// The segment with one byte changed, and every checksum made right again: a file that somebody
/// made on purpose.
fn forge(bytes: &mut [u8], place: usize, value: u8) {
    // A forged length may lead out of the file.
    let mut chunks = chunks(bytes);
    chunks.retain(|(_, end)| *end <= bytes.len());
    bytes[place] = value;
    let sequence = bytes[16..24].to_vec();
    let placed = |bytes: &[u8], offset: usize, end: usize| {
        let mut all = sequence.clone();
        all.extend((offset as u64).to_le_bytes());
        all.extend(&bytes[offset..end]);
        crc32(&all).to_le_bytes()
    };
    for (start, end) in &chunks {
        let checksum = crc32(&bytes[start + 44..*end]);
        bytes[start + 36..start + 40].copy_from_slice(&checksum.to_le_bytes());
        let checksum = placed(bytes, *start, start + 40);
        bytes[start + 40..start + 44].copy_from_slice(&checksum);
    }
    let end = bytes.len();
    let checksum = placed(bytes, end - 48, end - 4);
    bytes[end - 4..].copy_from_slice(&checksum);
}

#[test]
fn a_size_above_the_limits_is_refused_before_memory_is_allocated() {
    let directory = directory();
    finished(directory.path(), 20);
    let path = segments(directory.path())[0].clone();
    let bytes = fs::read(&path).unwrap();
    let (start, _) = chunks(&bytes)[2];
    // The highest byte of the size before compression, of the size of the data, and a flag that
    // this version does not know.
    for place in [start + 15, start + 19, start + 5] {
        let mut forged = bytes.clone();
        forge(&mut forged, place, 0x7f);
        fs::write(&path, &forged).unwrap();
        let damage = verify(directory.path()).damage;
        assert_eq!(damage[0].cause, Cause::ChunkHeader);
        assert_eq!(damage[0].offset, start as u64);
    }
    let mut forged = bytes;
    forged[35] = 0x7f;
    fs::write(&path, &forged).unwrap();
    let reader = Reader::open(directory.path()).unwrap();
    assert_eq!(reader.unreadable()[0].cause, Cause::SegmentHeader);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/journal/proptest-regressions.txt",
        ))),
        cases: 200,
        ..ProptestConfig::default()
    })]

    #[test]
    fn many_bit_flips_yield_no_wrong_entry(flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..20)) {
        let directory = directory();
        finished(directory.path(), 60);
        let path = segments(directory.path())[0].clone();
        let good = read(directory.path(), &everything());
        let mut bytes = fs::read(&path).unwrap();
        // The header of the segment stays: without it nothing is read.
        let body = chunks(&bytes)[0].0;
        for (place, bit) in flips {
            let place = body + place.index(bytes.len() - body);
            bytes[place] ^= 1 << bit;
        }
        fs::write(&path, &bytes).unwrap();
        survivors(directory.path(), &good)?;
        verify(directory.path());
        open(directory.path(), small());
    }

    #[test]
    fn a_forged_segment_is_read_without_a_panic(
        forgeries in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let directory = directory();
        finished(directory.path(), 20);
        let path = segments(directory.path())[0].clone();
        let mut bytes = fs::read(&path).unwrap();
        let body = chunks(&bytes)[0].0;
        for (place, value) in forgeries {
            let place = body + place.index(bytes.len() - body);
            forge(&mut bytes, place, value);
        }
        fs::write(&path, &bytes).unwrap();
        let reader = Reader::open(directory.path()).unwrap();
        reader.entries(&everything()).for_each(drop);
        reader.entries(&everything().about("x").without_lead_in()).for_each(drop);
        reader.verify().unwrap();
        drop(reopen(directory.path(), small(), START));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let directory = directory();
        let path = directory.path().join("bytes");
        fs::write(&path, &bytes).unwrap();
        if let Ok(reader) = Reader::open(&path) {
            reader.entries(&everything()).for_each(drop);
        }
    }
}
