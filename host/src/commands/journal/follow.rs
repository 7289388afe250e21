//! The state of a journal along its segments.

use std::collections::BTreeMap;

use davit_core::journal::{Record, Replay, ReplayError, ReplayOutcome};
use davit_journal::Reader;

use crate::journal::SegmentOrigin;

/// Replays a journal, and forgets the state where entries are missing.
#[derive(Debug)]
pub(in crate::commands) struct Follower {
    replay: Replay,
    /// Whether each segment follows the one before it, by its number.
    continues: BTreeMap<u64, bool>,
    segment: Option<u64>,
}

impl Follower {
    pub(in crate::commands) fn new(reader: &Reader) -> Self {
        let segments = reader.segments().iter();
        let continues = segments.map(|segment| {
            let origin = SegmentOrigin::read(&segment.metadata);
            (segment.sequence, origin.continues)
        });
        Self {
            replay: Replay::default(),
            continues: continues.collect(),
            segment: None,
        }
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

    /// What happened between two segments is known if the second one says so.
    fn enter(&mut self, segment: u64) {
        if self.segment == Some(segment) {
            return;
        }
        let is_next = self.segment.is_some_and(|last| last + 1 == segment);
        if !is_next || self.continues.get(&segment) != Some(&true) {
            self.lose();
        }
        self.segment = Some(segment);
    }
}
