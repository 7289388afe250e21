//! Reviewing the accounts of controllers.

use std::collections::BTreeMap;

use super::reviews::ReviewId;
use super::{Control, ControlEffect, Report, known};
use crate::observation::Observation;
use crate::request::review::ReviewAnswer;
use crate::throttle::cause_of;
use crate::time::{Instant, Now};

impl<G: Clone> Control<G> {
    /// Sends the reviews that are due, and gives each controller the known answers.
    pub(super) fn review(&mut self, now: Instant, observed: &BTreeMap<String, Observation>) {
        let (mut count, mut have_changed) = (0, false);
        for (name, controller) in known(&mut self.controllers) {
            count += 1;
            have_changed |= controller.take_changed_needs();
            if !controller.rest.is_passed_over()
                && controller.note_forbidden(observed.get(name))
                && let Some(account) = controller.account()
            {
                self.reviews.doubt(&account);
            }
        }
        if have_changed || self.reviews.controllers != count {
            self.reviews.controllers = count;
            let all = known(&mut self.controllers);
            let needed = all.flat_map(|(_, controller)| controller.reviews());
            self.reviews.follow(&needed.collect(), now);
        }
        let last_id = &mut self.last_id;
        let due = self.reviews.due(now, || {
            *last_id += 1;
            ReviewId(*last_id)
        });
        let due = due
            .into_iter()
            .map(|(id, review)| ControlEffect::Review { id, review });
        self.outputs.extend(due.map(Into::into));
        for (_, controller) in known(&mut self.controllers) {
            controller.note_reviews(self.reviews.known());
        }
    }

    pub(super) fn handle_reviewed(
        &mut self,
        now: Now,
        id: ReviewId,
        result: Result<ReviewAnswer, String>,
    ) {
        let error = result.as_ref().err().cloned();
        let account = self.reviews.handle(id, result, now.instant);
        if let (Some(account), Some(error)) = (account, error)
            && let Some(suppressed) = self
                .failures
                .admit((account.to_string(), cause_of(&error)), now.instant)
        {
            self.report(Report::NotReviewed {
                account,
                error,
                suppressed,
            });
        }
        self.due = now.instant;
    }
}
