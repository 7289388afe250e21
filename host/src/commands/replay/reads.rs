//! What a guest read in a call besides the cache, for a person.

use std::collections::BTreeMap;

use davit_core::journal::{Entry, LiveRead, RecordedCall, SnapshotReads};
use davit_core::plan::QueueKey;
use davit_core::queue::PendingItem;
use davit_core::time::{Instant, Now};
use davit_core::untrusted::line;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;

use crate::commands::journal::{LONGEST, reported_reads};
use crate::commands::why::read_live;

/// What a guest read of its queues and notes, and live.
#[derive(Default)]
pub(super) struct GuestReads {
    pub(super) snapshot: SnapshotReads,
    pub(super) live: Vec<LiveRead>,
}

impl GuestReads {
    /// What the guest read when the call was recorded.
    pub(super) fn recorded(call: &RecordedCall, snapshot: SnapshotReads) -> Self {
        Self {
            snapshot,
            live: call.live.clone(),
        }
    }

    /// A line for each item and note that the guest found, and for each live read. `now` is the
    /// time of the call.
    pub(super) fn lines(&self, now: Now) -> Vec<String> {
        // What it did not find is not in a journal of today.
        let pending = self.snapshot.pending.iter();
        let pending =
            pending.filter_map(|(key, item)| Some(pending_line(key, item.as_ref()?, now)));
        let notes = self.snapshot.notes.iter();
        let notes = notes.filter_map(|(key, value)| Some(note_line(key, value.as_deref()?)));
        let live = self.live.iter().flat_map(reported_reads);
        let live = live.map(|read| read_live(&read));
        let mut lines: Vec<String> = pending.chain(notes).chain(live).collect();
        if self.snapshot.is_cut {
            let most = SnapshotReads::MOST;
            lines.push(format!("read more than {most} items and notes"));
        }
        lines
    }
}

/// What the guest read of its queues and notes, if this is the end of a call.
pub(super) fn snapshot_reads(entry: &Entry) -> SnapshotReads {
    match entry {
        Entry::Answer(answer) => answer.reads.clone().unwrap_or_default(),
        _ => SnapshotReads::default(),
    }
}

fn pending_line(key: &QueueKey, item: &PendingItem, now: Now) -> String {
    let time = |at: Instant| Timestamp::from_millisecond(now.wall_at(at).0).unwrap_or_default();
    let (since, due) = (time(item.created_at), time(item.due_at));
    let (queue, key) = (line(&key.queue, LONGEST), line(&key.key, LONGEST));
    format!("read item {queue} {key}: pending since {since}, due at {due}")
}

fn note_line(key: &str, value: &[u8]) -> String {
    let text = match decoded(value) {
        Some(value) => line(&value.to_string(), LONGEST),
        None => format!("{} bytes", value.len()),
    };
    format!("read note {}: {text}", line(key, LONGEST))
}

/// The value, if all of the bytes are one that JSON has as well.
fn decoded(mut bytes: &[u8]) -> Option<Value> {
    let value = Value::deserialize(&mut rmp_serde::Deserializer::new(&mut bytes)).ok()?;
    bytes.is_empty().then_some(value)
}

/// The lines of two calls.
#[derive(Debug, PartialEq)]
pub(super) struct ComparedLines {
    /// Those of both.
    pub(super) both: Vec<String>,
    /// Those of each call that the other one does not have.
    pub(super) only: [Vec<String>; 2],
}

impl ComparedLines {
    pub(super) fn new(first: Vec<String>, second: Vec<String>) -> Self {
        let mut unmatched: BTreeMap<String, usize> = BTreeMap::new();
        for one in &second {
            *unmatched.entry(one.clone()).or_default() += 1;
        }
        let mut is_in_second = |one: &String| take(&mut unmatched, one);
        let (both, only_first) = first.into_iter().partition(&mut is_in_second);
        let only_second = second.into_iter().filter(is_in_second).collect();
        Self {
            both,
            only: [only_first, only_second],
        }
    }
}

/// Takes one of these lines, if there is one.
fn take(lines: &mut BTreeMap<String, usize>, wanted: &str) -> bool {
    match lines.get_mut(wanted) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_of_both_calls_are_matched_one_by_one() {
        let first = lines(&["a", "b", "a", "c"]);
        let compared = ComparedLines::new(first, lines(&["c", "a", "d", "d"]));
        let expected = ComparedLines {
            both: lines(&["a", "c"]),
            only: [lines(&["b", "a"]), lines(&["d", "d"])],
        };
        assert_eq!(compared, expected);
    }

    /// Bytes that only start with a value are no value.
    #[test]
    fn a_note_is_printed_as_its_value_if_it_has_one() {
        let value = rmp_serde::to_vec_named(&serde_json::json!({"uids": ["u"]})).unwrap();
        for (value, text) in [
            (&*value, "read note n: {\"uids\":[\"u\"]}"),
            (b"text".as_slice(), "read note n: 4 bytes"),
            (&[0xc4, 1, 7][..], "read note n: 3 bytes"),
            (&[][..], "read note n: 0 bytes"),
        ] {
            assert_eq!(note_line("n", value), text);
        }
    }
}
