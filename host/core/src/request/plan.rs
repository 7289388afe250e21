//! Executing a plan: its steps in order, until one fails.

use std::sync::Arc;

use super::step::{Stage, StepAction, StepContext};
use super::{Attempt, Request, RequestError};
use crate::controller::Outcome;
use crate::expectation::WriteResult;
use crate::failure::{Failure, FailureClass};
use crate::mapping::Mapping;
use crate::object::ObjectRef;
use crate::plan::{Event, Plan, Step};

/// A plan in execution. It never has more than one request under way.
#[derive(Debug)]
pub struct PlanExecution {
    plan: Arc<Plan>,
    mapping: Arc<Mapping>,
    field_manager: String,
    /// The step that is next, or that waits for an answer.
    position: usize,
    waiting: Option<Stage>,
    outcome: Outcome,
}

/// The next action.
#[derive(Debug)]
pub enum PlanAction {
    /// Send this request, and pass its answer to [`PlanExecution::handle`].
    Send(Request),
    /// Record this event about the plan's target. It never fails a plan.
    Record(Event),
    /// The plan has ended.
    Done(Outcome),
}

/// The outcome of a plan that was withdrawn before it started: its item is decided
/// again.
#[must_use]
pub fn withdrawn(plan: &Plan) -> Outcome {
    let message = format!(
        "{}: not started, since the controller was changed meanwhile",
        plan.target
    );
    Outcome {
        written: None,
        failed: Some((0, Failure::new(FailureClass::Conflict, message))),
    }
}

/// The outcome of a plan whose execution broke off, after an unknown number of steps: its
/// item is decided again, as after a request without an answer.
#[must_use]
pub fn broken_off(plan: &Plan, reason: &str) -> Outcome {
    let message = format!("{}: {reason}", plan.target);
    Outcome {
        written: None,
        failed: Some((0, Failure::new(FailureClass::Timeout, message))),
    }
}

/// The object that the first request of a plan writes, and the position of that step;
/// none if the plan sends nothing.
#[must_use]
pub fn first_written(plan: &Plan) -> Option<(u32, &ObjectRef)> {
    let mut steps = (0..).zip(&plan.steps);
    let (position, step) = steps.find(|(_, step)| !matches!(step, Step::Event(_)))?;
    let object = match step {
        Step::Create(create) => &create.object,
        _ => &plan.target,
    };
    Some((position, object))
}

/// The outcome of a plan that could not start: its first request was not sent.
#[must_use]
pub fn not_sent(position: u32, object: &ObjectRef, error: &RequestError) -> Outcome {
    let attempt = Attempt {
        verb: "write",
        object,
    };
    Outcome {
        written: None,
        failed: Some((position, error.failure(&attempt))),
    }
}

impl PlanExecution {
    /// Starts a plan for the controller of that field manager.
    #[must_use]
    pub fn new(plan: Arc<Plan>, mapping: Arc<Mapping>, field_manager: &str) -> Self {
        Self {
            plan,
            mapping,
            field_manager: field_manager.to_owned(),
            position: 0,
            waiting: None,
            outcome: Outcome {
                written: None,
                failed: None,
            },
        }
    }

    /// The next action. Do not call it while a request is under way.
    pub fn proceed(&mut self) -> PlanAction {
        while let Some(context) = self.step() {
            if let Step::Event(event) = context.step {
                let event = event.clone();
                self.position += 1;
                return PlanAction::Record(event);
            }
            let next = context.start();
            if let Some(next) = self.advance(next) {
                return next;
            }
        }
        PlanAction::Done(self.outcome.clone())
    }

    /// Handles the answer to the last request.
    pub fn handle(&mut self, answer: Result<&[u8], &RequestError>) -> PlanAction {
        let stage = self.waiting.take();
        let next = stage.zip(self.step());
        let next = next.map(|(stage, context)| context.handle(stage, answer));
        match next.and_then(|next| self.advance(next)) {
            Some(next) => next,
            None => self.proceed(),
        }
    }

    fn step(&self) -> Option<StepContext<'_>> {
        if self.outcome.failed.is_some() {
            return None;
        }
        Some(StepContext {
            mapping: &self.mapping,
            target: &self.plan.target,
            step: self.plan.steps.get(self.position)?,
            field_manager: &self.field_manager,
        })
    }

    /// Returns the request of a step; none if the step has ended.
    fn advance(&mut self, next: StepAction) -> Option<PlanAction> {
        let result = match next {
            StepAction::Send(request, stage) => {
                self.waiting = Some(stage);
                return Some(PlanAction::Send(request));
            }
            StepAction::Done(result) => result,
        };
        match result {
            Ok(written) => {
                if let Some(written) = written {
                    self.outcome.written = Some(after(self.outcome.written, written));
                }
                self.position += 1;
            }
            Err(failure) => {
                let position = u32::try_from(self.position).unwrap_or(u32::MAX);
                self.outcome.failed = Some((position, failure));
            }
        }
        None
    }
}

/// The effect of two successive writes: a write without a version has a later version
/// than the write before it.
fn after(before: Option<WriteResult>, written: WriteResult) -> WriteResult {
    match (before, written) {
        (Some(WriteResult::Version(version)), WriteResult::Unknown) => {
            WriteResult::Version(version.saturating_add(1))
        }
        (_, written) => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request may have been executed: only a failure without an answer says so.
    #[test]
    fn a_plan_that_broke_off_is_decided_again_and_one_that_was_withdrawn_too() {
        let plan = Plan {
            target: ObjectRef {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                namespace: "shop".to_owned(),
                name: "a".to_owned(),
                uid: "uid".to_owned(),
            },
            reason: "orphaned".to_owned(),
            message: String::new(),
            steps: Vec::new(),
            measures: Vec::new(),
            when_cancelled: None,
        };
        for (outcome, class) in [
            (broken_off(&plan, "a bug"), FailureClass::Timeout),
            (withdrawn(&plan), FailureClass::Conflict),
        ] {
            assert_eq!(outcome.written, None);
            let (position, failure) = outcome.failed.unwrap();
            assert_eq!((position, failure.class), (0, class));
            let message = failure.message;
            assert!(
                message.starts_with(&format!("{}: ", plan.target)),
                "{message}"
            );
        }
    }
}
