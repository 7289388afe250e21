//! Decoded entries, read ahead on a thread of their own: to decompress and decode them is work
//! for a second core.

use std::fmt;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use davit_core::backtest::drop_unread;
use davit_core::journal::{Entry, Record, decode};
use davit_core::time::Now;
use davit_journal::{Damage, Error, Part, Query, Reader};

use super::{SegmentOrder, time};

/// How many entries are passed on at once.
const BATCH: usize = 256;
/// How many batches wait at most: together less than a megabyte of changes of pods.
const WAITING: usize = 4;

/// A part of a journal.
pub(in crate::commands) enum Decoded {
    Entry(Box<DecodedEntry>),
    /// Entries are lost here.
    Damage(Damage),
}

/// An entry of a journal.
pub(in crate::commands) struct DecodedEntry {
    /// Whether entries may be missing before it ([`SegmentOrder`]).
    pub(in crate::commands) is_after_gap: bool,
    pub(in crate::commands) place: Place,
    pub(in crate::commands) part: Part,
    pub(in crate::commands) record: Record,
}

/// Where an entry is. Displays as `segment 1, 1970-01-01T00:00:12.000Z`.
#[derive(Clone, Copy)]
pub(in crate::commands) struct Place {
    segment: u64,
    /// Microseconds since the epoch.
    pub(in crate::commands) time: i64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}, {}", self.segment, time(self.time))
    }
}

/// The entries of a query, in their order. The first one that cannot be read ends them.
pub(in crate::commands) struct DecodedEntries {
    batches: Receiver<Vec<Result<Decoded>>>,
    batch: std::vec::IntoIter<Result<Decoded>>,
    waited: Duration,
}

impl DecodedEntries {
    /// Starts to read.
    pub(in crate::commands) fn read(reader: &Reader, query: Query) -> Result<Self> {
        Self::start(reader, query, false)
    }

    /// Starts to read what a backtest needs. Of a keyframe that repeats what the entries before
    /// it have led to, there is nothing but its start and its end: a large cluster's have a
    /// quarter of the entries.
    pub(in crate::commands) fn read_for_backtest(reader: &Reader, query: Query) -> Result<Self> {
        Self::start(reader, query, true)
    }

    fn start(reader: &Reader, query: Query, is_for_backtest: bool) -> Result<Self> {
        let (sender, batches) = sync_channel(WAITING);
        let reader = reader.clone();
        thread::Builder::new()
            .name("journal-reader".to_owned())
            .spawn(move || {
                let mut decoder = Decoder {
                    order: SegmentOrder::new(&reader),
                    is_for_backtest,
                    knows_state: false,
                    keyframe: Keyframe::Read,
                };
                let entries = reader.entries(&query);
                let mut entries = entries.filter_map(|entry| decoder.decoded(entry).transpose());
                loop {
                    let batch: Vec<Result<Decoded>> = entries.by_ref().take(BATCH).collect();
                    // Nobody waits for more after an error.
                    if batch.is_empty() || sender.send(batch).is_err() {
                        break;
                    }
                }
            })
            .context("starting the thread that reads the journal")?;
        Ok(Self {
            batches,
            batch: Vec::new().into_iter(),
            waited: Duration::ZERO,
        })
    }

    /// How long the reader was waited for.
    pub(in crate::commands) const fn waited(&self) -> Duration {
        self.waited
    }
}

impl Iterator for DecodedEntries {
    type Item = Result<Decoded>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(next) = self.batch.next() {
            return Some(next);
        }
        let began = Instant::now();
        let batch = self.batches.recv();
        self.waited += began.elapsed();
        self.batch = batch.ok()?.into_iter();
        self.batch.next()
    }
}

struct Decoder {
    order: SegmentOrder,
    is_for_backtest: bool,
    /// Whether nothing is missing since a keyframe.
    knows_state: bool,
    /// What happens to the keyframe of this segment.
    keyframe: Keyframe,
}

#[derive(Clone, Copy)]
enum Keyframe {
    /// All of it is read.
    Read,
    /// It is skipped from here on, and ends at this time.
    Ends(Now),
    /// The rest is skipped.
    Skipped,
}

