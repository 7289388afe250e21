//! Deletions that are deferred, because their targets cannot be kept for undo.

use super::Machine;
use super::hosted::HostedController;
use crate::controller::{Outcome, PlanId};
use crate::failure::FailureClass;
use crate::plan::{Plan, Step};
use crate::time::Instant;
use crate::undo::NotKept;

impl<G: Clone> Machine<G> {
    /// Notes whether a deletion was deferred, or the first one after it was not.
    pub(super) fn note_deferred_deletions(
        &mut self,
        plan: PlanId,
        outcome: &Outcome,
        now: Instant,
    ) {
        let Some(executed) = self.outbox.plan(plan).cloned() else {
            return;
        };
        let mapping = self.mapping.as_deref();
        let Some((_, hosted)) = super::find(&mut self.controllers, plan.controller) else {
            return;
        };
        match &outcome.failed {
            Some((_, failure)) if failure.class == FailureClass::NotKept => {
                hosted.note_deferred_deletions(failure.message.clone(), now);
            }
            None if hosted.deferred_deletions(now).is_some() => {
                let target = &executed.target;
                let served = mapping.and_then(|it| it.by_kind(&target.api_version, &target.kind));
                let rules = &hosted.settings.undo;
                if deletes(&executed) && served.is_some_and(|it| rules.keeps(&it.resource)) {
                    hosted.end_deferred_deletions();
                }
            }
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
        hosted.deferred_deletions(now).map(ToOwned::to_owned)
    }
}

fn deletes(plan: &Plan) -> bool {
    let mut steps = plan.steps.iter();
    steps.any(|step| matches!(step, Step::Delete(_) | Step::Evict(_)))
}
