//! One controller: from changes to calls, from decisions to plans, from
//! outcomes back to the queues.
//!
//! Driven from outside: `handle_*` takes what happened, `poll_call` and
//! `poll_effect` give what is to be done, `poll_timeout` says when to come back.

mod exchange;
mod item;
mod trigger;
mod waiters;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::budget::Budget;
use crate::expectation::{Expectations, Held, LAPSE, Seen, Written};
use crate::failure::{Failure, FailureClass};
use crate::gate::{self, Circumstances, Mode, Ruling, Waiting};
use crate::health::{CallFailure, Health, Permit, after_failed_call};
use crate::manifest::Manifest;
use crate::object::Uid;
use crate::plan::{Command, Decision, MeasureWhen, Plan, QueueKey, Verdict, WorkItem};
use crate::queue::{Finish, Origin, QueueStats, Queues};
use crate::store::{Change, ResourceVersion, Snapshot, ViewId};
use crate::time::Instant;

pub use exchange::{
    CallId, CallRequest, DEFAULT_PARALLEL, Effect, Notes, Outcome, PlanId, Settings, World,
};
use item::Running;
use trigger::{all_keys, changed_keys};
use waiters::Waiters;

/// One controller's state.
#[derive(Debug)]
pub struct Controller {
    manifest: Arc<Manifest>,
    settings: Settings,
    /// The watch that each of its views stands for, by its place in the
    /// manifest.
    watches: BTreeMap<ViewId, usize>,
    queues: Queues,
    health: Health,
    notes: Notes,
    expectations: Expectations,
    budget: Budget,
    calls: BTreeMap<CallId, (Vec<WorkItem>, Permit)>,
    running: BTreeMap<QueueKey, Running>,
    carried: BTreeMap<PlanId, (QueueKey, Arc<Plan>)>,
    waiters: Waiters,
    effects: VecDeque<Effect>,
    next_id: u64,
}

impl Controller {
    /// A controller of which nothing was looked at yet. `views` are the views
    /// of the manifest's watches, in their order; the manifest is valid.
    #[must_use]
    pub fn new(
        now: Instant,
        manifest: Arc<Manifest>,
        settings: Settings,
        views: &[ViewId],
    ) -> Self {
        Self {
            queues: Queues::new(now, &manifest.queues, &manifest.ticks),
            budget: Budget::new(settings.guardrails),
            watches: watches(views),
            manifest,
            settings,
            health: Health::default(),
            notes: Notes::default(),
            expectations: Expectations::default(),
            calls: BTreeMap::new(),
            running: BTreeMap::new(),
            carried: BTreeMap::new(),
            waiters: Waiters::default(),
            effects: VecDeque::new(),
            next_id: 0,
        }
    }

    /// Takes on another revision of the guest, or another configuration of it.
    /// Queues, timers and notes stay. Calls of the old revision that are still
    /// under way are void: [`Self::handle_decisions`] sends their items back.
    pub fn reconfigure(&mut self, now: Instant, manifest: Arc<Manifest>, views: &[ViewId]) {
        self.queues
            .reconfigure(now, &manifest.queues, &manifest.ticks);
        for (items, _) in std::mem::take(&mut self.calls).into_values() {
            self.send_back(now, items);
        }
        self.manifest = manifest;
        self.watches = watches(views);
        self.health = Health::default();
    }

    /// Takes on other settings. They hold for every plan that was not yet put
    /// before the gate.
    pub fn set(&mut self, settings: Settings) {
        self.budget.set(settings.guardrails);
        self.settings = settings;
    }

    /// What the guest declared.
    #[must_use]
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// What the operator decided.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The views of its watches, by name.
    pub fn views(&self) -> impl Iterator<Item = (&str, ViewId)> {
        self.watches.iter().filter_map(|(view, position)| {
            let watch = self.manifest.watches.get(*position)?;
            Some((watch.name.as_str(), *view))
        })
    }

    /// How it fares.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// The state of its queues.
    pub fn queue_stats(&mut self, now: Instant) -> Vec<QueueStats> {
        self.queues.stats(now)
    }

