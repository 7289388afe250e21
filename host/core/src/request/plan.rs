//! Executing a plan: its turn, and its steps in order, until one fails.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use super::call::{Call, Course, Sender};
use super::step::{Stage, StepAction, StepContext};
use super::{Attempt, Request, RequestError};
use crate::controller::Outcome;
use crate::expectation::WriteResult;
use crate::failure::{Failure, FailureClass};
use crate::mapping::Mapping;
use crate::object::ObjectRef;
use crate::plan::{Event, Plan, Step};
use crate::time::Instant;
use crate::traffic::{TurnRequest, Urgency};

/// A plan in execution: it waits for its turn, starts if the host still leads the
/// controller, and executes its steps. It never has more than one request under way.
///
/// The driver executes a [`PlanAction`] and passes its result back, until the plan is done.
/// `P` is the driver's permit for a turn.
#[derive(Debug)]
pub struct PlanExecution<P> {
    plan: Arc<Plan>,
    mapping: Arc<Mapping>,
    sender: Sender,
    field_manager: String,
    state: State,
    /// The permit of the turn, until the first request uses it.
    course: Course<P>,
    /// When the plan started; none before.
    started: Option<Instant>,
    /// The step that is next, or that waits for an answer.
    position: usize,
    outcome: Outcome,
}

#[derive(Debug)]
enum State {
    /// The plan waits for its turn. Until it starts, it can be withdrawn.
    Waiting(TurnRequest),
    /// It has its turn, or needs none. The term may have ended meanwhile.
    Granted,
    /// It has started. A step waits for the answer to its request, or the next one is due.
    Started(Option<Stage>),
    /// Nothing more is sent.
    Over,
}

/// The next action.
#[derive(Debug)]
pub enum PlanAction<P> {
    /// Wait for this turn, and pass the permit to [`PlanExecution::handle_turn`], or
    /// call [`PlanExecution::withdraw`].
    Wait(TurnRequest),
    /// Check whether plans may start now, and pass that to [`PlanExecution::handle_term`].
    CheckTerm,
    /// Send this request with a [`PlanExecution::call`], and pass its answer to
    /// [`PlanExecution::handle_answer`].
    Send(Request),
    /// Record this event about the plan's target, and continue with
    /// [`PlanExecution::proceed`]. It never fails a plan.
    Record(Event),
    /// End this turn, in which nothing was sent, and continue with
    /// [`PlanExecution::proceed`].
    EndTurn(P),
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
fn first_written(plan: &Plan) -> Option<(u32, &ObjectRef)> {
    let mut steps = (0..).zip(&plan.steps);
    let (position, step) = steps.find(|(_, step)| !matches!(step, Step::Event(_)))?;
    let object = match step {
        Step::Create(create) => &create.object,
        _ => &plan.target,
    };
    Some((position, object))
}

/// The outcome of a plan that could not start: its first request was not sent.
fn not_sent(plan: &Plan, error: &RequestError) -> Outcome {
    let (position, object) = first_written(plan).unwrap_or((0, &plan.target));
    let attempt = Attempt {
        verb: "write",
        object,
    };
    Outcome {
        written: None,
        failed: Some((position, error.failure(&attempt))),
    }
}

impl<P> PlanExecution<P> {
    /// Executes the plan of the sender's controller. [`Self::proceed`] returns the first
    /// action.
    #[must_use]
    pub fn new(plan: Arc<Plan>, mapping: Arc<Mapping>, sender: Sender) -> Self {
        let turn = first_written(&plan).map(|(_, object)| sender.beginning(object.group()));
        Self {
            field_manager: format!("davit/{}", sender.controller),
            state: turn.map_or(State::Granted, State::Waiting),
            course: Course::new(Urgency::Finish),
            started: None,
            position: 0,
            outcome: Outcome {
                written: None,
                failed: None,
            },
            plan,
            mapping,
            sender,
        }
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Who sends its requests.
    #[must_use]
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Whether the plan waits for its turn.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// How long the plan has been executed, without the wait for its turn.
    #[must_use]
    pub fn took(&self, now: Instant) -> Duration {
        self.started.map_or(Duration::ZERO, |at| now.since(at))
    }

    /// The next action. Until the input that it asks for, the action stays the same.
    /// Do not call it while a request is under way.
    pub fn proceed(&mut self) -> PlanAction<P> {
        match &self.state {
            State::Waiting(turn) => PlanAction::Wait(turn.clone()),
            State::Granted => PlanAction::CheckTerm,
            State::Started(_) => self.next_step(),
            State::Over => match self.course.take_permit() {
                Some(permit) => PlanAction::EndTurn(permit),
                None => PlanAction::Done(self.outcome.clone()),
            },
        }
    }

    /// The plan has its turn, or would have to wait too long: for the rest of a pause of
    /// the server.
    pub fn handle_turn(&mut self, turn: Result<P, Duration>) -> PlanAction<P> {
        let is_waiting = self.is_waiting();
        match turn {
            Ok(permit) => {
                // A turn that comes too late ends unused.
                self.course = Course::started(permit);
                if is_waiting {
                    self.state = State::Granted;
                }
            }
            Err(left) if is_waiting => {
                self.end(not_sent(&self.plan, &RequestError::Paused(left)));
            }
            Err(_) => {}
        }
        self.proceed()
    }

    /// Whether this replica leads the controller now. If not, the plan does not start: the
    /// host withdraws it too, but may not have had the time to.
    pub fn handle_term(&mut self, now: Instant, holds: bool) -> PlanAction<P> {
        if matches!(self.state, State::Granted) {
            if holds {
                self.started = Some(now);
                self.state = State::Started(None);
            } else {
                self.end(withdrawn(&self.plan));
            }
        }
        self.proceed()
    }

    /// Withdraws the plan, unless it has started.
    pub fn withdraw(&mut self) -> PlanAction<P> {
        if matches!(self.state, State::Waiting(_) | State::Granted) {
            self.end(withdrawn(&self.plan));
        }
        self.proceed()
    }

    /// A call for the request that [`Self::proceed`] returned. The first one needs no
    /// other turn than the plan's.
    pub fn call<B>(&mut self, request: &Request) -> Call<P, B> {
        Call::new(request, &self.sender, &mut self.course)
    }

    /// Handles the answer to the last request.
    pub fn handle_answer(&mut self, answer: Result<&[u8], &RequestError>) -> PlanAction<P> {
        let stage = match &mut self.state {
            State::Started(stage) => stage.take(),
            _ => None,
        };
        let next = stage.zip(self.step());
        let next = next.map(|(stage, context)| context.handle(stage, answer));
        match next.and_then(|next| self.advance(next)) {
            Some(next) => next,
            None => self.proceed(),
        }
    }

    fn end(&mut self, outcome: Outcome) {
        self.outcome = outcome;
        self.state = State::Over;
    }

    fn next_step(&mut self) -> PlanAction<P> {
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
        self.state = State::Over;
        self.proceed()
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
    fn advance(&mut self, next: StepAction) -> Option<PlanAction<P>> {
        let result = match next {
            StepAction::Send(request, stage) => {
                self.state = State::Started(Some(stage));
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
