//! Deletions that are deferred, because their targets cannot be kept for undo.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Machine;
use super::hosted::HostedController;
use crate::controller::{Outcome, PlanId};
use crate::failure::{Failure, FailureClass};
use crate::time::Instant;
use crate::undo::{IdleKinds, NotKept};

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
    /// A deletion was deferred.
    fn note(&mut self, uid: &str, failure: &Failure, now: Instant) {
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
    fn end(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// The failure of the one that has been deferred for the longest time. It stays the same while
    /// others come and go.
    fn longest(&self, now: Instant) -> Option<&str> {
        let present = self.0.iter();
        let present = present.filter(|(_, one)| now.since(one.last) < DEFERRED_FOR);
        let longest = present.min_by_key(|(uid, one)| (one.first, *uid));
        longest.map(|(_, one)| one.message.as_str())
    }
}

impl<G: Clone> Machine<G> {
    /// Notes whether the deletion of a plan was deferred, or has ended.
    pub(super) fn note_deferred_deletions(
        &mut self,
        plan: PlanId,
        outcome: &Outcome,
        now: Instant,
    ) {
        let Some(executed) = self.outbox.plan(plan).cloned() else {
            return;
        };
        let Some((_, hosted)) = super::find(&mut self.controllers, plan.controller) else {
            return;
        };
        let (uid, deferred) = (&executed.target.uid, &mut hosted.deferred_deletions);
        match &outcome.failed {
            Some((_, failure)) if failure.class == FailureClass::NotKept => {
                deferred.note(uid, failure, now);
            }
            Some((_, failure)) if failure.class.means_gone() => deferred.end(uid),
            None if executed.deletes() => deferred.end(uid),
            _ => {}
        }
    }

    /// Why deletions of a controller are deferred; none if they are not.
    pub(super) fn deferred_deletions(
        &self,
        hosted: &HostedController<G>,
        now: Instant,
    ) -> Option<String> {
        if hosted.settings.undo.is_empty() {
            return None;
        }
        if !self.has_journal() {
            return Some(NotKept::NoJournal.to_string());
        }
        hosted
            .deferred_deletions
            .longest(now)
            .map(ToOwned::to_owned)
    }

    /// The kinds of a controller's undo that keep nothing; none without undo, and until that is
    /// known.
    pub(super) fn idle_undo_kinds(&self, hosted: &HostedController<G>) -> Option<IdleKinds> {
        let (mapping, rules) = (self.mapping.as_deref()?, &hosted.settings.undo);
        let manifests = hosted.revisions().map(|(manifest, _)| manifest);
        let manifests: Vec<_> = manifests.collect();
        let is_known = !rules.is_empty() && !manifests.is_empty();
        is_known.then(|| rules.idle(mapping, &manifests))
    }
}
