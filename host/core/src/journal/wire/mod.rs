//! Entries as bytes: MessagePack with a version.
//!
//! A structure is a list of its fields in their order, a choice a list of its number and its
//! fields. Another version adds fields at the end, which this one skips, or new numbers,
//! which this one refuses. Numbers and positions are written in [`plans`], [`cache`] and
//! [`entries`]; nothing else decides about the format.

// Before the modules that use its macros.
#[macro_use]
mod macros;
mod cache;
mod entries;
mod plans;
mod reader;
mod renewals;
mod value;
mod writer;

#[cfg(test)]
pub(super) use value::{Sample, SampleSource};

use super::entry::{Entry, Record};
use crate::object::Uid;
use crate::store::StateChange;
use crate::time::Now;

use reader::Reader;
pub(super) use value::Wire;
use writer::Writer;

/// The version of the format.
pub const VERSION: u64 = 1;

/// The longest entry that is read, in bytes.
pub const MOST_BYTES: usize = 256 << 20;

/// An encoded entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRecord {
    /// The time of the entry.
    pub now: Now,
    /// The objects that it is about, each once.
    pub uids: Vec<Uid>,
    /// The entry with its time.
    pub payload: Vec<u8>,
}

/// Bytes that are not an entry of this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableEntry {
    /// Another version of Davit wrote it.
    #[error("the journal has version {0} of the format, and this program reads version {VERSION}")]
    Version(u64),
    /// It is longer than [`MOST_BYTES`].
    #[error("an entry of the journal has {0} bytes, and {MOST_BYTES} are the most")]
    Length(usize),
    /// It is damaged.
    #[error("an entry of the journal is damaged: {0}")]
    Damaged(&'static str),
}

/// Encodes an entry.
#[must_use]
pub fn encode(record: &Record) -> EncodedRecord {
    let mut to = Writer::default();
    to.unsigned(VERSION);
    record.write(&mut to);
    let mut uids = uids(&record.entry);
    uids.sort_unstable();
    uids.dedup();
    EncodedRecord {
        now: record.now,
        uids,
        payload: to.into_bytes(),
    }
}

/// Decodes an entry. The bytes are not trusted: whatever they are, this returns, and takes
/// memory in proportion to their number.
pub fn decode(payload: &[u8]) -> Result<Record, UnreadableEntry> {
    if payload.len() > MOST_BYTES {
        return Err(UnreadableEntry::Length(payload.len()));
    }
    let mut from = Reader::new(payload);
    let version = from.unsigned()?;
    if version != VERSION {
        return Err(UnreadableEntry::Version(version));
    }
    let record = Record::read(&mut from)?;
    from.end()?;
    Ok(record)
}

/// The objects that an entry is about.
fn uids(entry: &Entry) -> Vec<Uid> {
    let target = |uid: &String| (!uid.is_empty()).then(|| Uid::new(uid));
    match entry {
        Entry::Cache(StateChange::Put { object, .. }) => vec![object.uid().clone()],
        Entry::Cache(StateChange::Remove { uid, .. }) => vec![uid.clone()],
        Entry::Call(call) => {
            let keys = call.items.iter().map(|item| Uid::new(&item.key));
            keys.filter(|key| matches!(key, Uid::Uuid(_))).collect()
        }
        Entry::Answer(answer) => {
            let decisions = answer.result.iter().flatten();
            let plans = decisions.flat_map(|decision| &decision.plans);
            plans.filter_map(|plan| target(&plan.target.uid)).collect()
        }
        Entry::Ruling(ruling) => target(&ruling.target.uid).into_iter().collect(),
        Entry::Execution(execution) => target(&execution.target.uid).into_iter().collect(),
        Entry::Held(held) => {
            let holds = held.holds.iter().map(|object| object.uid());
            holds.chain(&held.releases).cloned().collect()
        }
        Entry::Kept(kept) => target(&kept.target.uid).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Whether two values are the same to the bit: a number that is none equals itself.
pub(super) fn is_same<T: Wire>(one: &T, other: &T) -> bool {
    let bytes = |value: &T| {
        let mut to = Writer::default();
        value.write(&mut to);
        to.into_bytes()
    };
    bytes(one) == bytes(other)
}