impl Decoder {
    /// The entry; none if it is skipped.
    fn decoded(&mut self, entry: Result<davit_journal::Entry, Error>) -> Result<Option<Decoded>> {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Error::Damage(damage)) => {
                self.knows_state = false;
                return Ok(Some(Decoded::Damage(damage)));
            }
            Err(error) => return Err(error.into()),
        };
        if !self.order.is_in(entry.segment) {
            self.keyframe = Keyframe::Read;
        }
        let is_after_gap = self.order.enter(entry.segment);
        self.knows_state &= !is_after_gap;
        let is_keyframe = entry.part == Part::Keyframe;
        let place = Place {
            segment: entry.segment,
            time: entry.time,
        };
        let mut record = match self.keyframe {
            Keyframe::Ends(now) if is_keyframe => {
                self.keyframe = Keyframe::Skipped;
                let entry = Entry::KeyframeEnd;
                Record { now, entry }
            }
            Keyframe::Skipped if is_keyframe => return Ok(None),
            _ => decode(&entry.payload).with_context(|| place.to_string())?,
        };
        if self.is_for_backtest {
            drop_unread(&mut record.entry);
        }
        if let Entry::Keyframe { is_start } = record.entry {
            // A host that starts has another state.
            let is_known = self.is_for_backtest && self.knows_state && !is_start;
            self.keyframe = if is_known {
                Keyframe::Ends(record.now)
            } else {
                Keyframe::Read
            };
            self.knows_state = true;
        }
        Ok(Some(Decoded::Entry(Box::new(DecodedEntry {
            is_after_gap,
            place,
            part: entry.part,
            record,
        }))))
    }
}

#[cfg(test)]
mod tests {
    use davit_journal::{Settings, Writer};

    use super::super::testing::append;
    use super::*;
    use crate::journal::SegmentOrigin;

    /// Reads segments of five entries each, of which one is behind the keyframe: whether the
    /// segment continues the one before it, and whether its keyframe is that of a start. Returns
    /// how many entries of each segment are read.
    fn read(segments: &[(bool, bool)], damages: Option<u64>) -> Vec<usize> {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open(directory.path(), Settings::default(), 0).unwrap();
        for (second, (continues, is_start)) in (0..).zip(segments) {
            let origin = SegmentOrigin {
                continues: *continues,
                ..SegmentOrigin::default()
            };
            let metadata = serde_json::to_vec(&origin).unwrap();
            writer
                .start_segment(i64::from(second) * 1_000_000, &metadata)
                .unwrap();
            let is_start = *is_start;
            let removed = || Entry::Removed {
                controller: "podgc".to_owned(),
            };
            let start = Entry::Keyframe { is_start };
            for entry in [start, removed(), removed(), Entry::KeyframeEnd] {
                append(&mut writer, second, entry);
            }
            append(&mut writer, second, removed());
        }
        writer.close().unwrap();
        if let Some(number) = damages {
            damage(directory.path(), number);
        }
        let reader = Reader::open(directory.path()).unwrap();
        let query = Query::new(i64::MIN, i64::MAX);
        let mut counts = vec![0; segments.len()];
        let mut is_in_keyframe = false;
        for entry in DecodedEntries::read_for_backtest(&reader, query).unwrap() {
            let entry = entry.unwrap();
            if matches!(entry, Decoded::Damage(_)) {
                is_in_keyframe = false;
            }
            if let Decoded::Entry(entry) = entry {
                counts[usize::try_from(entry.place.segment).unwrap() - 1] += 1;
                match entry.record.entry {
                    Entry::Keyframe { .. } => is_in_keyframe = true,
                    Entry::KeyframeEnd => is_in_keyframe = false,
                    _ => assert_eq!(is_in_keyframe, entry.part == Part::Keyframe),
                }
            }
        }
        counts
    }

    /// Destroys the entries of a segment.
    fn damage(directory: &std::path::Path, number: u64) {
        let files = std::fs::read_dir(directory).unwrap();
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|it| it == "journal"));
        paths.sort();
        let path = &paths[usize::try_from(number).unwrap() - 1];
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_keyframe_is_skipped_only_if_the_entries_before_it_lead_to_it() {
        let start = (false, true);
        let next = (true, false);
        let after_gap = (false, false);
        assert_eq!(read(&[start, next, next], None), [5, 3, 3]);
        assert_eq!(read(&[start, after_gap, next], None), [5, 5, 3]);
        assert_eq!(read(&[start, next, (true, true)], None), [5, 3, 5]);
        assert_eq!(read(&[after_gap, next], None), [5, 3]);
    }

    #[test]
    fn the_keyframe_behind_a_damaged_part_is_read() {
        let counts = read(&[(false, true), (true, false), (true, false)], Some(2));
        assert_eq!(counts[0], 5);
        assert!(counts[1] < 5, "{counts:?}");
        assert_eq!(counts[2], 5);
    }
}
