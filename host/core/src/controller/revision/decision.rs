//! Executes the plans of a decision, up to the end of its item.

use std::sync::Arc;

use super::Revision;
use super::answer::Slice;
use crate::controller::exchange::{DecisionId, Effect, Outcome, World};
use crate::controller::execution::{ItemExecution, RequeueTrigger};
use crate::controller::items::{EarlyWake, Trigger};
use crate::controller::shared::{PlanInFlight, SharedState};
use crate::expectation::LAPSE;
use crate::object::Uid;
use crate::plan::{Plan, PlanFailure, QueueKey};
use crate::queue::Finish;
use crate::time::Instant;

impl<G: Clone> Revision<G> {
    /// Takes plans of an item to the gate while there is room, and ends the item when
    /// none is left.
    pub(super) fn admit_plans(
        &mut self,
        item: &QueueKey,
        mut execution: Box<ItemExecution>,
        world: &World<'_>,
        shared: &mut SharedState,
        slice: &mut Slice,
    ) {
        while execution.has_unruled() && slice.take() {
            let Some(plan) = execution.plans.pop_front() else {
                break;
            };
            self.rule(item, &mut execution, plan, world, shared);
        }
        if !execution.is_over() {
            self.items.execute(item, execution);
            return;
        }
        execution
            .unseen
            .retain(|uid| shared.is_open(uid, world.snapshot, world.now));
        if let Some(page) = execution.next_page.take() {
            self.items.wait_for_page(item, execution, page);
            return;
        }
        let mut wake = EarlyWake {
            trigger: execution.waits_for_kind().then_some(Trigger::Mapping),
            ..EarlyWake::default()
        };
        let (finish, trigger) = execution.finish(world.now, LAPSE, self.is_tick(item));
        match trigger {
            RequeueTrigger::Never => {}
            RequeueTrigger::Observed => wake.observed = execution.unseen,
            RequeueTrigger::Resync => wake.trigger = Some(Trigger::Resync),
        }
        self.finish_item(world.now, item, execution.decision, finish, wake, shared);
    }

    fn is_tick(&self, item: &QueueKey) -> bool {
        let mut ticks = self.manifest.ticks.iter();
        ticks.any(|tick| tick.queue == item.queue && tick.key == item.key)
    }

    /// The decided plans that the gate has not ruled on yet.
    pub(in crate::controller) fn decided(&self) -> impl Iterator<Item = (&QueueKey, &Arc<Plan>)> {
        self.items.plans()
    }

    pub(super) fn finish_item(
        &mut self,
        now: Instant,
        item: &QueueKey,
        decision: DecisionId,
        mut finish: Finish,
        wake: EarlyWake,
        shared: &mut SharedState,
    ) {
        if let Finish::Retry { failures, .. } = &mut finish {
            let usage = self.items.queues().usage();
            let bytes: usize = failures.iter().map(PlanFailure::bytes).sum();
            // The item is retried all the same.
            if usage.bytes + usage.group_bytes + bytes > shared.settings.bounds.queue_bytes {
                failures.clear();
            }
        }
        let word = finish.as_str();
        let finished = self.items.finish(now, item, finish, wake);
        if let Some(finished) = finished {
            shared.effects.push_back(Effect::Reconciled {
                role: self.role,
                decision,
                finish: word,
                item: item.clone(),
                duration: finished.work_duration,
            });
        }
    }

    /// A plan of this revision ended.
    pub(in crate::controller) fn handle_outcome(
        &mut self,
        ended: PlanInFlight,
        outcome: Outcome,
        world: &World<'_>,
        shared: &mut SharedState,
    ) {
        let PlanInFlight { item, plan, .. } = ended;
        self.plan_bytes -= plan.bytes();
        shared.measure(&plan, &outcome);
        let success = outcome.is_success();
        let Some(mut execution) = self.items.take_execution(&item) else {
            return;
        };
        execution.in_flight -= 1;
        if outcome.written.is_some() || (success && outcome.failed.is_some()) {
            execution.unseen.insert(Uid::new(&plan.target.uid));
        }
        if success && plan.writes_others() {
            execution.wrote_another();
        }
        if let Some((step, failure)) = outcome.failed
            && !success
        {
            self.tally.write_failed(failure.class, &failure.message);
            execution.fail(&plan.target.uid, step, failure);
        }
        let mut slice = Slice::of_outcome();
        self.admit_plans(&item, execution, world, shared, &mut slice);
    }
}
