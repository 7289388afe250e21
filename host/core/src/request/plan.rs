//! Executing a plan: its turn, and its steps in order, until one fails.

#[cfg(test)]
mod tests;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use super::call::{Call, Course, Sender};
use super::step::{Keeping, Stage, StepAction, StepContext};
use super::{Attempt, Request, RequestError};
use crate::controller::Outcome;
use crate::expectation::WriteResult;
use crate::failure::{Failure, FailureClass};
use crate::mapping::Mapping;
use crate::mutant::Mutant;
use crate::object::ObjectRef;
use crate::plan::{Event, Plan, Step};
use crate::time::Instant;
use crate::traffic::{TurnRequest, Urgency};
use crate::undo::{KeptObject, NotKept, UndoRules};

pub use writes::writes;

/// How often the target of one step is read and kept. A deletion names the version that was
/// kept; if the object has changed since, it is kept again.
const MOST_KEPT: u32 = 4;

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
    /// What is kept before it is deleted; none for nothing.
    undo: Option<Undo>,
    /// The version of the step's target that was kept.
    kept: Option<String>,
    /// How often the step's target was read and kept.
    times_kept: u32,
    /// Whether the plans of the controller were withdrawn after this one had started.
    is_withdrawn: bool,
    state: State,
    /// The permit of the turn, until the first request uses it.
    course: Course<P>,
    /// When the plan started; none before.
    started: Option<Instant>,
    /// The step that is next, or that waits for an answer.
    position: usize,
    outcome: Outcome,
}

/// What is kept before it is deleted.
#[derive(Clone, Debug)]
pub struct Undo {
    /// The rules of the controller.
    pub rules: Arc<UndoRules>,
    /// Whether the host has a journal.
    pub has_journal: bool,
}

#[derive(Debug)]
enum State {
    /// The plan waits for its turn. Until it starts, it can be withdrawn.
    Waiting(TurnRequest),
    /// It has its turn, or needs none. The term may have ended meanwhile.
    Granted,
    /// It has started. A step waits for the answer to its request, or the next one is due.
    Started(Option<Stage>),
    /// The target of a step, of this version, is being kept.
    Keeping(String),
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
    /// Write this object to the journal, and pass to [`PlanExecution::handle_kept`] whether the
    /// disk has it.
    Keep(Box<KeptObject>),
    /// End this turn, in which nothing was sent, and continue with
    /// [`PlanExecution::proceed`].
    EndTurn(P),
    /// The plan has ended.
    Done(Outcome),
}

