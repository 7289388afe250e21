//! Executing plans.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use davit_core::account::Account;
use davit_core::controller::Outcome;
use davit_core::events::Decision;
use davit_core::mapping::Mapping;
use davit_core::plan::Plan;
use davit_core::request::plan::{PlanAction, PlanExecution, first_written, not_sent};

use crate::api::{Api, Course};
use crate::events::Recorder;
use crate::term::Term;

/// Writes for one controller.
#[derive(Clone)]
pub struct Writer {
    api: Api,
    recorder: Recorder,
    field_manager: String,
}

impl Writer {
    /// A writer for the controller of this name; the field manager is `davit/NAME`. It
    /// writes as the account, if there is one; the host itself sends the events.
    #[must_use]
    pub fn new(api: &Api, recorder: Recorder, controller: &str, account: Option<&Account>) -> Self {
        Self {
            api: api.on_behalf_of(controller, account),
            recorder,
            field_manager: format!("davit/{controller}"),
        }
    }

    /// Waits for the turn of a plan: of its first step that sends a request. Until then
    /// the plan has not started. Fails if the server has asked for a pause that is too
    /// long to wait.
    pub async fn start(&self, plan: &Plan) -> Result<Course, Outcome> {
        let Some((position, object)) = first_written(plan) else {
            return Ok(Course::default());
        };
        let course = self.api.start(object.group()).await;
        course.map_err(|error| not_sent(position, object, &error))
    }

    /// Executes the steps of a plan in order, until one fails or the term is over. An event
    /// names the decision; without one, events are not recorded. It is only queued, and
    /// never fails.
    pub async fn execute(
        &self,
        mapping: &Arc<Mapping>,
        plan: &Arc<Plan>,
        decision: Option<&Decision>,
        mut course: Course,
        term: &Term,
    ) -> Outcome {
        let (plan, mapping) = (Arc::clone(plan), Arc::clone(mapping));
        let mut execution = PlanExecution::new(plan.clone(), mapping, &self.field_manager);
        let mut next = execution.proceed();
        loop {
            next = match next {
                PlanAction::Send(request) => {
                    let call = self.api.call_in_term(&request, &mut course, term);
                    let answer = term.send(call).await;
                    execution.handle(answer.as_deref())
                }
                PlanAction::Record(event) => {
                    if decision.is_some() {
                        self.recorder.record(&plan.target, &event, decision);
                    }
                    execution.proceed()
                }
                PlanAction::Done(outcome) => return outcome,
            };
        }
    }
}
