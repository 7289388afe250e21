//! The bounds of what a guest makes the host keep.
//!
//! Notes, queue items, metric series: each lives as long as the guest wants, and many
//! controllers share one process. So each revision has a [`Ledger`] of what the host
//! keeps for it, and the operator sets [`Bounds`]. An answer that would exceed a bound
//! is a failed call of the kind `flood`, and nothing of it is executed. Text is cut
//! instead ([`text`]).
//!
//! What the cluster makes the host keep counts too, but is never refused: a key that a
//! trigger enqueues is not lost because a guest has enqueued many.

mod ledger;
pub mod memory;
mod series;
pub mod text;

use std::fmt;

use crate::circuit::{CallFailure, CallFailureKind};

pub use ledger::Ledger;
pub use series::{Series, SeriesKey};

/// Bytes of a MiB.
pub const MIB: usize = 1 << 20;

/// The most that the host keeps for one revision of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Notes.
    pub notes: usize,
    /// Bytes of notes, with their keys.
    pub note_bytes: usize,
    /// Queue items, pending or being reconciled.
    pub queue_items: usize,
    /// Bytes of queue items: their keys, their groups and the failures of their last
    /// attempts.
    pub queue_bytes: usize,
    /// Groups of queues, with a rate or with items.
    pub rate_groups: usize,
    /// Series of the metrics that the guest declares: combinations of label values.
    pub metric_series: usize,
    /// Bytes of the plans that are kept to compare a candidate with the stable revision.
    pub compared_bytes: usize,
    /// Bytes of plans that are decided and have not ended.
    pub plan_bytes: usize,
    /// Bytes of objects that the calls in flight have read live.
    pub live_read_bytes: usize,
    /// Bytes of guest text in the log in 60 seconds.
    pub log_bytes: usize,
}

impl Default for Bounds {
    /// More than twice what the guests that ship with Davit need in a cluster of 150,000
    /// pods.
    fn default() -> Self {
        Self {
            notes: 200_000,
            note_bytes: 32 * MIB,
            queue_items: 500_000,
            queue_bytes: 64 * MIB,
            rate_groups: 10_000,
            metric_series: 10_000,
            compared_bytes: 64 * MIB,
            plan_bytes: 64 * MIB,
            live_read_bytes: 64 * MIB,
            log_bytes: 64 * MIB,
        }
    }
}

/// A bound that an answer can exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// [`Bounds::notes`]
    Notes,
    /// [`Bounds::note_bytes`]
    NoteBytes,
    /// [`Bounds::queue_items`]
    QueueItems,
    /// [`Bounds::queue_bytes`]
    QueueBytes,
    /// [`Bounds::rate_groups`]
    RateGroups,
    /// [`Bounds::metric_series`]
    MetricSeries,
    /// [`Bounds::live_read_bytes`]
    LiveReadBytes,
}

impl Bound {
    /// Every bound.
    pub const ALL: [Self; 7] = [
        Self::Notes,
        Self::NoteBytes,
        Self::QueueItems,
        Self::QueueBytes,
        Self::RateGroups,
        Self::MetricSeries,
        Self::LiveReadBytes,
    ];

    /// Its field in `spec.limits`.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Notes => "notes",
            Self::NoteBytes => "noteMib",
            Self::QueueItems => "queueItems",
            Self::QueueBytes => "queueMib",
            Self::RateGroups => "rateGroups",
            Self::MetricSeries => "metricSeries",
            Self::LiveReadBytes => "liveReadMib",
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Notes => "notes",
            Self::NoteBytes => "bytes of notes",
            Self::QueueItems => "queue items",
            Self::QueueBytes => "bytes of queue items",
            Self::RateGroups => "groups of queues",
            Self::MetricSeries => "series of metrics",
            Self::LiveReadBytes => "bytes of live reads",
        }
    }
}

/// A bound that would be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundExceeded {
    /// The bound.
    pub bound: Bound,
    /// What the host would keep.
    pub wanted: usize,
    /// The most that it keeps.
    pub most: usize,
}

impl fmt::Display for BoundExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bound,
            wanted,
            most,
        } = self;
        let (field, unit) = (bound.field(), bound.unit());
        write!(
            f,
            "{field}: the host would keep {wanted} {unit}, and the limit is {most}: fix the \
             guest, or raise limits.{field}"
        )
    }
}

impl From<BoundExceeded> for CallFailure {
    fn from(exceeded: BoundExceeded) -> Self {
        Self::new(CallFailureKind::Flood, exceeded.to_string())
    }
}
