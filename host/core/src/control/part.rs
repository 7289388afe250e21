//! The part of this replica in the decisions about a controller.

use crate::record::RecordId;
use crate::time::Instant;

/// The part of this replica in the decisions about a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Part {
    /// It decides and records.
    #[default]
    Leader,
    /// Another replica does, or none.
    Follower,
    /// It holds the lease, and reads the record before it decides.
    Elected {
        /// The read.
        read: RecordId,
        /// When to read again, after a failure.
        retry_at: Option<Instant>,
    },
}
