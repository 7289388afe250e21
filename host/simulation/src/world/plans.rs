//! The execution of plans.

use std::sync::Arc;
use std::time::Duration;

use davit_core::controller::{ControllerId, Outcome, PlanId};
use davit_core::events::Decision;
use davit_core::machine::{Execute, Input};
use davit_core::request::RequestError;
use davit_core::request::call::{Course, Sender};
use davit_core::request::plan::{PlanAction, PlanExecution, first_written, not_sent, withdrawn};
use davit_core::traffic::{Ticket, Urgency};

use super::Link;
use super::in_flight::{Call, Caller, Execution, ExecutionId, Waiter};

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
        } = execute;
        let id = ExecutionId(self.shared.fresh_id());
        let sender = Sender::new(&controller, account.as_ref());
        let turn = first_written(&plan).map(|(_, object)| sender.beginning(object.group()));
        let field_manager = format!("davit/{controller}");
        let entry = Execution {
            id: plan_id,
            sender,
            decision: records_events.then(|| Decision {
                controller,
                revision: revision.to_string(),
                id: decision.to_string(),
            }),
            steps: PlanExecution::new(Arc::clone(&plan), mapping, &field_manager),
            plan,
            course: Course::new(Urgency::Finish),
            started: None,
        };
        match turn {
            Some(turn) => {
                self.client.executions.insert(id, entry);
                self.wait(turn, Waiter::Plan(id));
            }
            None => self.start(id, entry),
        }
    }

    /// A plan has its turn, or would have to wait too long.
    pub(super) fn plan_turn(&mut self, id: ExecutionId, turn: Result<Ticket, Duration>) {
        let Some(mut entry) = self.client.executions.remove(&id) else {
            if let Ok(ticket) = turn {
                self.end_unused(ticket);
            }
            return;
        };
        let outcome = match turn {
            Ok(ticket) if self.is_in_term(&entry.sender.controller) => {
                entry.course = Course::started(ticket);
                return self.start(id, entry);
            }
            Ok(ticket) => {
                self.end_unused(ticket);
                withdrawn(&entry.plan)
            }
            Err(left) => {
                let written = first_written(&entry.plan);
                let (position, object) = written.unwrap_or((0, &entry.plan.target));
                not_sent(position, object, &RequestError::Paused(left))
            }
        };
        self.ended(entry.id, outcome, Duration::ZERO);
    }

    fn start(&mut self, id: ExecutionId, mut entry: Execution) {
        entry.started = Some(self.shared.instant);
        let next = entry.steps.proceed();
        self.proceed(id, entry, next);
    }

    /// Withdraws the plans of a controller that have not started.
    pub(super) fn withdraw(&mut self, controller: ControllerId) {
        let waiting = self.client.executions.iter().filter(|(_, execution)| {
            execution.id.controller == controller && execution.started.is_none()
        });
        let waiting: Vec<ExecutionId> = waiting.map(|(id, _)| *id).collect();
        self.leave_lines(|waiter| matches!(waiter, Waiter::Plan(id) if waiting.contains(id)));
        for id in waiting {
            if let Some(execution) = self.client.executions.remove(&id) {
                let outcome = withdrawn(&execution.plan);
                self.ended(execution.id, outcome, Duration::ZERO);
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
        let waiting = waiting
            .find(|one| one.started.is_none() && !terms.contains_key(&*one.sender.controller));
        if let Some(execution) = waiting {
            let what = format!("{} waits without leadership", execution.plan.target);
            self.shared.violated(what);
        }
    }

    /// Whether a request may be sent now: not that of a plan after the term.
    pub(super) fn may_send(&self, caller: Caller) -> bool {
        let Caller::Execution(id) = caller else {
            return true;
        };
        let execution = self.client.executions.get(&id);
        execution.is_none_or(|one| self.is_in_term(&one.sender.controller))
    }

    pub(super) fn execution_answered(
        &mut self,
        id: ExecutionId,
        result: Result<&Vec<u8>, &RequestError>,
    ) {
        if let Some(mut entry) = self.client.executions.remove(&id) {
            let next = entry.steps.handle(result.map(Vec::as_slice));
            self.proceed(id, entry, next);
        }
    }

    fn proceed(&mut self, id: ExecutionId, mut entry: Execution, mut next: PlanAction) {
        loop {
            next = match next {
                PlanAction::Send(request) => {
                    let (sender, course) = (&entry.sender, &mut entry.course);
                    let call = Call::in_turn(Caller::Execution(id), sender, course, request);
                    self.client.executions.insert(id, entry);
                    return self.start_call(call);
                }
                PlanAction::Record(event) => {
                    self.note(format_args!("event {}: {}", event.reason, event.message));
                    if let Some(decision) = &entry.decision {
                        self.record(&entry.plan.target, event, Some(decision));
                    }
                    entry.steps.proceed()
                }
                PlanAction::Done(outcome) => {
                    if let Some(unused) = entry.course.into_permit() {
                        self.end_unused(unused);
                        self.give_turns();
                    }
                    let now = self.shared.instant;
                    let took = entry.started.map_or(Duration::ZERO, |at| now.since(at));
                    return self.ended(entry.id, outcome, took);
                }
            };
        }
    }

    fn ended(&mut self, plan: PlanId, outcome: Outcome, took: Duration) {
        self.report_result(Input::Executed {
            plan,
            outcome,
            took,
        });
    }
}
