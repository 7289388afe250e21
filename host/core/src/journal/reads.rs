//! What a guest read during a call, besides the cache.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::circuit::CallFailure;
use crate::live::{ReadAnswer, ReadRequest};
use crate::plan::{Decision, QueueKey};
use crate::queue::PendingItem;

/// What a guest read of its queues and notes during one call. Both are snapshots: they do
/// not change meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotReads {
    /// The pending items, by queue and key; none for one that was not pending.
    pub pending: BTreeMap<QueueKey, Option<PendingItem>>,
    /// The notes; none for one that did not exist.
    pub notes: BTreeMap<String, Option<Arc<[u8]>>>,
    /// Whether the guest read more than [`Self::MOST`] keys: the others are missing.
    pub is_cut: bool,
}

impl SnapshotReads {
    /// How many keys are kept of one call.
    pub const MOST: usize = 10_000;

    /// The guest read whether an item is pending.
    pub fn note_pending(&mut self, queue: &str, key: &str, pending: Option<PendingItem>) {
        if self.has_room() {
            let item = QueueKey {
                queue: queue.to_owned(),
                key: key.to_owned(),
            };
            self.pending.insert(item, pending);
        }
    }

    /// The guest read a note.
    pub fn note_note(&mut self, key: &str, value: Option<&Arc<[u8]>>) {
        if self.has_room() {
            self.notes.insert(key.to_owned(), value.cloned());
        }
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
