//! Executing plans.

#[cfg(test)]
mod tests;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use davit_core::account::Account;
use davit_core::controller::Outcome;
use davit_core::events::Decision;
use davit_core::mapping::Mapping;
use davit_core::plan::Plan;
use davit_core::request::plan::{PlanAction, PlanExecution, Undo};
use davit_core::undo::{KeptObject, NotKept};
use futures::FutureExt as _;

use crate::api::Api;
use crate::events::Recorder;
use crate::term::Term;

/// Keeps objects before they are deleted.
pub trait Keeper {
    /// Writes an object that a plan deletes to the journal. Returns once the disk has it.
    fn keep(&self, object: KeptObject) -> impl Future<Output = Result<(), NotKept>> + Send;
}

/// Without a journal, nothing is kept.
impl Keeper for () {
    async fn keep(&self, _: KeptObject) -> Result<(), NotKept> {
        Err(NotKept::NoJournal)
    }
}

/// Writes for one controller.
#[derive(Clone)]
pub struct Writer {
    api: Api,
    recorder: Recorder,
    /// What is kept before it is deleted.
    undo: Option<Undo>,
}

impl Writer {
    /// A writer for the controller of this name; the field manager is `davit/NAME`. It
    /// writes as the account, if there is one; the host itself sends the events.
    #[must_use]
    pub fn new(api: &Api, recorder: Recorder, controller: &str, account: Option<&Account>) -> Self {
        Self {
            api: api.on_behalf_of(controller, account),
            recorder,
            undo: None,
        }
    }

    /// Keeps what these rules name before it is deleted.
    #[must_use]
    pub fn with_undo(self, undo: Option<Undo>) -> Self {
        Self { undo, ..self }
    }

    /// Waits for the turn of a plan and executes its steps in order, until one fails or the
    /// term is over. The plan does not start once `withdrawal` has ended, and deletes nothing
    /// that has to be kept before. An event names the decision; without one, events are not
    /// recorded. It is only queued, and never fails.
    ///
    /// Returns how long the plan took, without the wait for its turn.
    pub async fn execute(
        &self,
        mapping: &Arc<Mapping>,
        plan: &Arc<Plan>,
        decision: Option<&Decision>,
        keeper: &impl Keeper,
        withdrawal: impl Future<Output = ()>,
        term: &Term,
    ) -> (Outcome, Duration) {
        let (clock, sender) = (self.api.clock(), self.api.sender().clone());
        let mut execution = PlanExecution::new(Arc::clone(plan), Arc::clone(mapping), sender);
        execution = execution.with_undo(self.undo.clone());
        let mut withdrawal = Withdrawal {
            ended: pin!(withdrawal),
            has_ended: false,
        };
        let mut next = execution.proceed();
        loop {
            next = match next {
                PlanAction::Wait(turn) => tokio::select! {
                    // In this order: a plan that is withdrawn at the moment of its turn does
                    // not start.
                    biased;
                    () = withdrawal.end() => execution.withdraw(),
                    turn = self.api.turn(turn) => execution.handle_turn(turn),
                },
                // A plan without requests had no turn to wait for.
                PlanAction::CheckTerm => {
                    if withdrawal.has_ended() {
                        execution.withdraw()
                    } else {
                        execution.handle_term(clock.instant(), term.holds())
                    }
                }
                PlanAction::Send(request) => {
                    let call = execution.call(&request);
                    let can_be_withdrawn = execution.can_be_withdrawn();
                    let may_send = || !(can_be_withdrawn && withdrawal.has_ended());
                    let call = self.api.execute_while(&request, call, term, may_send);
                    let answer = term.send(call).await;
                    if withdrawal.has_ended() {
                        execution.note_withdrawal();
                    }
                    execution.handle_answer(answer.as_deref())
                }
                PlanAction::Record(event) => {
                    if decision.is_some() {
                        self.recorder.record(&plan.target, &event, decision);
                    }
                    execution.proceed()
                }
                PlanAction::Keep(object) => tokio::select! {
                    // In this order: nothing is deleted after the withdrawal.
                    biased;
                    () = withdrawal.end() => execution.withdraw(),
                    kept = keeper.keep(*object) => execution.handle_kept(kept),
                },
                PlanAction::EndTurn(permit) => {
                    drop(permit);
                    execution.proceed()
                }
                PlanAction::Done(outcome) => return (outcome, execution.took(clock.instant())),
            };
        }
    }
}

/// The end of a future that withdraws a plan. Unlike the future, it can be asked again.
struct Withdrawal<'f, F> {
    ended: Pin<&'f mut F>,
    has_ended: bool,
}

impl<F: Future<Output = ()>> Withdrawal<'_, F> {
    async fn end(&mut self) {
        if !self.has_ended {
            self.ended.as_mut().await;
            self.has_ended = true;
        }
    }

    fn has_ended(&mut self) -> bool {
        self.end().now_or_never().is_some()
    }
}
