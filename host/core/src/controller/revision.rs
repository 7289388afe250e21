//! One revision of a controller's guest: its queues, its calls, and its plans
//! up to the gate.

mod ruling;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::exchange::{
    CallId, CallRequest, DEFAULT_PARALLEL, Effect, MOST_PARALLEL, Notes, Outcome, RevisionId, World,
};
use super::item::{Called, Running, Sooner};
use super::shared::{Carried, Shared};
use super::sweep::{Pace, Sweep};
use super::tally::Tally;
use super::trigger::{changed_keys, triggers_of};
use super::views::Views;
use super::waiters::Waiters;
use crate::expectation::LAPSE;
use crate::health::{CallFailure, Health, after_failed_call};
use crate::manifest::Manifest;
use crate::mutant::Mutant;
use crate::object::Uid;
use crate::plan::{Command, Decision, Plan, QueueKey, Verdict, WorkItem};
use crate::queue::{Finish, Origin, PendingSnapshot, QueueStats, Queues};
use crate::revision::{LoadedRevision, RevisionIdentity};
use crate::rollout::Role;
use crate::rollout::compare::Look;
use crate::store::{Change, Snapshot, ViewId};
use crate::time::Instant;

/// One revision of a controller's guest.
#[derive(Debug)]
pub struct Revision<G> {
    pub(super) id: RevisionId,
    /// Whose items it reconciles: its own id, or that of the revision that it
    /// replaced.
    pub(super) items_of: RevisionId,
    pub(super) role: Role,
    guest: G,
    manifest: Arc<Manifest>,
    identity: RevisionIdentity,
    /// The name of its identity.
    pub(super) name: Arc<str>,
    views: Views,
    views_by_name: Arc<BTreeMap<String, ViewId>>,
    /// The watch that each of its views stands for, by its place in the
    /// manifest.
    watches: BTreeMap<ViewId, usize>,
    /// Whether every watch shows what it should. The objects of a resource that
    /// is no longer served are missing from the cache, but not necessarily from
    /// the cluster: the guest is not called.
    complete: bool,
    queues: Queues,
    notes: Notes,
    health: Health,
    tally: Tally,
    calls: BTreeMap<CallId, Called>,
    running: BTreeMap<QueueKey, Running>,
    /// Items that wait for the call about the next part of their decisions.
    next_parts: VecDeque<WorkItem>,
    waiters: Waiters,
    /// Items that wait for an operator, or for their targets to become this
    /// revision's: no trigger may ever name them again.
    parked: BTreeSet<QueueKey>,
    /// Items with a plan for an object whose kind is not served.
    unserved: BTreeSet<QueueKey>,
    sweep: Sweep,
}

impl<G: Clone> Revision<G> {
    /// A revision that has reconciled nothing yet.
    pub(super) fn new(
        now: Instant,
        id: RevisionId,
        loaded: LoadedRevision<G>,
        views: Views,
    ) -> Self {
        let queues = Queues::new(now, &loaded.manifest.queues, &loaded.manifest.ticks);
        let notes = Notes::default();
        let mut revision = Self::with(id, Role::Stable, loaded, views, queues, notes);
        revision.begin_sweep(Pace::Brisk);
        revision
    }

    /// Another revision beside this one, which looks at everything. It begins
    /// with the same items, timers and notes; what is worked on here waits
    /// there. Its ticks come when this one's do: both decide on the same state.
    pub(super) fn fork(
        &self,
        now: Instant,
        id: RevisionId,
        loaded: LoadedRevision<G>,
        views: Views,
    ) -> Self {
        let mut queues = self.queues.fork(now);
        queues.reconfigure(now, &loaded.manifest.queues, &loaded.manifest.ticks);
        let notes = self.notes.clone();
        let mut fork = Self::with(id, Role::Candidate, loaded, views, queues, notes);
        fork.parked.clone_from(&self.parked);
        fork.unserved.clone_from(&self.unserved);
        fork.begin_sweep(Pace::Easy);
        fork
    }