    /// Takes what changed in the cache. `origin` says whether it is news or the
    /// result of a list.
    pub fn handle_changes(
        &mut self,
        now: Instant,
        changes: &[Change],
        origin: Origin,
        snapshot: &Snapshot,
    ) {
        for change in changes {
            self.wake_waiters(now, change, snapshot);
            let Some(position) = self.watches.get(&change.view) else {
                continue;
            };
            let manifest = Arc::clone(&self.manifest);
            let Some(watch) = manifest.watches.get(*position) else {
                continue;
            };
            let triggers = manifest.triggers.iter();
            for trigger in triggers.filter(|trigger| trigger.watch == watch.name) {
                for key in changed_keys(&trigger.key, change, snapshot) {
                    self.add(now, &trigger.queue, &key, origin);
                }
            }
        }
    }

    /// Adds every key that a trigger can name: after a time in which its plans
    /// were not carried out, or changes not taken.
    pub fn look_at_everything(&mut self, now: Instant, snapshot: &Snapshot) {
        let manifest = Arc::clone(&self.manifest);
        for (view, position) in self.watches.clone() {
            let Some(watch) = manifest.watches.get(position) else {
                continue;
            };
            let triggers = manifest.triggers.iter();
            for trigger in triggers.filter(|trigger| trigger.watch == watch.name) {
                for key in all_keys(&trigger.key, view, snapshot) {
                    self.add(now, &trigger.queue, &key, Origin::Relist);
                }
            }
        }
        for tick in &manifest.ticks {
            self.add(now, &tick.queue, &tick.key, Origin::Fresh);
        }
    }

    fn add(&mut self, now: Instant, queue: &str, key: &str, origin: Origin) {
        // A valid manifest names only queues that it declares.
        let added = self.queues.add(now, queue, key, origin);
        debug_assert!(added.is_ok(), "{added:?}");
    }

    /// The next call to make into the guest, if there is one.
    pub fn poll_call(&mut self, now: Instant) -> Option<CallRequest> {
        if self.settings.mode == Mode::Off {
            return None;
        }
        let permit = self.health.begin(now)?;
        let Some(batch) = self.queues.take(now) else {
            self.health.abandoned(now, permit);
            return None;
        };
        for waited in batch.waited() {
            self.effects.push_back(Effect::Taken {
                queue: batch.queue.clone(),
                waited,
            });
        }
        let id = CallId(self.fresh_id());
        self.calls.insert(id, (batch.items.clone(), permit));
        Some(CallRequest {
            id,
            items: batch.items,
            pending: self.queues.pending(),
            notes: self.notes.clone(),
        })
    }

    /// Takes the guest's answer to a call: a decision for each item, in their
    /// order.
    pub fn handle_decisions(&mut self, id: CallId, decisions: Vec<Decision>, world: &World<'_>) {
        let Some((items, permit)) = self.calls.remove(&id) else {
            return;
        };
        debug_assert_eq!(items.len(), decisions.len(), "the engine counts them");
        self.health.succeeded(world.now, permit);
        for (item, decision) in items.into_iter().zip(decisions) {
            self.begin(item, decision, world);
        }
    }

    /// Takes a call that ended without an answer: every item is tried again.
    pub fn handle_call_failure(&mut self, now: Instant, id: CallId, failure: CallFailure) {
        let Some((items, permit)) = self.calls.remove(&id) else {
            return;
        };
        let finish = after_failed_call(failure.kind, items.len());
        self.health.failed(now, permit, failure);
        for WorkItem { queue, key, .. } in items {
            self.finish_item(now, &QueueKey { queue, key }, finish.clone());
        }
    }

    /// Takes back a call that was never made, or whose answer is void.
    pub fn handle_call_void(&mut self, now: Instant, id: CallId) {
        if let Some((items, permit)) = self.calls.remove(&id) {
            self.health.abandoned(now, permit);
            self.send_back(now, items);
        }
    }

    fn send_back(&mut self, now: Instant, items: Vec<WorkItem>) {
        for item in items {
            self.queues
                .done(now, &item.queue, &item.key, Finish::Unworked);
        }
    }

