//! What a guest read during a call, besides the cache.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::circuit::CallFailure;
use crate::live::{ReadAnswer, ReadRequest};
use crate::plan::{Decision, QueueKey};
use crate::queue::PendingItem;

/// What a guest found in its queues and notes during one call. Both are snapshots: they do
/// not change meanwhile. What it asked for and was not there is not kept: taint eviction asks for
/// two items of each pod of a node, and hardly any is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotReads {
    /// The pending items, by queue and key; in journals of 0.1.0 also none for one that was not
    /// pending.
    pub pending: BTreeMap<QueueKey, Option<PendingItem>>,
    /// The notes; in journals of 0.1.0 also none for one that did not exist.
    pub notes: BTreeMap<String, Option<Arc<[u8]>>>,
    /// Whether the guest found more than [`Self::MOST`] of them: the others are missing.
    pub is_cut: bool,
}

/// What a map needs for an entry, beside the entry: some of its nodes' room is free.
const ROOM: usize = 16;

impl SnapshotReads {
    /// How many are kept of one call. A pass of node eviction finds some five for each node
    /// that is down, and all 5,000 may be.
    pub const MOST: usize = 100_000;

    /// The guest read whether an item is pending.
    pub fn note_pending(&mut self, queue: &str, key: &str, pending: Option<PendingItem>) {
        if pending.is_some() && self.has_room() {
            let item = QueueKey {
                queue: queue.to_owned(),
                key: key.to_owned(),
            };
            self.pending.insert(item, pending);
        }
    }

    /// The guest read a note.
    pub fn note_note(&mut self, key: &str, value: Option<&Arc<[u8]>>) {
        if value.is_some() && self.has_room() {
            self.notes.insert(key.to_owned(), value.cloned());
        }
    }

    /// The bytes of memory that it keeps.
    pub(super) fn bytes(&self) -> usize {
        let pending = self.pending.keys().map(|item| {
            size_of::<(QueueKey, Option<PendingItem>)>() + ROOM + item.queue.len() + item.key.len()
        });
        let notes = self.notes.iter().map(|(key, value)| {
            let value = value.as_ref().map_or(0, |value| value.len());
            size_of::<(String, Option<Arc<[u8]>>)>() + ROOM + key.len() + value
        });
        pending.chain(notes).sum()
    }

    fn has_room(&mut self) -> bool {
        self.is_cut |= self.pending.len() + self.notes.len() >= Self::MOST;
        !self.is_cut
    }
}

/// A live read of a call, as the guest got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRead {
    /// What the guest asked for and may read.
    pub request: ReadRequest,
    /// The answer.
    pub answer: ReadAnswer,
}

/// What a driver passes to the journal with the answer to a call that is recorded. The driver
/// makes it, because the machine's task has no time for copies.
#[derive(Clone, Debug, Default)]
pub struct AnswerCopy {
    /// The decisions; none if the call failed.
    pub decisions: Vec<Decision>,
    /// What the guest read of its queues and notes.
    pub reads: SnapshotReads,
}

impl AnswerCopy {
    /// The copy of an answer.
    #[must_use]
    pub fn of(result: &Result<Vec<Decision>, CallFailure>, reads: SnapshotReads) -> Self {
        Self {
            decisions: result.as_ref().cloned().unwrap_or_default(),
            reads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    /// A decision is made again with all that its call read, or not at all.
    #[test]
    fn a_call_about_thousands_of_nodes_keeps_every_key_and_one_beyond_the_bound_says_so() {
        let mut reads = SnapshotReads::default();
        let pending = PendingItem {
            created_at: Instant::ZERO,
            due_at: Instant::ZERO,
        };
        let note: Arc<[u8]> = [0xc0].into();
        for number in 0..SnapshotReads::MOST / 2 {
            reads.note_pending("nodes", &number.to_string(), Some(pending));
            reads.note_note(&number.to_string(), Some(&note));
        }
        assert!(!reads.is_cut);
        assert_eq!(reads.pending.len() + reads.notes.len(), SnapshotReads::MOST);
        assert!(reads.bytes() > 30 * SnapshotReads::MOST);
        reads.note_note("none", None);
        assert!(!reads.is_cut);
        reads.note_note("another", Some(&note));
        assert!(reads.is_cut && !reads.notes.contains_key("another"));
    }

    /// At the start, taint eviction asks for the timers of all pods.
    #[test]
    fn what_was_not_there_is_not_kept() {
        let mut reads = SnapshotReads::default();
        reads.note_pending("timers", "a pod", None);
        reads.note_note("a pod", None);
        assert_eq!(reads, SnapshotReads::default());
    }
}
