//! What a revision leaves behind that another one replaces.

use crate::bounds::Series;
use crate::notes::Notes;
use crate::queue::QueueState;
use crate::revision::RevisionIdentity;

/// The revision that was stable before the present one. If it returns, nothing of the
/// present one is left: rates and notes are its own again, and so are the times of the
/// items that it had enqueued. Everything else is enqueued by a resync.
#[derive(Debug)]
pub(super) struct FormerRevision {
    pub(super) identity: RevisionIdentity,
    pub(super) queues: QueueState,
    pub(super) notes: Notes,
    pub(super) note_bytes: usize,
    pub(super) series: Series,
}