    /// Takes the end of a plan that was carried out.
    pub fn handle_outcome(&mut self, id: PlanId, outcome: Outcome, world: &World<'_>) {
        let Some((key, plan)) = self.carried.remove(&id) else {
            return;
        };
        self.measure(&plan, &outcome);
        let uid = Uid::new(&plan.target.uid);
        let gone = outcome
            .failed
            .as_ref()
            .is_some_and(|(_, failure)| failure.class.means_gone());
        let written = if gone {
            Some(Written::Gone)
        } else {
            outcome.written
        };
        let wrote = written.is_some();
        self.expectations.end(&uid, written, world.now);
        // Those who waited for this plan to end look again: at once if it
        // wrote nothing, when the cache shows it otherwise.
        self.wake(world.now, &uid, world.snapshot);
        if let Some(running) = self.running.get_mut(&key) {
            running.in_flight -= 1;
            if wrote {
                running.unseen.push(uid);
            }
            if let Some((step, failure)) = outcome.failed
                && !gone
            {
                running.fail(&plan.target.uid, step, failure);
            }
        }
        self.pump(&key, world);
    }

    /// The next thing to be done or told, if there is one.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Self::poll_call`] has to be asked again, if nothing else happens.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        if self.settings.mode == Mode::Off {
            return None;
        }
        let due = self.queues.next_due(now)?;
        Some(due.max(self.health.opens_at(now)?))
    }

    /// Forgets expectations that have lapsed, and wakes who waited for them.
    /// To be called every few seconds.
    pub fn tidy(&mut self, now: Instant, snapshot: &Snapshot) {
        self.expectations.expire(now);
        for uid in self.waiters.objects() {
            self.wake(now, &uid, snapshot);
        }
    }

    fn begin(&mut self, item: WorkItem, decision: Decision, world: &World<'_>) {
        let key = QueueKey {
            queue: item.queue,
            key: item.key,
        };
        let cancelled = self.command(world.now, decision.commands);
        let stands = |plan: &Plan| {
            let condition = plan.when_cancelled.as_ref();
            condition.is_none_or(|item| cancelled.contains(item))
        };
        let plans = decision.plans.into_iter().filter(stands).collect();
        let parallel = match decision.parallel {
            0 => DEFAULT_PARALLEL,
            asked => asked,
        };
        if let Verdict::Retry { reason } = &decision.verdict {
            self.effects.push_back(Effect::Retried {
                item: key.clone(),
                reason: reason.clone(),
            });
        }
        let running = Running::new(plans, parallel, decision.verdict);
        self.running.insert(key.clone(), running);
        self.pump(&key, world);
    }

    /// Carries out commands; returns the items that a cancel found waiting.
    fn command(&mut self, now: Instant, commands: Vec<Command>) -> Vec<QueueKey> {
        let mut cancelled = Vec::new();
        for command in commands {
            let done = match command {
                Command::Enqueue(enqueue) => self.queues.enqueue(now, &enqueue),
                Command::SetRate { queue, group, rate } => {
                    self.queues.set_rate(now, &queue, &group, rate)
                }
                Command::Cancel(item) => {
                    if self.queues.cancel(now, &item.queue, &item.key) {
                        cancelled.push(item);
                    }
                    Ok(())
                }
                Command::SetNote { key, value } => {
                    match value {
                        Some(value) => self.notes.insert(key, value.into()),
                        None => self.notes.remove(&key),
                    };
                    Ok(())
                }
                Command::Measure(measure) => {
                    self.effects.push_back(Effect::Measure(measure));
                    Ok(())
                }
            };
            // The engine refuses an answer with a queue that is not declared
            // or a rate that is none.
            debug_assert!(done.is_ok(), "{done:?}");
        }
        cancelled
    }

    /// Puts plans of an item before the gate as long as there is room for them,
    /// and ends the item when none is left.
    fn pump(&mut self, key: &QueueKey, world: &World<'_>) {
        let Some(mut running) = self.running.remove(key) else {
            return;
        };
        while running.has_room() {
            let Some(plan) = running.plans.pop_front() else {
                break;
            };
            self.rule(key, &mut running, plan, world);
        }
        if !running.is_over() {
            self.running.insert(key.clone(), running);
            return;
        }
        let Self { expectations, .. } = self;
        running
            .unseen
            .retain(|uid| expectations.is_open(uid, seen(uid, world.snapshot), world.now));
        let (finish, when_seen) = running.finish(world.now, LAPSE);
        if when_seen {
            self.waiters.wait(key, running.unseen);
        }
        self.finish_item(world.now, key, finish);
    }

    fn rule(&mut self, key: &QueueKey, running: &mut Running, plan: Arc<Plan>, world: &World<'_>) {
        let uid = Uid::new(&plan.target.uid);
        let ruling = gate::judge(
            &plan,
            &Circumstances {
                // One replica runs, and one revision of each controller.
                leading: true,
                owns_target: true,
                mode: self.settings.mode,
                manifest: &self.manifest,
                granted: self.settings.granted.as_deref(),
                mapping: world.mapping,
                held: held(&mut self.expectations, &uid, world),
                spent: self.budget.spent(&plan, world.now),
            },
        );
        match &ruling {
            Ruling::Admit => {
                running.carry();
                self.expectations.begin(uid);
                self.budget.spend(&plan, world.now);
                let id = PlanId(self.fresh_id());
                self.carried.insert(id, (key.clone(), Arc::clone(&plan)));
                let plan = Arc::clone(&plan);
                self.effects.push_back(Effect::Carry { id, plan });
            }
            Ruling::Wait(Waiting::Held(Held::Gone)) => running.is_done_already(),
            Ruling::Wait(Waiting::Held(_)) => running.hold(uid),
            Ruling::Wait(Waiting::Spent(spent)) => running.wait_until(spent.until),
            Ruling::Refuse(refusal) => {
                let failure = Failure::new(FailureClass::RefusedByGate, refusal.to_string());
                running.fail(&plan.target.uid, 0, failure);
            }
            Ruling::Show | Ruling::Wait(_) => {}
        }
        let item = key.clone();
        self.effects.push_back(Effect::Ruled { item, plan, ruling });
    }

    fn measure(&mut self, plan: &Plan, outcome: &Outcome) {
        let result = match &outcome.failed {
            None => MeasureWhen::Succeeded,
            Some((_, failure)) if failure.class.means_gone() => MeasureWhen::Gone,
            Some(_) => MeasureWhen::Failed,
        };
        for measure in &plan.measures {
            if measure.when == MeasureWhen::Attempted || measure.when == result {
                let measure = measure.measure.clone();
                self.effects.push_back(Effect::Measure(measure));
            }
        }
    }

    fn finish_item(&mut self, now: Instant, key: &QueueKey, finish: Finish) {
        if let Some(finished) = self.queues.done(now, &key.queue, &key.key, finish) {
            self.effects.push_back(Effect::Worked {
                queue: key.queue.clone(),
                duration: finished.worked,
            });
        }
    }

    fn wake_waiters(&mut self, now: Instant, change: &Change, snapshot: &Snapshot) {
        for object in [&change.old, &change.new].into_iter().flatten() {
            self.wake(now, object.uid(), snapshot);
        }
    }

    /// Adds the items that waited for an object once it is no longer held.
    fn wake(&mut self, now: Instant, uid: &Uid, snapshot: &Snapshot) {
        if !self.waiters.waits_for(uid) {
            return;
        }
        let seen = seen(uid, snapshot);
        if !self.expectations.is_open(uid, seen, now) {
            for item in self.waiters.release(uid) {
                self.add(now, &item.queue, &item.key, Origin::Fresh);
            }
        }
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

fn watches(views: &[ViewId]) -> BTreeMap<ViewId, usize> {
    views.iter().copied().zip(0..).collect()
}

/// Whether a plan for the object has to wait.
fn held(expectations: &mut Expectations, uid: &Uid, world: &World<'_>) -> Option<Held> {
    expectations.held(uid, seen(uid, world.snapshot), world.now)
}

/// What the cache shows of an object. Held by several streams, it is as the one
/// has it that lags behind most.
fn seen(uid: &Uid, snapshot: &Snapshot) -> Seen {
    let versions = snapshot.versions_of(uid);
    let seen = versions.map(|version| match version {
        ResourceVersion::Number(number) => Seen::Version(*number),
        ResourceVersion::Text(_) => Seen::Incomparable,
    });
    seen.min().unwrap_or(Seen::Gone)
}
