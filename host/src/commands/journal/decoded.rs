//! Decoded entries, read ahead on a thread of their own: to decompress and decode them is work
//! for a second core.

use std::fmt;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use anyhow::{Context as _, Result};
use davit_core::journal::{Record, decode};
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
}

impl DecodedEntries {
    /// Starts to read.
    pub(in crate::commands) fn read(reader: &Reader, query: Query) -> Result<Self> {
        let (sender, batches) = sync_channel(WAITING);
        let reader = reader.clone();
        thread::Builder::new()
            .name("journal-reader".to_owned())
            .spawn(move || {
                let mut order = SegmentOrder::new(&reader);
                let entries = reader.entries(&query);
                let mut entries = entries.map(|entry| decoded(entry, &mut order));
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
        })
    }
}

impl Iterator for DecodedEntries {
    type Item = Result<Decoded>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(next) = self.batch.next() {
            return Some(next);
        }
        self.batch = self.batches.recv().ok()?.into_iter();
        self.batch.next()
    }
}

fn decoded(
    entry: Result<davit_journal::Entry, Error>,
    order: &mut SegmentOrder,
) -> Result<Decoded> {
    match entry {
        Ok(entry) => {
            let place = Place {
                segment: entry.segment,
                time: entry.time,
            };
            let record = decode(&entry.payload).with_context(|| place.to_string())?;
            Ok(Decoded::Entry(Box::new(DecodedEntry {
                is_after_gap: order.enter(entry.segment),
                place,
                part: entry.part,
                record,
            })))
        }
        Err(Error::Damage(damage)) => Ok(Decoded::Damage(damage)),
        Err(error) => Err(error.into()),
    }
}
