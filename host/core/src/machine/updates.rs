//! Handling the updates of streams.

use std::time::Duration;

use super::Machine;
use super::report::Report;
use crate::coverage::is_definitions;
use crate::queue::Origin;
use crate::store::{Change, FeedUpdate};
use crate::stream::{Batch, StreamId, Update};
use crate::throttle::SuppressedCount;
use crate::time::{Instant, Now};
use crate::watch::Condition;

impl<G: Clone> Machine<G> {
    pub(super) fn handle_updates(&mut self, now: Now, batch: Batch) {
        let mut fresh = Vec::new();
        let segment = self.streams.segment(batch.stream);
        let gap = segment.map(|segment| self.heard(segment, &batch.updates, now.instant));
        let spec = segment.and_then(|segment| self.store.segment_spec(segment));
        // Definitions and served resources decide whose objects are gone.
        let mut may_be_gone = spec.is_some_and(|spec| is_definitions(&spec.resource));
        for update in batch.updates {
            if let Update::Status(condition) = &update {
                may_be_gone |= *condition == Condition::NotServed;
                self.handle_condition(now.instant, batch.stream, condition);
                continue;
            }
            let mut changes = Vec::new();
            let (streams, store) = (&mut self.streams, &mut self.store);
            let updated = streams.update(store, batch.stream, update, now.instant, &mut changes);
            match updated {
                Ok(FeedUpdate::Changes) => {
                    self.compare_changes(now.instant, &changes, Duration::ZERO);
                    fresh.append(&mut changes);
                }
                Ok(FeedUpdate::List) => {
                    self.compare_changes(now.instant, &changes, gap.unwrap_or_default());
                    self.handle_condition(now.instant, batch.stream, &Condition::Synced);
                    let before = std::mem::take(&mut fresh);
                    self.handle_changes(now.instant, &before, Origin::Fresh);
                    self.handle_changes(now.instant, &changes, Origin::Relist);
                    // This list may be of the version that replaces another one.
                    self.detach_all(now.instant);
                    self.start_ready(now);
                }
                Err(error) => self.outbox.report(Report::ListRefused {
                    reason: error.to_string(),
                }),
            }
        }
        self.handle_changes(now.instant, &fresh, Origin::Fresh);
        if may_be_gone {
            self.detach_all(now.instant);
        }
    }

    /// Passes changes of the cache to the controllers.
    pub(super) fn handle_changes(&mut self, now: Instant, changes: &[Change], origin: Origin) {
        if changes.is_empty() {
            return;
        }
        self.end_deferred_deletions(changes);
        let snapshot = self.store.snapshot();
        // A host has many views, and each controller few of them.
        for of_object in changes.chunk_by(Change::is_of_same_object) {
            for (_, controller) in self.running_mut() {
                controller.handle_change(now, of_object, origin, &snapshot);
            }
        }
    }

    fn handle_condition(&mut self, now: Instant, stream: StreamId, condition: &Condition) {
        let segment = self.streams.segment(stream);
        let Some(spec) = segment.and_then(|segment| self.store.segment_spec(segment)) else {
            return;
        };
        let resource = spec.resource.to_string();
        let warning = match condition {
            Condition::Interrupted { reason } => self.warns(now, reason),
            Condition::Synced | Condition::NotServed => None,
        };
        self.streams.note_hindrance(stream, condition);
        let is_current = self.streams.fills(stream);
        self.outbox.report(Report::Stream {
            resource,
            condition: condition.clone(),
            is_current,
            warning,
        });
        if is_current {
            self.streams.note_condition(stream, condition, now);
            self.unlisted = None;
        }
    }

    /// Whether to log an interruption as a warning. While the API server does not
    /// answer, one line stands for all.
    pub(super) fn warns(&mut self, now: Instant, cause: &str) -> Option<SuppressedCount> {
        if !self.reachable {
            return None;
        }
        self.outbox.log.interruption(cause, now)
    }
}
