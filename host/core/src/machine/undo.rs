//! Deletions that are deferred, because their targets cannot be kept for undo.

use super::Machine;
use super::hosted::HostedController;
use crate::controller::{Outcome, PlanId};
use crate::failure::FailureClass;
use crate::gate::Mode;
use crate::store::Change;
use crate::time::Instant;
use crate::undo::{IdleKinds, NotKept};

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

    /// Nobody deletes what the cache says is gone: no plan would end its deferral.
    pub(super) fn end_deferred_deletions(&mut self, changes: &[Change]) {
        let hosted = self.controllers.values_mut();
        let deferred = hosted.map(|hosted| &mut hosted.deferred_deletions);
        for deferred in deferred.filter(|deferred| !deferred.is_empty()) {
            for change in changes {
                let Some(old) = &change.old else { continue };
                let mut new = change.new.iter();
                if !new.any(|new| new.uid() == old.uid()) {
                    deferred.end(&old.uid().to_string());
                }
            }
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
            let defers = hosted.settings.mode == Mode::Enforce && self.keeps_some_kind(hosted);
            return defers.then(|| NotKept::NoJournal.to_string());
        }
        hosted
            .deferred_deletions
            .longest(now)
            .map(ToOwned::to_owned)
    }

    /// Whether the controller deletes objects of one of the kinds that are to be kept. Its other
    /// deletions are not deferred.
    fn keeps_some_kind(&self, hosted: &HostedController<G>) -> bool {
        let idle = self.idle_undo_kinds(hosted);
        let count = |idle: &IdleKinds| idle.not_served.len() + idle.not_deleted.len();
        idle.is_some_and(|idle| count(&idle) < hosted.settings.undo.kinds.len())
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
