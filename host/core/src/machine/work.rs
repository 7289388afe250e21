//! Work: answers of guests, calls into them, and the effects of the controllers.

use std::sync::Arc;

use super::Machine;
use super::exchange::{Call, Effect};
use super::report::Report;
use crate::controller::{CallRequest, World};
use crate::coverage::UnlistedResourcesByView;
use crate::mapping::Mapping;
use crate::rollout::Role;
use crate::time::{Instant, Now};

impl<G: Clone> Machine<G> {
    /// Executes a slice of every controller's answers, makes the calls, and takes the
    /// controllers' effects.
    pub(super) fn work(&mut self, now: Now) {
        let Some(mapping) = self.mapping.clone() else {
            return;
        };
        if !self.outbox.stopping {
            self.continue_answers(now.instant, &mapping);
            self.call_all(now, &mapping);
        }
        // After the calls, because dequeueing items is an effect too.
        self.settle(now.instant);
    }

    /// Executes a slice of each controller's answers.
    fn continue_answers(&mut self, now: Instant, mapping: &Mapping) {
        let snapshot = self.store.snapshot();
        for (name, hosted) in &mut self.controllers {
            if let Some(controller) = &mut hosted.controller {
                let leading = hosted.leads && self.leadership.holds(name, now);
                controller.continue_work(&World {
                    now,
                    snapshot: &snapshot,
                    mapping,
                    leading,
                });
            }
        }
    }

    fn call_all(&mut self, now: Now, mapping: &Arc<Mapping>) {
        let snapshot = self.store.snapshot();
        let mut requests = Vec::new();
        for (name, hosted) in &mut self.controllers {
            let Some(controller) = &mut hosted.controller else {
                continue;
            };
            controller.continue_resync(now.instant, &snapshot);
            let compared = hosted.compared.as_ref();
            // A snapshot with what is held costs as much as there is.
            let is_due = controller.has_due_call(now.instant);
            let former = compared
                .filter(|_| is_due && controller.settings().is_compared())
                .and_then(|one| one.read(&snapshot));
            let read = former.as_ref().unwrap_or(&snapshot);
            for role in Role::ALL {
                while let Some(request) = controller.poll_call(now.instant, role, read, mapping) {
                    requests.push((name.clone(), request, former.is_some()));
                }
            }
        }
        if requests.is_empty() {
            return;
        }
        let unlisted = self.unlisted(mapping, now.instant);
        let views = requests
            .iter()
            .flat_map(|(_, request, _)| request.views.values());
        self.store.release_renewals_of(views.copied());
        self.note_changes();
        for (name, request, reads_former) in requests {
            let mut call = call(&name, request, &unlisted, now);
            call.log_bytes = self.outbox.log.room(&name, now.instant);
            self.note_call(&mut call, reads_former);
            self.outbox.push(Effect::Call(Box::new(call)));
        }
    }

    /// Takes all effects of the controllers so far, so that what a revision decided is
    /// not attributed to the one that replaces it.
    pub(super) fn settle(&mut self, now: Instant) {
        let Some(mapping) = &self.mapping else {
            return;
        };
        for (name, hosted) in &mut self.controllers {
            if let Some(controller) = &mut hosted.controller {
                let account = hosted.account.as_ref();
                self.outbox
                    .take_all(name, account, controller, mapping, now);
            }
        }
        for (controller, most) in self.outbox.log.take_exceeded() {
            self.outbox.report(Report::LogExceeded { controller, most });
        }
        self.compare_plans(now);
    }
}

pub(super) fn call<G>(
    name: &str,
    request: CallRequest<G>,
    unlisted: &UnlistedResourcesByView,
    now: Now,
) -> Call<G> {
    Call {
        id: request.id,
        controller: name.into(),
        revision: request.revision,
        role: request.role,
        guest: request.guest,
        now,
        items: request.items,
        reasons: request.reasons,
        continues: request.continues,
        snapshot: request.snapshot,
        views: request.views,
        pending: request.pending,
        notes: request.notes,
        grant: request.grant,
        mapping: request.mapping,
        unlisted: Arc::clone(unlisted),
        log_bytes: usize::MAX,
        is_recorded: false,
    }
}
