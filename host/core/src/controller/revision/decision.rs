//! Executes a decision: from the guest's answer to the end of its plans.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Revision;
use crate::controller::exchange::{DEFAULT_PARALLEL, Effect, MOST_PARALLEL, Outcome, World};
use crate::controller::execution::{ItemExecution, RequeueTrigger};
use crate::controller::items::Trigger;
use crate::controller::shared::{PlanInFlight, Shared};
use crate::expectation::LAPSE;
use crate::object::Uid;
use crate::plan::{Command, Decision, Plan, QueueKey, Verdict, WorkItem};
use crate::queue::Finish;
use crate::rollout::Role;
use crate::rollout::compare::Reconciliation;
use crate::time::Instant;

impl<G: Clone> Revision<G> {
    pub(super) fn begin(
        &mut self,
        decision: Decision,
        next_page: Option<WorkItem>,
        throttled_until: Option<Instant>,
        reconcile: Reconciliation<'_>,
        world: &World<'_>,
        shared: &mut Shared,
    ) {
        let item = reconcile.item;
        let cancelled = self.command(world.now, decision.commands, shared);
        let stands = |plan: &Plan| {
            let condition = plan.when_cancelled.as_ref();
            condition.is_none_or(|item| cancelled.contains(item))
        };
        let plans = decision.plans.into_iter().filter(stands);
        let plans: Vec<Arc<Plan>> = plans.map(Arc::new).collect();
        self.plan_bytes += plans.iter().map(|plan| plan.bytes()).sum::<usize>();
        shared.compare(reconcile, &plans, world);
        let parallel = match decision.parallel {
            0 => DEFAULT_PARALLEL,
            asked => asked.min(MOST_PARALLEL),
        };
        if let Verdict::Retry { reason } = &decision.verdict {
            shared.effects.push_back(Effect::Retried {
                role: self.role,
                item: item.clone(),
                reason: reason.clone(),
            });
        }
        let decided_on = reconcile.snapshot.clone();
        let mut page = ItemExecution::new(plans, decided_on, parallel, decision.verdict);
        page.next_page = next_page;
        if let Some(until) = throttled_until {
            page.throttle(until.since(world.now));
        }
        let execution = self.items.decided(item, page);
        self.admit_plans(item, execution, world, shared);
    }

    /// Executes commands. Returns the pending items that were cancelled.
    fn command(
        &mut self,
        now: Instant,
        commands: Vec<Command>,
        shared: &mut Shared,
    ) -> BTreeSet<QueueKey> {
        let mut cancelled = BTreeSet::new();
        for command in commands {
            let done = match command {
                Command::Enqueue(enqueue) => self.queues.enqueue(now, &enqueue),
                Command::SetRate { queue, group, rate } => {
                    self.queues.set_rate(now, &queue, &group, rate)
                }
                Command::Cancel(item) => {
                    if self.queues.cancel(now, &item.queue, &item.key) {
                        cancelled.insert(item);
                    }
                    Ok(())
                }
                Command::SetNote { key, value } => {
                    self.set_note(key, value);
                    Ok(())
                }
                Command::Measure(measure) => {
                    // The stable revision measures the same.
                    if self.role == Role::Stable {
                        shared.effects.push_back(Effect::Measure(measure));
                    }
                    Ok(())
                }
            };
            // The engine refuses an answer with a queue that is not declared
            // or a rate that is none.
            debug_assert!(done.is_ok(), "{done:?}");
        }
        cancelled
    }

    /// Takes plans of an item to the gate while there is room, and ends the item when
    /// none is left.
    fn admit_plans(
        &mut self,
        item: &QueueKey,
        mut execution: Box<ItemExecution>,
        world: &World<'_>,
        shared: &mut Shared,
    ) {
        while execution.has_room() {
            let Some(plan) = execution.plans.pop_front() else {
                break;
            };
            self.rule(item, &mut execution, plan, world, shared);
        }
        if !execution.is_over() {
            self.items.execute(item, execution);
            return;
        }
        if let Some(page) = execution.next_page.take() {
            self.items.wait_for_page(item, execution, page);
            return;
        }
        execution
            .unseen
            .retain(|uid| shared.is_open(uid, world.snapshot, world.now));
        if execution.waits_for_kind() {
            self.items.wait_for(item, Trigger::Mapping);
        }
        let (finish, trigger) = execution.finish(world.now, LAPSE, self.is_tick(item));
        match trigger {
            RequeueTrigger::Never => {}
            RequeueTrigger::Observed => self.items.wait_to_observe(item, execution.unseen),
            RequeueTrigger::Resync => self.items.wait_for(item, Trigger::Resync),
        }
        self.finish_item(world.now, item, finish, shared);
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
        finish: Finish,
        shared: &mut Shared,
    ) {
        let finished = self.queues.done(now, &item.queue, &item.key, finish);
        if let Some(finished) = finished
            && self.role == Role::Stable
        {
            shared.effects.push_back(Effect::Reconciled {
                queue: item.queue.clone(),
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
        shared: &mut Shared,
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
            execution.unseen.push(Uid::new(&plan.target.uid));
        }
        if let Some((step, failure)) = outcome.failed
            && !success
        {
            self.tally.write_failed(failure.class, &failure.message);
            execution.fail(&plan.target.uid, step, failure);
        }
        self.admit_plans(&item, execution, world, shared);
    }
}
