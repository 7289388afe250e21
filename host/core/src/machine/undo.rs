//! Deletions that are held back, because their targets cannot be kept for undo.

use std::time::Duration;

use super::Machine;
use super::hosted::HostedController;
use crate::controller::{Outcome, PlanId};
use crate::failure::FailureClass;
use crate::plan::{Plan, Step};
use crate::time::Instant;
use crate::undo::NotKept;

/// How long a deletion that was held back counts, unless a later one succeeds: longer than the
/// longest back-off of a queue.
const HELD_BACK_FOR: Duration = Duration::from_mins(20);

/// The last deletion that was held back.
#[derive(Clone, Debug)]
pub(super) struct HeldBack {
    /// The failure, with the cause and the remedy.
    message: String,
    at: Instant,
}

impl<G: Clone> Machine<G> {
    /// Notes whether a deletion was held back, or the first one after it was not.
    pub(super) fn note_held_back(&mut self, plan: PlanId, outcome: &Outcome, now: Instant) {
        let Some(executed) = self.outbox.plan(plan).cloned() else {
            return;
        };
        let mapping = self.mapping.as_deref();
        let Some((_, hosted)) = super::find(&mut self.controllers, plan.controller) else {
            return;
        };
        match &outcome.failed {
            Some((_, failure)) if failure.class == FailureClass::NotKept => {
                hosted.held_back = Some(HeldBack {
                    message: failure.message.clone(),
                    at: now,
                });
            }
            None if hosted.held_back.is_some() => {
                let target = &executed.target;
                let served = mapping.and_then(|it| it.by_kind(&target.api_version, &target.kind));
                let rules = &hosted.settings.undo;
                if deletes(&executed) && served.is_some_and(|it| rules.keeps(&it.resource)) {
                    hosted.held_back = None;
                }
            }
            _ => {}
        }
    }

    /// Why deletions of a controller are held back; none if they are not.
    pub(super) fn held_back(&self, hosted: &HostedController<G>, now: Instant) -> Option<String> {
        if hosted.settings.undo.is_empty() {
            return None;
        }
        if !self.has_journal() {
            return Some(NotKept::NoJournal.to_string());
        }
        let last = hosted.held_back.as_ref()?;
        (now.since(last.at) < HELD_BACK_FOR).then(|| last.message.clone())
    }
}

fn deletes(plan: &Plan) -> bool {
    let mut steps = plan.steps.iter();
    steps.any(|step| matches!(step, Step::Delete(_) | Step::Evict(_)))
}
