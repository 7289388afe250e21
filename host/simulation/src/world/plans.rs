//! The execution of plans.

use std::time::Duration;

use davit_core::controller::{ControllerId, Outcome, PlanId};
use davit_core::events::Decision;
use davit_core::machine::{Execute, Input};
use davit_core::request::RequestError;
use davit_core::request::call::Sender;
use davit_core::request::plan::{PlanAction, PlanExecution};
use davit_core::traffic::Ticket;

use super::in_flight::{Call, Caller, Execution, ExecutionId, Waiter};
use super::undo::Copying;
use super::{Link, ScheduledEvent};

impl Link<'_> {
    /// Executes a plan. Its outcome is an [`Input::Executed`].
    pub(super) fn execute(&mut self, execute: Execute) {
        let Execute {
            id: plan_id,
            controller,
            account,
            revision,
            decision,
            plan,
            records_events,
            mapping,
            undo,
        } = execute;
        let id = ExecutionId(self.shared.fresh_id());
        let sender = Sender::new(&controller, account.as_ref());
        let mut entry = Execution {
            id: plan_id,
            decision: records_events.then(|| Decision {
                controller,
                revision: revision.to_string(),
                id: decision.to_string(),
            }),
            steps: PlanExecution::new(plan, mapping, sender).with_undo(undo),
            copy: None,
        };
        let next = entry.steps.proceed();
        self.proceed(id, entry, next);
    }

    /// A plan has its turn, or would have to wait too long.
    pub(super) fn plan_turn(&mut self, id: ExecutionId, turn: Result<Ticket, Duration>) {
        match self.client.executions.remove(&id) {
            Some(mut entry) => {
                let next = entry.steps.handle_turn(turn);
                self.proceed(id, entry, next);
            }
            None => {
                if let Ok(ticket) = turn {
                    self.end_unused(ticket);
                }
            }
        }
    }

    /// Withdraws the plans of a controller that have not started. The others delete nothing
    /// more that has to be kept before.
    pub(super) fn withdraw(&mut self, controller: ControllerId) {
        let executions = self.client.executions.values_mut();
        for execution in executions.filter(|one| one.id.controller == controller) {
            if !execution.steps.is_waiting() {
                execution.steps.note_withdrawal();
            }
        }
        let waiting = self.client.executions.iter().filter(|(_, execution)| {
            execution.id.controller == controller && execution.steps.is_waiting()
        });
        let waiting: Vec<ExecutionId> = waiting.map(|(id, _)| *id).collect();
        self.leave_lines(|waiter| matches!(waiter, Waiter::Plan(id) if waiting.contains(id)));
        for id in waiting {
            if let Some(mut entry) = self.client.executions.remove(&id) {
                let next = entry.steps.withdraw();
                self.proceed(id, entry, next);
            }
        }
    }

    /// The host has done all that it does now: it has withdrawn the plans that wait for
    /// their turn and whose controllers it does not lead.
    pub(crate) fn check_withdrawn(&mut self) {
        if self.client.identity.is_none() {
            return;
        }
        let terms = &self.client.terms;
        let mut waiting = self.client.executions.values();
        let waiting =
            waiting.find(|one| one.steps.is_waiting() && !terms.contains_key(one.controller()));
        if let Some(execution) = waiting {
            let what = format!("{} waits without leadership", execution.target());
            self.shared.violated(what);
        }
    }

    /// Whether a request may be sent now: not that of a plan after the term, nor a deletion of
    /// what was kept after the withdrawal.
    pub(super) fn may_send(&self, caller: Caller) -> bool {
        let Caller::Execution(id) = caller else {
            return true;
        };
        let execution = self.client.executions.get(&id);
        execution.is_none_or(|one| self.is_in_term(one.controller()) && one.steps.may_send())
    }

    pub(super) fn execution_answered(
        &mut self,
        id: ExecutionId,
        result: Result<&Vec<u8>, &RequestError>,
    ) {
        if let Some(mut entry) = self.client.executions.remove(&id) {
            let next = entry.steps.handle_answer(result.map(Vec::as_slice));
            self.proceed(id, entry, next);
        }
    }

    /// The disk has the copy of a plan's target. A crash ends the plan before.
    pub(super) fn copied(&mut self, id: ExecutionId) {
        if let Some(mut entry) = self.client.executions.remove(&id) {
            if let Some(copy) = entry.copy.take() {
                self.note_kept(&copy);
            }
            let next = entry.steps.handle_kept(Ok(()));
            self.proceed(id, entry, next);
        }
    }

    fn proceed(&mut self, id: ExecutionId, mut entry: Execution, next: PlanAction<Ticket>) {
        let mut next = next;
        loop {
            let steps = &mut entry.steps;
            next = match next {
                PlanAction::Wait(turn) => {
                    self.client.executions.insert(id, entry);
                    return self.wait(turn, Waiter::Plan(id));
                }
                PlanAction::CheckTerm => {
                    let holds = self.is_in_term(&steps.sender().controller);
                    steps.handle_term(self.shared.instant, holds)
                }
                PlanAction::Send(request) => {
                    self.check_kept(&entry, &request);
                    let steps = &mut entry.steps;
                    let call = Call::of_plan(Caller::Execution(id), steps, request);
                    self.client.executions.insert(id, entry);
                    return self.start_call(call);
                }
                PlanAction::Record(event) => {
                    self.note(format_args!("event {}: {}", event.reason, event.message));
                    if let Some(decision) = &entry.decision {
                        self.record(&steps.plan().target, event, Some(decision));
                    }
                    steps.proceed()
                }
                PlanAction::Keep(kept) => match self.keep(&kept) {
                    Copying::Ended(result) => steps.handle_kept(result),
                    Copying::Lasts(time) => {
                        entry.copy = Some(kept);
                        self.client.executions.insert(id, entry);
                        return self.schedule(time, ScheduledEvent::Copied(id));
                    }
                },
                PlanAction::EndTurn(ticket) => {
                    self.end_unused(ticket);
                    self.give_turns();
                    steps.proceed()
                }
                PlanAction::Done(outcome) => {
                    let took = steps.took(self.shared.instant);
                    return self.ended(entry.id, outcome, took);
                }
            };
        }
    }

    fn ended(&mut self, plan: PlanId, outcome: Outcome, took: Duration) {
        if let Some((_, failure)) = &outcome.failed {
            self.note(format_args!("a plan fails: {failure}"));
        }
        self.report_result(Input::Executed {
            plan,
            outcome,
            took,
        });
    }
}
