//! What the journal's thread gets.

use std::time::Duration;

use davit_core::journal::{JournalItem, Record};
use davit_core::undo::NotKept;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// What the thread gets.
pub(super) enum Delivery {
    /// Entries.
    Batch(Batch),
    /// An object to keep. It needs no other entry, so a gap does not matter.
    Keep(Box<Keep>),
}

/// Entries of one turn of the driver.
pub(super) struct Batch {
    pub(super) items: Vec<JournalItem>,
    /// Whether entries before it were dropped. Then it starts with a keyframe.
    pub(super) follows_gap: bool,
}

/// An object on its way to the thread.
pub(super) struct Keep {
    pub(super) record: Record,
    pub(super) stays_for: Duration,
    /// Its bytes of those that may wait, until it is dropped.
    pub(super) room: OwnedSemaphorePermit,
    /// Answered once the disk has the entry.
    pub(super) answer: oneshot::Sender<Result<(), NotKept>>,
}
