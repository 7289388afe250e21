//! The deletions of one controller that are deferred.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::failure::Failure;
use crate::time::Instant;

/// How long a deletion that was deferred counts after its last failure, unless it succeeds: longer
/// than the longest back-off of a queue.
const DEFERRED_FOR: Duration = Duration::from_mins(20);
/// How many deferred deletions a controller notes: one is enough for its condition, and the others
/// keep it when that one ends.
const MOST_NOTED: usize = 64;

/// The deletions of a controller that are deferred, by the uids of their targets. While one of
/// them is, others that succeed change nothing.
#[derive(Debug, Default)]
pub(super) struct DeferredDeletions(BTreeMap<String, DeferredDeletion>);

#[derive(Debug)]
struct DeferredDeletion {
    /// The failure.
    message: String,
    first: Instant,
    last: Instant,
}

impl DeferredDeletions {
    /// Whether none is noted.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A deletion was deferred.
    pub(super) fn note(&mut self, uid: &str, failure: &Failure, now: Instant) {
        self.0.retain(|_, one| now.since(one.last) < DEFERRED_FOR);
        let message = failure.message.clone();
        if let Some(known) = self.0.get_mut(uid) {
            known.message = message;
            known.last = now;
        } else if self.0.len() < MOST_NOTED {
            let noted = DeferredDeletion {
                message,
                first: now,
                last: now,
            };
            self.0.insert(uid.to_owned(), noted);
        }
    }

    /// A deletion succeeded, or its target is gone.
    pub(super) fn end(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// The failure of the one that has been deferred for the longest time. It stays the same while
    /// others come and go.
    pub(super) fn longest(&self, now: Instant) -> Option<&str> {
        let present = self.0.iter();
        let present = present.filter(|(_, one)| now.since(one.last) < DEFERRED_FOR);
        let longest = present.min_by_key(|(uid, one)| (one.first, *uid));
        longest.map(|(_, one)| one.message.as_str())
    }
}
