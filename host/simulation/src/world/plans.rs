//! The execution of plans.

use std::time::Duration;

use davit_core::controller::{ControllerId, Outcome, PlanId};
use davit_core::machine::{Execute, Input};
use davit_core::request::RequestError;
use davit_core::request::call::Sender;
use davit_core::request::plan::{PlanAction, PlanExecution, first_written, not_sent, withdrawn};
use davit_core::traffic::Urgency;

use super::Link;
use super::in_flight::{Caller, Execution, ExecutionId};

impl Link<'_> {
    /// Executes a plan. Its outcome is an [`Input::Executed`].
    pub(super) fn execute(&mut self, execute: Execute) {
        let Execute {
            id: plan_id,
            controller,
            account,
            plan,
            mapping,
            ..
        } = execute;
        let id = ExecutionId(self.shared.fresh_id());
        let field_manager = format!("davit/{controller}");
        let mut steps = PlanExecution::new(plan.clone(), mapping, &field_manager);
        let next = self.past_events(&mut steps);
        let sends = first_written(&plan).is_some();
        self.client.executions.insert(
            id,
            Execution {
                id: plan_id,
                sender: Sender::new(&controller, account.as_ref()),
                plan,
                steps,
                started: (!sends).then_some(self.shared.instant),
            },
        );
        self.proceed(id, next, Urgency::Begin);
    }

    /// Withdraws the plans of a controller that have not started.
    pub(super) fn withdraw(&mut self, controller: ControllerId) {
        let waiting = self.client.executions.iter().filter(|(_, execution)| {
            execution.id.controller == controller && execution.started.is_none()
        });
        let waiting: Vec<ExecutionId> = waiting.map(|(id, _)| *id).collect();
        self.leave_lines(|caller| matches!(caller, Caller::Execution(id) if waiting.contains(&id)));
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

    /// A request has its turn.
    pub(super) fn started(&mut self, caller: Caller) {
        if let Caller::Execution(id) = caller
            && let Some(execution) = self.client.executions.get_mut(&id)
        {
            execution.started.get_or_insert(self.shared.instant);
        }
    }

    pub(super) fn execution_answered(
        &mut self,
        id: ExecutionId,
        result: Result<&Vec<u8>, &RequestError>,
    ) {
        let Some(mut entry) = self.client.executions.remove(&id) else {
            return;
        };
        if entry.started.is_none()
            && let Err(error) = result
        {
            let (position, object) = first_written(&entry.plan).unwrap_or((0, &entry.plan.target));
            let outcome = not_sent(position, object, error);
            self.ended(entry.id, outcome, Duration::ZERO);
            return;
        }
        let next = entry.steps.handle(result.map(Vec::as_slice));
        let next = match next {
            PlanAction::Record(_) => self.past_events(&mut entry.steps),
            next => next,
        };
        self.client.executions.insert(id, entry);
        self.proceed(id, next, Urgency::Finish);
    }

    /// Skips events: they never fail a plan, and no controller reads them.
    fn past_events(&mut self, execution: &mut PlanExecution) -> PlanAction {
        loop {
            match execution.proceed() {
                PlanAction::Record(event) => {
                    self.note(format_args!("event {}: {}", event.reason, event.message));
                }
                next => return next,
            }
        }
    }

    fn proceed(&mut self, id: ExecutionId, next: PlanAction, urgency: Urgency) {
        match next {
            PlanAction::Send(request) => {
                let Some(entry) = self.client.executions.get(&id) else {
                    return;
                };
                let sender = entry.sender.clone();
                self.ask(Caller::Execution(id), &sender, urgency, request);
            }
            PlanAction::Done(outcome) => {
                let Some(entry) = self.client.executions.remove(&id) else {
                    return;
                };
                let started = entry.started;
                let took = started.map_or(Duration::ZERO, |at| self.shared.instant.since(at));
                self.ended(entry.id, outcome, took);
            }
            PlanAction::Record(_) => {}
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
