//! Plans that are executed.

use std::sync::Arc;
use std::time::Duration;

use davit_core::controller::Outcome;
use davit_core::mapping::Mapping;
use davit_core::object::ObjectRef;
use davit_core::plan::Plan;
use davit_core::request::RequestError;
use davit_core::request::plan::{PlanExecution, PlanNext, first_written, not_sent, withdrawn};
use davit_core::time::Instant;
use davit_core::traffic::Urgency;

use super::calls::Caller;
use super::{ExecutionId, Notice, World};

/// A plan that is being executed, or waits for its turn.
#[derive(Debug)]
pub(super) struct Execution {
    controller: Arc<str>,
    plan: Arc<Plan>,
    steps: PlanExecution,
    /// When its first request had its turn; none while it waits for it.
    started: Option<Instant>,
}

impl Execution {
    /// The object that the plan is for.
    pub(super) fn target(&self) -> &ObjectRef {
        &self.plan.target
    }
}

impl World {
    /// Executes a plan for a controller. A [`Notice::Executed`] tells its end.
    pub fn execute(
        &mut self,
        controller: &str,
        plan: &Arc<Plan>,
        mapping: &Arc<Mapping>,
    ) -> ExecutionId {
        let id = ExecutionId(self.fresh_id());
        let field_manager = format!("davit/{controller}");
        let (plan, mapping) = (Arc::clone(plan), Arc::clone(mapping));
        let mut steps = PlanExecution::new(plan.clone(), mapping, &field_manager);
        let next = self.past_events(&mut steps);
        let sends = first_written(&plan).is_some();
        self.executions.insert(
            id,
            Execution {
                controller: controller.into(),
                plan,
                steps,
                started: (!sends).then_some(self.instant),
            },
        );
        self.proceed(id, next, Urgency::Begin);
        id
    }

    /// Those of these plans that have not started must not start any more.
    pub fn withdraw(&mut self, executions: &[ExecutionId]) {
        let is_waiting = |world: &Self, id: &ExecutionId| {
            let execution = world.executions.get(id);
            execution.is_some_and(|execution| execution.started.is_none())
        };
        let waiting: Vec<ExecutionId> = executions
            .iter()
            .filter(|id| is_waiting(self, id))
            .copied()
            .collect();
        self.leave_lines(|caller| matches!(caller, Caller::Execution(id) if waiting.contains(&id)));
        for id in waiting {
            if let Some(withheld) = self.executions.remove(&id) {
                self.ended(id, withdrawn(&withheld.plan), Duration::ZERO);
            }
        }
    }

    /// A request had its turn.
    pub(super) fn started(&mut self, caller: Caller) {
        if let Caller::Execution(id) = caller
            && let Some(execution) = self.executions.get_mut(&id)
        {
            if execution.started.is_none() && !self.may_write {
                let what = format!("{} starts without leadership", execution.plan.target);
                self.violated(what);
            } else {
                execution.started.get_or_insert(self.instant);
            }
        }
    }

    pub(super) fn execution_answered(
        &mut self,
        id: ExecutionId,
        result: Result<&Vec<u8>, &RequestError>,
    ) {
        let Some(mut entry) = self.executions.remove(&id) else {
            return;
        };
        if entry.started.is_none()
            && let Err(error) = result
        {
            let (position, object) = first_written(&entry.plan).unwrap_or((0, &entry.plan.target));
            let outcome = not_sent(position, object, error);
            self.ended(id, outcome, Duration::ZERO);
            return;
        }
        let next = entry.steps.handle(result.map(Vec::as_slice));
        let next = match next {
            PlanNext::Record(_) => self.past_events(&mut entry.steps),
            next => next,
        };
        self.executions.insert(id, entry);
        self.proceed(id, next, Urgency::Finish);
    }

    /// Events never fail a plan, and no controller reads them: they are left
    /// out.
    fn past_events(&mut self, execution: &mut PlanExecution) -> PlanNext {
        loop {
            match execution.proceed() {
                PlanNext::Record(event) => {
                    self.note(format_args!("event {}: {}", event.reason, event.message));
                }
                next => return next,
            }
        }
    }

    fn proceed(&mut self, id: ExecutionId, next: PlanNext, urgency: Urgency) {
        match next {
            PlanNext::Send(request) => {
                let Some(entry) = self.executions.get(&id) else {
                    return;
                };
                let controller = Arc::clone(&entry.controller);
                self.ask(Caller::Execution(id), &controller, urgency, request);
            }
            PlanNext::Done(outcome) => {
                let entry = self.executions.remove(&id);
                let started = entry.and_then(|entry| entry.started);
                let took = started.map_or(Duration::ZERO, |at| self.instant.since(at));
                self.ended(id, outcome, took);
            }
            PlanNext::Record(_) => {}
        }
    }

    fn ended(&mut self, execution: ExecutionId, outcome: Outcome, took: Duration) {
        self.notices.push_back(Notice::Executed {
            execution,
            outcome,
            took,
        });
    }
}