    fn with(
        id: RevisionId,
        role: Role,
        loaded: LoadedRevision<G>,
        views: Views,
        queues: Queues,
        notes: Notes,
    ) -> Self {
        Self {
            id,
            items_of: id,
            role,
            guest: loaded.guest,
            name: loaded.identity.to_string().into(),
            identity: loaded.identity,
            views_by_name: views.by_name(&loaded.manifest),
            watches: watches(&views),
            views,
            manifest: loaded.manifest,
            complete: true,
            queues,
            notes,
            health: Health::default(),
            tally: Tally::default(),
            calls: BTreeMap::new(),
            running: BTreeMap::new(),
            next_parts: VecDeque::new(),
            waiters: Waiters::default(),
            parked: BTreeSet::new(),
            unserved: BTreeSet::new(),
            sweep: Sweep::default(),
        }
    }

    /// Another guest, or another configuration of it, replaces this one, whose
    /// guest is returned. Queues, timers and notes stay; calls in flight are
    /// void, and plans that were not put before the gate are never executed.
    pub(super) fn reconfigure(
        &mut self,
        now: Instant,
        id: RevisionId,
        loaded: LoadedRevision<G>,
        views: Views,
    ) -> G {
        let LoadedRevision {
            guest,
            manifest,
            identity,
            ..
        } = loaded;
        for called in std::mem::take(&mut self.calls).into_values() {
            self.send_back(now, called.items);
        }
        let next_parts = std::mem::take(&mut self.next_parts);
        self.send_back(now, next_parts);
        self.running.values_mut().for_each(Running::supersede);
        self.queues
            .reconfigure(now, &manifest.queues, &manifest.ticks);
        self.id = id;
        self.name = identity.to_string().into();
        self.identity = identity;
        self.manifest = manifest;
        self.set_views(views);
        self.complete = true;
        self.health = Health::default();
        self.tally = Tally::default();
        self.look_at_everything(now);
        std::mem::replace(&mut self.guest, guest)
    }

    /// What identifies it.
    #[must_use]
    pub fn identity(&self) -> &RevisionIdentity {
        &self.identity
    }

    /// The name of its identity.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its views.
    #[must_use]
    pub fn views(&self) -> &Views {
        &self.views
    }

    /// Whether every watch shows what it should.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Sets whether every watch shows what it should. While it does not, the
    /// guest is not called.
    pub fn set_complete(&mut self, complete: bool) {
        self.complete = complete;
    }

    pub(super) fn into_guest(self) -> G {
        self.guest
    }

    /// Whether another call can be made.
    fn has_room(&self) -> bool {
        self.complete && self.calls.len() < self.identity.limits().instances as usize
    }

    fn set_views(&mut self, views: Views) {
        self.views_by_name = views.by_name(&self.manifest);
        self.watches = watches(&views);
        self.views = views;
    }