/// The field manager of a controller's writes.
fn field_manager(controller: &str) -> String {
    format!("davit/{controller}")
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

/// The failure of a plan that was withdrawn before the deletion of a target that is kept.
fn not_deleted(plan: &Plan) -> Failure {
    let message = format!(
        "{}: not deleted, since the controller was changed while spec.undo kept the object",
        plan.target
    );
    Failure::new(FailureClass::Conflict, message)
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
        Step::Apply(apply) => &apply.object,
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
            field_manager: field_manager(&sender.controller),
            undo: None,
            kept: None,
            times_kept: 0,
            is_withdrawn: false,
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

    /// Keeps targets before it deletes them.
    #[must_use]
    pub fn with_undo(self, undo: Option<Undo>) -> Self {
        let undo = undo.filter(|_| !Mutant::SkipCopies.is_active());
        Self { undo, ..self }
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Whether the plan's target is kept before it is deleted.
    #[must_use]
    pub fn keeps_target(&self) -> bool {
        let target = &self.plan.target;
        let served = self.mapping.by_kind(&target.api_version, &target.kind);
        let rules = self.undo.as_ref().map(|undo| &undo.rules);
        rules
            .zip(served)
            .is_some_and(|(rules, served)| rules.keeps(&served.resource))
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
            State::Started(_) | State::Keeping(_) => self.next_step(),
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
            if let (true, Some(outcome)) = (holds, self.defer_whole()) {
                self.end(outcome);
            } else if holds {
                self.started = Some(now);
                self.state = State::Started(None);
            } else {
                self.end(withdrawn(&self.plan));
            }
        }
        self.proceed()
    }

    /// Withdraws the plan, unless it has started. A plan that waits for the copy of its target
    /// ends too: nothing is deleted after that. While a request is under way, call
    /// [`Self::note_withdrawal`].
    pub fn withdraw(&mut self) -> PlanAction<P> {
        match self.state {
            State::Waiting(_) | State::Granted => self.end(withdrawn(&self.plan)),
            State::Keeping(_) => {
                self.state = State::Started(None);
                self.fail(Some(not_deleted(&self.plan)));
            }
            State::Started(_) | State::Over => {}
        }
        self.note_withdrawal();
        self.proceed()
    }

    /// The plan is withdrawn while a request is under way. What has to be kept before it is
    /// deleted is not deleted any more: the copy may take long.
    pub fn note_withdrawal(&mut self) {
        self.is_withdrawn = true;
    }

    /// Whether the request under way is left out if the plan is withdrawn before it is sent:
    /// it belongs to the deletion of a target that is kept.
    #[must_use]
    pub fn can_be_withdrawn(&self) -> bool {
        let step = self.plan.steps.get(self.position);
        matches!(step, Some(Step::Delete(_) | Step::Evict(_))) && self.keeps_target()
    }

    /// Whether a request under way may be sent, as far as the plan was not withdrawn.
    #[must_use]
    pub fn may_send(&self) -> bool {
        !(self.is_withdrawn && self.can_be_withdrawn())
    }

    /// A call for the request that [`Self::proceed`] returned. The first one needs no
    /// other turn than the plan's.
    pub fn call<B>(&mut self, request: &Request) -> Call<P, B> {
        Call::new(request, &self.sender, &mut self.course)
    }

    /// Whether the disk has the object that [`PlanAction::Keep`] has named. If not, it is not
    /// deleted.
    pub fn handle_kept(&mut self, result: Result<(), NotKept>) -> PlanAction<P> {
        if let State::Keeping(version) = &mut self.state {
            let version = std::mem::take(version);
            self.state = State::Started(None);
            match result {
                Err(why) if !Mutant::CountFailedCopies.is_active() => {
                    let failure = self.step().map(|context| context.not_kept(&why));
                    self.fail(failure);
                }
                Ok(()) | Err(_) => {
                    self.kept = Some(version);
                    self.times_kept += 1;
                }
            }
        }
        self.proceed()
    }

    /// Handles the answer to the last request.
    pub fn handle_answer(&mut self, answer: Result<&[u8], &RequestError>) -> PlanAction<P> {
        let stage = match &mut self.state {
            State::Started(stage) => stage.take(),
            _ => None,
        };
        let is_unsent = matches!(answer, Err(error) if error.is_unsent());
        if !self.may_send() && (is_unsent || matches!(stage, Some(Stage::Keep))) {
            self.fail(Some(not_deleted(&self.plan)));
            return self.proceed();
        }
        let next = stage.zip(self.step());
        let next = next.map(|(stage, context)| context.handle(stage, answer));
        if self.is_to_keep_again(next.as_ref()) {
            self.kept = None;
            return self.proceed();
        }
        let next = next.map(|next| self.name_endless_change(next));
        match next.and_then(|next| self.advance(next)) {
            Some(next) => next,
            None => self.proceed(),
        }
    }

    /// The failure of a plan that deletes what has to be kept, without a journal: nothing is
    /// sent, not even the steps before.
    fn defer_whole(&self) -> Option<Outcome> {
        if self.undo.as_ref()?.has_journal {
            return None;
        }
        let contexts = (0..self.plan.steps.len()).filter_map(|position| self.step_at(position));
        let (position, context) = (0..)
            .zip(contexts)
            .find(|(_, context)| context.is_kept_first())?;
        Some(Outcome {
            written: None,
            failed: Some((position, context.not_kept(&NotKept::NoJournal))),
        })
    }

    /// Whether a deletion was refused because the target has changed since it was kept.
    fn is_to_keep_again(&self, next: Option<&StepAction>) -> bool {
        let is_conflict = matches!(next, Some(StepAction::Done(Err(failure)))
            if failure.class == FailureClass::Conflict);
        let names_version = || {
            let context = self.step();
            context.is_some_and(|context| !context.wanted_version().is_empty())
        };
        is_conflict && self.kept.is_some() && self.times_kept < MOST_KEPT && !names_version()
    }

    /// A target that has changed after each copy could not be kept: that is no ordinary conflict.
    fn name_endless_change(&self, next: StepAction) -> StepAction {
        let names_version = |context: StepContext<'_>| !context.wanted_version().is_empty();
        match (&next, self.step()) {
            (StepAction::Done(Err(failure)), Some(context))
                if failure.class == FailureClass::Conflict
                    && self.kept.is_some()
                    && self.times_kept >= MOST_KEPT
                    && !names_version(context) =>
            {
                let copies = self.times_kept;
                StepAction::Done(Err(context.not_kept(&NotKept::Changes { copies })))
            }
            _ => next,
        }
    }

    fn end(&mut self, outcome: Outcome) {
        self.outcome = outcome;
        self.state = State::Over;
    }

    fn next_step(&mut self) -> PlanAction<P> {
        // A request that was sent has its own outcome: it may have deleted the target.
        if self.outcome.failed.is_none() && !self.may_send() {
            self.fail(Some(not_deleted(&self.plan)));
        }
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
        self.step_at(self.position)
    }

    fn step_at(&self, position: usize) -> Option<StepContext<'_>> {
        Some(StepContext {
            mapping: &self.mapping,
            target: &self.plan.target,
            step: self.plan.steps.get(position)?,
            field_manager: &self.field_manager,
            keeping: match (&self.kept, &self.undo) {
                (Some(version), _) => Keeping::Kept(version),
                (None, Some(undo)) => Keeping::On(&undo.rules),
                (None, None) => Keeping::Off,
            },
        })
    }

    /// Returns the request of a step; none if the step has ended.
    fn advance(&mut self, next: StepAction) -> Option<PlanAction<P>> {
        let result = match next {
            StepAction::Send(request, stage) => {
                self.state = State::Started(Some(stage));
                return Some(PlanAction::Send(request));
            }
            StepAction::Keep(object, version) => {
                self.state = State::Keeping(version);
                return Some(PlanAction::Keep(object));
            }
            StepAction::Done(result) => result,
        };
        match result {
            Ok(written) => {
                if let Some(written) = written {
                    self.outcome.written = Some(after(self.outcome.written, written));
                }
                self.position += 1;
                self.kept = None;
                self.times_kept = 0;
            }
            Err(failure) => self.fail(Some(failure)),
        }
        None
    }

    fn fail(&mut self, failure: Option<Failure>) {
        let position = u32::try_from(self.position).unwrap_or(u32::MAX);
        self.outcome.failed = failure.map(|failure| (position, failure));
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
