//! The state of a journal along its segments.

use std::collections::BTreeMap;

use davit_core::journal::{Record, Replay, ReplayError, ReplayOutcome};
use davit_journal::Reader;

use crate::journal::SegmentOrigin;

/// The segments of a journal in the order in which they are read.
#[derive(Debug)]
pub(in crate::commands) struct SegmentOrder {
    /// Whether each segment follows the one before it, by its number.
    continues: BTreeMap<u64, bool>,
    /// The segment that is read.
    segment: Option<u64>,
}

impl SegmentOrder {
    pub(in crate::commands) fn new(reader: &Reader) -> Self {
        let segments = reader.segments().iter();
        let continues = segments.map(|segment| {
            let origin = SegmentOrigin::read(&segment.metadata);
            (segment.sequence, origin.continues)
        });
        Self {
            continues: continues.collect(),
            segment: None,
        }
    }

    /// Whether an entry of this segment was read last.
    pub(in crate::commands) fn is_in(&self, segment: u64) -> bool {
        self.segment == Some(segment)
    }

    /// Reads an entry of this segment. Returns whether entries may be missing before it: what
    /// happened between two segments is known if the second one says so.
    pub(in crate::commands) fn enter(&mut self, segment: u64) -> bool {
        if self.is_in(segment) {
            return false;
        }
        let is_next = self.segment.is_some_and(|last| last + 1 == segment);
        self.segment = Some(segment);
        !is_next || self.continues.get(&segment) != Some(&true)
    }
}

/// Replays a journal, and forgets the state where entries are missing.
#[derive(Debug)]
pub(in crate::commands) struct Follower {
    replay: Replay,
    order: SegmentOrder,
}

impl Follower {
    pub(in crate::commands) fn new(reader: &Reader) -> Self {
        Self {
            replay: Replay::default(),
            order: SegmentOrder::new(reader),
        }
    }

    /// The state by now.
    pub(in crate::commands) const fn state(&self) -> &Replay {
        &self.replay
    }

    /// Reads an entry of this segment. Returns whether entries may be missing before it: the
    /// state is unknown then, and identifiers may be those of another host.
    pub(in crate::commands) fn enter(&mut self, segment: u64) -> bool {
        let is_missing = self.order.enter(segment);
        if is_missing {
            self.lose();
        }
        is_missing
    }

    /// Takes the next entry, of the segment with this number. Returns the call that ends with
    /// it. After an error, the state is unknown up to the next keyframe.
    pub(in crate::commands) fn handle(
        &mut self,
        segment: u64,
        record: Record,
    ) -> Result<Option<ReplayOutcome>, ReplayError> {
        self.enter(segment);
        let outcome = self.replay.handle(record);
        if outcome.is_err() {
            self.lose();
        }
        outcome
    }

    /// Entries are missing here.
    pub(in crate::commands) fn lose(&mut self) {
        self.replay = Replay::default();
    }
}