    /// What the guest declared.
    #[must_use]
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// How it fares.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// What it did since the counting began.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(super) fn begin_counting(&mut self) {
        self.tally = Tally::default();
    }

    /// The state of its queues.
    pub fn queue_stats(&mut self, now: Instant) -> Vec<QueueStats> {
        self.queues.stats(now)
    }

    /// Looks at other views from now on, and at everything in them.
    pub(super) fn change_views(&mut self, now: Instant, views: Views) {
        self.set_views(views);
        self.look_at_everything(now);
    }

    /// Begins to add every key that a trigger can name, and every item that is
    /// parked or about to be: after a time in which its plans were not carried out, or changes
    /// not taken.
    pub(super) fn look_at_everything(&mut self, now: Instant) {
        self.begin_sweep(Pace::Easy);
        for item in std::mem::take(&mut self.parked) {
            self.queues.hasten(now, &item.queue, &item.key);
        }
        self.running.values_mut().for_each(Running::look_again);
        let manifest = Arc::clone(&self.manifest);
        for tick in &manifest.ticks {
            self.add(now, &tick.queue, &tick.key, Origin::Fresh);
        }
    }

    /// What the API server serves has changed: what waited for that is due.
    pub(super) fn handle_mapping(&mut self, now: Instant) {
        for item in std::mem::take(&mut self.unserved) {
            self.queues.hasten(now, &item.queue, &item.key);
        }
    }

    fn begin_sweep(&mut self, pace: Pace) {
        let manifest = &self.manifest;
        let triggers = self.watches.iter().flat_map(|(view, position)| {
            let triggers = triggers_of(manifest, *position);
            triggers.map(|trigger| (*view, trigger.clone()))
        });
        self.sweep.begin(pace, triggers);
    }

    /// Adds the next of these keys, unless the last are still to be taken.
    pub(super) fn sweep(&mut self, now: Instant, snapshot: &Snapshot) {
        let is_crowded = self.queues.has_relisted(now);
        if let Some((queue, keys)) = self.sweep.next(now, is_crowded, snapshot) {
            for key in keys {
                self.add(now, &queue, &key, Origin::Relist);
            }
        }
    }

    pub(super) fn handle_change(
        &mut self,
        now: Instant,
        change: &Change,
        origin: Origin,
        snapshot: &Snapshot,
    ) {
        let Some(position) = self.watches.get(&change.view) else {
            return;
        };
        let manifest = Arc::clone(&self.manifest);
        for trigger in triggers_of(&manifest, *position) {
            for key in changed_keys(&trigger.key, change, snapshot) {
                self.add(now, &trigger.queue, &key, origin);
            }
        }
    }

    fn add(&mut self, now: Instant, queue: &str, key: &str, origin: Origin) {
        // A valid manifest names only queues that it declares.
        let added = self.queues.add(now, queue, key, origin);
        debug_assert!(added.is_ok(), "{added:?}");
    }

    pub(super) fn poll_call(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        shared: &mut Shared,
    ) -> Option<CallRequest<G>> {
        if !self.has_room() {
            return None;
        }
        let permit = self.health.begin(now)?;
        let Some((items, relisted)) = self.next_items(now, shared) else {
            self.health.abandoned(now, permit);
            return None;
        };
        let id = CallId {
            controller: shared.id,
            number: shared.fresh_id(),
        };
        let called = Called {
            items: items.clone(),
            relisted,
            permit,
            began: now,
            snapshot: snapshot.clone(),
        };
        self.calls.insert(id, called);
        let pending = self.pending();
        if let Some(trial) = &mut shared.trial {
            trial.pending.insert(self.role, pending.clone());
        }
        Some(CallRequest {
            id,
            guest: self.guest.clone(),
            views: Arc::clone(&self.views_by_name),
            snapshot: snapshot.clone(),
            items,
            pending,
            notes: self.notes.clone(),
        })
    }

    /// The items of the next call, and how many of them are from a list. What
    /// has been begun comes first, by itself: a part fills a call.
    fn next_items(&mut self, now: Instant, shared: &mut Shared) -> Option<(Vec<WorkItem>, usize)> {
        if let Some(item) = self.next_parts.pop_front() {
            return Some((vec![item], 0));
        }
        let batch = self.queues.dequeue(now)?;
        if self.role == Role::Stable {
            for waited in batch.waited() {
                let queue = batch.queue.clone();
                shared.effects.push_back(Effect::Dequeued { queue, waited });
            }
        }
        Some((batch.items, batch.relisted))
    }

    /// What waits in its queues.
    pub(super) fn pending(&self) -> PendingSnapshot {
        self.queues.pending()
    }

    pub(super) fn has_called(&self, id: CallId) -> bool {
        self.calls.contains_key(&id)
    }

    pub(super) fn handle_decisions(
        &mut self,
        id: CallId,
        decisions: Vec<Decision>,
        took: Duration,
        world: &World<'_>,
        shared: &mut Shared,
    ) {
        let Some(called) = self.calls.remove(&id) else {
            return;
        };
        debug_assert_eq!(
            called.items.len(),
            decisions.len(),
            "the engine counts them"
        );
        self.health.succeeded(world.now, called.permit);
        self.tally.call_took(took);
        if called.relisted > 0 {
            self.sweep.worked(world.now, took);
        }
        let trial = shared.trial.as_ref();
        let other = trial
            .map(|trial| trial.others(self.role))
            .unwrap_or_default();
        for (mut work, decision) in called.items.into_iter().zip(decisions) {
            let item = QueueKey {
                queue: work.queue.clone(),
                key: work.key.clone(),
            };
            let next_part = match &decision.verdict {
                Verdict::ContinueFrom { cursor } => {
                    work.cursor.clone_from(cursor);
                    Some(work)
                }
                _ => None,
            };
            let look = Look {
                role: self.role,
                item: &item,
                snapshot: &called.snapshot,
                began: called.began,
                other: &other,
            };
            self.begin(&item, decision, next_part, look, world, shared);
        }
    }

    pub(super) fn handle_call_failure(
        &mut self,
        now: Instant,
        id: CallId,
        failure: CallFailure,
        shared: &mut Shared,
    ) {
        let Some(called) = self.calls.remove(&id) else {
            return;
        };
        let finish = after_failed_call(failure.kind, called.items.len());
        self.tally.call_failed(&failure.to_string());
        self.health.failed(now, called.permit, failure);
        if Mutant::ForgetFailedCalls.is_active() {
            return;
        }
        for WorkItem { queue, key, .. } in called.items {
            let item = QueueKey { queue, key };
            // Of the parts before this one: all of them are decided again.
            self.running.remove(&item);
            self.finish_item(now, &item, finish.clone(), shared);
        }
    }

    pub(super) fn handle_call_void(&mut self, now: Instant, id: CallId) {
        if let Some(called) = self.calls.remove(&id) {
            self.health.abandoned(now, called.permit);
            self.send_back(now, called.items);
        }
    }

    fn send_back(&mut self, now: Instant, items: impl IntoIterator<Item = WorkItem>) {
        if Mutant::ForgetVoidCalls.is_active() {
            return;
        }
        for WorkItem { queue, key, .. } in items {
            self.queues.done(now, &queue, &key, Finish::PutBack);
            self.running.remove(&QueueKey { queue, key });
        }
    }

    /// Takes the end of a plan of this revision.
    pub(super) fn handle_outcome(
        &mut self,
        carried: Carried,
        outcome: Outcome,
        world: &World<'_>,
        shared: &mut Shared,
    ) {
        let Carried { item, plan, .. } = carried;
        shared.measure(&plan, &outcome);
        let success = outcome.is_success();
        if let Some(running) = self.running.get_mut(&item) {
            running.in_flight -= 1;
            if outcome.written.is_some() || (success && outcome.failed.is_some()) {
                running.unseen.push(Uid::new(&plan.target.uid));
            }
            if let Some((step, failure)) = outcome.failed
                && !success
            {
                self.tally.write_failed(failure.class, &failure.message);
                running.fail(&plan.target.uid, step, failure);
            }
        }
        self.pump(&item, world, shared);
    }

    /// When [`Self::poll_call`] has to be asked again, if nothing else happens.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        if !self.has_room() {
            return None;
        }
        let item = || match self.next_parts.front() {
            Some(_) => Some(now),
            None => self.queues.next_due(now),
        };
        let call = || Some(item()?.max(self.health.opens_at(now)?));
        [self.sweep.due_at(now), call()].into_iter().flatten().min()
    }

    /// Every object that an item waits for.
    pub(super) fn waited_for(&self) -> Vec<Uid> {
        self.waiters.objects()
    }

    /// Adds the items that waited for an object once it is no longer held.
    pub(super) fn wake(
        &mut self,
        now: Instant,
        uid: &Uid,
        snapshot: &Snapshot,
        shared: &mut Shared,
    ) {
        if !self.waiters.waits_for(uid) || Mutant::ForgetWaiters.is_active() {
            return;
        }
        if !shared.is_open(uid, snapshot, now) {
            for item in self.waiters.release(uid) {
                self.add(now, &item.queue, &item.key, Origin::Fresh);
            }
        }
    }

    fn begin(
        &mut self,
        item: &QueueKey,
        decision: Decision,
        next_part: Option<WorkItem>,
        look: Look<'_>,
        world: &World<'_>,
        shared: &mut Shared,
    ) {
        self.parked.remove(item);
        self.unserved.remove(item);
        let cancelled = self.command(world.now, decision.commands, shared);
        let stands = |plan: &Plan| {
            let condition = plan.when_cancelled.as_ref();
            condition.is_none_or(|item| cancelled.contains(item))
        };
        let plans = decision.plans.into_iter().filter(stands);
        let plans: Vec<Arc<Plan>> = plans.map(Arc::new).collect();
        shared.compare(look, &plans, world);
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
        let decided_on = look.snapshot.clone();
        let mut part = Running::new(plans, decided_on, parallel, decision.verdict);
        part.next_part = next_part;
        match self.running.get_mut(item) {
            Some(running) => running.continue_with(part),
            None => drop(self.running.insert(item.clone(), part)),
        }
        self.pump(item, world, shared);
    }

    /// Carries out commands; returns the items that a cancel found waiting.
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
                    match value {
                        Some(value) => self.notes.insert(key, value.into()),
                        None => self.notes.remove(&key),
                    };
                    Ok(())
                }
                Command::Measure(measure) => {
                    // The stable revision sees the same, and counts it.
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

    /// Puts plans of an item before the gate as long as there is room for them,
    /// and ends the item when none is left.
    fn pump(&mut self, item: &QueueKey, world: &World<'_>, shared: &mut Shared) {
        let Some(mut running) = self.running.remove(item) else {
            return;
        };
        while running.has_room() {
            let Some(plan) = running.plans.pop_front() else {
                break;
            };
            self.rule(item, &mut running, plan, world, shared);
        }
        if !running.is_over() {
            self.running.insert(item.clone(), running);
            return;
        }
        if let Some(next) = running.next_part.take() {
            self.next_parts.push_back(next);
            self.running.insert(item.clone(), running);
            return;
        }
        running
            .unseen
            .retain(|uid| shared.is_open(uid, world.snapshot, world.now));
        if running.waits_for_kind() {
            self.unserved.insert(item.clone());
        }
        let (finish, sooner) = running.finish(world.now, LAPSE, self.is_tick(item));
        match sooner {
            Sooner::Never => {}
            Sooner::WhenSeen => self.waiters.wait(item, running.unseen),
            Sooner::WhenLookedAt => {
                self.parked.insert(item.clone());
            }
        }
        self.finish_item(world.now, item, finish, shared);
    }

    fn is_tick(&self, item: &QueueKey) -> bool {
        let mut ticks = self.manifest.ticks.iter();
        ticks.any(|tick| tick.queue == item.queue && tick.key == item.key)
    }

    /// The plans that were decided and not put before the gate yet.
    pub(super) fn decided(&self) -> impl Iterator<Item = (&QueueKey, &Arc<Plan>)> {
        let running = self.running.iter();
        running.flat_map(|(item, running)| running.plans.iter().map(move |plan| (item, plan)))
    }

    fn finish_item(&mut self, now: Instant, item: &QueueKey, finish: Finish, shared: &mut Shared) {
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
}

fn watches(views: &Views) -> BTreeMap<ViewId, usize> {
    views.ids.iter().copied().zip(0..).collect()
}
