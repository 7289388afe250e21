//! Executing the steps of a plan.

#[cfg(test)]
mod tests;

use davit_core::failure::Failure;
use davit_core::mapping::Mapping;
use davit_core::object::ObjectRef;
use davit_core::plan::{Plan, Step};
use davit_core::request::Attempt;
use davit_core::request::step::{Next, Outcome, StepExecution, first_written};

use crate::api::{Api, Course};
use crate::events::Recorder;

/// Writes for one controller.
#[derive(Clone)]
pub struct Writer {
    api: Api,
    recorder: Recorder,
    field_manager: String,
}

/// What decided a plan, to find it again in logs and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The revision of the controller.
    pub revision: String,
    /// Names this decision among all.
    pub id: String,
}

impl Writer {
    /// A writer for the controller of this name, which it also goes by in
    /// managed fields: `davit/NAME`. It writes in the name of that user, if one
    /// is given; its events are the host's.
    #[must_use]
    pub fn new(api: &Api, recorder: Recorder, controller: &str, user: Option<&str>) -> Self {
        Self {
            api: user
                .map_or_else(|| api.clone(), |user| api.impersonating(user))
                .on_behalf_of(controller),
            recorder,
            field_manager: format!("davit/{controller}"),
        }
    }

    /// Waits for a plan's turn: that of its first step that sends anything. Until
    /// then the plan has not begun. Fails, at that step, if the server has asked
    /// for a pause that is too long to wait.
    pub async fn begin(&self, plan: &Plan) -> Result<Course, (u32, Failure)> {
        let Some((position, object)) = first_written(plan) else {
            return Ok(Course::default());
        };
        let attempt = Attempt {
            verb: "write",
            object,
        };
        let course = self.api.begin(object.group()).await;
        course.map_err(|error| (position, error.failure(&attempt)))
    }

    /// Executes one step on a plan's target. An event is only queued, and never
    /// fails.
    pub async fn execute(
        &self,
        mapping: &Mapping,
        target: &ObjectRef,
        step: &Step,
        decision: &Decision,
        course: &mut Course,
    ) -> Result<Outcome, Failure> {
        if let Step::Event(event) = step {
            self.recorder.record(target, event, Some(decision));
        }
        let (mut execution, mut next) =
            StepExecution::start(mapping, target, step, &self.field_manager);
        loop {
            match next {
                Next::Send(request) => {
                    let answer = self.api.call(&request, course).await;
                    next = execution.handle(answer.as_deref());
                }
                Next::Done(result) => return result,
            }
        }
    }
}
