//! The life of a work item, and the calls in flight.
//!
//! ```text
//!          enqueued               dequeued
//!  absent ──────────▶ Queued ────────────────────▶ InCall ◀───────────┐
//!    ▲ ▲               │ ▲ ▲                          │ the call       │ the page is
//!    │ └─ cancelled ───┘ │ │                          ▼ ends           │ called for
//!    │                   │ └─ failed, void, swap ── Answered           │
//!    │                   │                            │ decided        │
//!    │                   │ requeued                   ▼                │
//!    └──── done ─────────┴──────────────────────── Executing ──▶ WaitingForPage
//!                                                         a page is left
//! ```
//!
//! An item that is done is absent, unless it was enqueued again meanwhile: then it is
//! `Queued`. A swap also returns items to their queue that are in a call or wait for a page:
//! what is not executed yet is decided again. A queue that a swap takes away takes its items
//! with it, and a reset takes all items away; the resync that follows either enqueues them
//! again. Items in execution stay whatever happens, until their plans have ended.
//!
//! Each state is one of the queue's too ([`Queues`]):
//!
//! | state | in the queue |
//! |---|---|
//! | absent | in none |
//! | `Queued` | pending |
//! | every other | being reconciled, so that it is not dequeued; pending too if it was enqueued again meanwhile |
//!
//! Only an item in execution may be without its queue, which a swap took away.
//!
//! Whatever its state, an item may wait until the cache has observed writes: it may be
//! reconciled for another reason before that, from a cache that lags behind, and is
//! enqueued all the same when the cache has them. `docs/adr/0012-lives-of-work-items.md`
//! has the reasons.

#[cfg(test)]
mod check;
mod replacement;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;

use super::exchange::{CallId, DecisionId};
use super::execution::ItemExecution;
use crate::bounds::BoundExceeded;
use crate::circuit::Permit;
use crate::manifest::Rate;
use crate::mapping::Mapping;
use crate::mutant::Mutant;
use crate::object::Uid;
use crate::plan::{Enqueue, Plan, QueueKey, WorkItem};
use crate::queue::{
    Batch, EnqueueReason, Finish, FinishedItem, Origin, QueueError, QueueStats, Queues, Source,
};
use crate::store::Snapshot;
use crate::time::Instant;

/// The state of a work item.
#[derive(Debug)]
enum WorkItemState {
    /// The item is in its queue, which knows when it is due, or is absent. The trigger makes
    /// it due before its time.
    Queued(Option<Trigger>),
    /// The item is in a call.
    InCall(CallPurpose),
    /// The call has ended. Its answer, or its failure, is not executed yet.
    Answered(CallPurpose),
    /// Plans of the item are being executed, or wait for room.
    Executing(Box<ItemExecution>),
    /// The plans of this page have ended; the next page has to be called for.
    WaitingForPage {
        execution: Box<ItemExecution>,
        /// The item with the cursor of the page.
        page: WorkItem,
    },
}

/// What an item is called for.
#[derive(Debug)]
enum CallPurpose {
    /// A decision. The item keeps the trigger that it had in its queue if the call fails.
    Decision(Option<Trigger>),
    /// The next page of a decision, with the execution of the earlier ones.
    Page(Box<ItemExecution>),
}

/// What makes an item due before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// A resync. The item waits for an operator, or until this revision owns its
    /// targets, and no trigger may ever enqueue it again.
    Resync,
    /// A change of the mapping. The item has a plan for an object whose kind is not
    /// served.
    Mapping,
}

/// What may enqueue an item, or make it due, when its reconcile has ended.
#[derive(Debug, Default)]
pub(super) struct EarlyWake {
    pub(super) trigger: Option<Trigger>,
    /// The objects whose writes the cache must have observed.
    pub(super) observed: BTreeSet<Uid>,
}

/// What is known of an item besides its entry in a queue.
#[derive(Debug)]
struct Life {
    state: WorkItemState,
    /// The objects whose writes the item waits for, whatever its state.
    awaits: BTreeSet<Uid>,
}

/// A call in flight.
#[derive(Debug)]
pub(super) struct CallInFlight {
    pub(super) items: Vec<WorkItem>,
    /// The decision whose next page it asks for.
    pub(super) continues: Option<DecisionId>,
    /// The number of items from the re-list lane.
    pub(super) relisted: usize,
    pub(super) permit: Permit,
    pub(super) started: Instant,
    pub(super) snapshot: Snapshot,
    /// The mapping that the guest reads.
    pub(super) mapping: Arc<Mapping>,
    /// Until when the API server throttles reads of the call.
    pub(super) throttled_until: Option<Instant>,
    /// The bytes of objects that the call has read live.
    pub(super) live_read_bytes: usize,
    /// The bound that a live read of the call exceeded.
    pub(super) exceeded: Option<BoundExceeded>,
}

/// The work items of a revision: its queues, and everything that happens to the items that
/// leave them.
#[derive(Debug)]
pub(super) struct WorkItems {
    queues: Queues,
    /// The items that have more than their entry in a queue.
    lives: BTreeMap<QueueKey, Life>,
    calls: BTreeMap<CallId, CallInFlight>,
    /// The items that wait for a page, in their order.
    pages: VecDeque<QueueKey>,
    /// The items in execution with plans that can go to the gate now, in their order.
    unruled: VecDeque<QueueKey>,
    /// The items by the objects whose writes they wait for.
    waiting: BTreeMap<Uid, BTreeSet<QueueKey>>,
}

impl WorkItems {
    pub(super) const fn new(queues: Queues) -> Self {
        Self {
            queues,
            lives: BTreeMap::new(),
            calls: BTreeMap::new(),
            pages: VecDeque::new(),
            unruled: VecDeque::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// The queues.
    pub(super) const fn queues(&self) -> &Queues {
        &self.queues
    }

    /// The state of the queues.
    pub(super) fn stats(&mut self, now: Instant) -> Vec<QueueStats> {
        self.queues.stats(now)
    }

    /// Enqueues an item, due now.
    pub(super) fn add(
        &mut self,
        now: Instant,
        queue: &str,
        key: &str,
        source: Source,
    ) -> Result<(), QueueError> {
        self.queues.add(now, queue, key, source)
    }

    /// Enqueues an item that is due after a while.
    pub(super) fn enqueue(&mut self, now: Instant, enqueue: &Enqueue) -> Result<(), QueueError> {
        self.queues.enqueue(now, enqueue)
    }

    /// Removes a pending item, and returns whether there was one.
    pub(super) fn cancel(&mut self, now: Instant, item: &QueueKey) -> bool {
        self.queues.cancel(now, &item.queue, &item.key)
    }

    /// Sets the rate of a queue's group.
    pub(super) fn set_rate(
        &mut self,
        now: Instant,
        queue: &str,
        group: &str,
        rate: Rate,
    ) -> Result<(), QueueError> {
        self.queues.set_rate(now, queue, group, rate)
    }

    /// When [`Self::dequeue`] returns something, if nothing else happens.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        if self.pages.is_empty() {
            self.queues.next_due(now)
        } else {
            Some(now)
        }
    }

    /// The items of the next call, which [`Self::start_call`] starts. A page of a started
    /// decision comes first, in a call of its own.
    pub(super) fn dequeue(&mut self, now: Instant) -> Option<(Batch, Option<DecisionId>)> {
        if let Some((page, decision)) = self.next_page() {
            let batch = Batch {
                queue: page.queue.clone(),
                dequeued_at: now,
                items: vec![page],
                reasons: Vec::new(),
                relisted: 0,
            };
            return Some((batch, Some(decision)));
        }
        let batch = self.queues.dequeue(now)?;
        for item in &batch.items {
            let item = key(item);
            // A queue dequeues no item that is being reconciled.
            let trigger = match self.take(&item) {
                WorkItemState::Queued(trigger) => trigger,
                _ => None,
            };
            self.set(&item, WorkItemState::InCall(CallPurpose::Decision(trigger)));
        }
        Some((batch, None))
    }

    fn next_page(&mut self) -> Option<(WorkItem, DecisionId)> {
        let item = self.pages.pop_front()?;
        let WorkItemState::WaitingForPage { execution, page } = self.take(&item) else {
            return None;
        };
        let decision = execution.decision;
        self.set(&item, WorkItemState::InCall(CallPurpose::Page(execution)));
        Some((page, decision))
    }

    pub(super) fn start_call(&mut self, id: CallId, call: CallInFlight) {
        self.calls.insert(id, call);
    }

    pub(super) fn calls(&self) -> impl ExactSizeIterator<Item = &CallInFlight> {
        self.calls.values()
    }

    pub(super) fn call(&self, id: CallId) -> Option<&CallInFlight> {
        self.calls.get(&id)
    }

    pub(super) fn call_mut(&mut self, id: CallId) -> Option<&mut CallInFlight> {
        self.calls.get_mut(&id)
    }

    /// A call has ended. Each of its items is [`decided`](Self::decided) or
    /// [`finished`](Self::finish) next.
    pub(super) fn end_call(&mut self, id: CallId) -> Option<CallInFlight> {
        let call = self.calls.remove(&id)?;
        for item in &call.items {
            let item = key(item);
            if let WorkItemState::InCall(purpose) = self.take(&item) {
                self.set(&item, WorkItemState::Answered(purpose));
            }
        }
        Some(call)
    }

    /// A call was not made, or its answer is void: its items return to their queues.
    pub(super) fn void_call(&mut self, now: Instant, id: CallId) -> Option<CallInFlight> {
        let call = self.end_call(id)?;
        for item in &call.items {
            self.put_back(now, &key(item));
        }
        Some(call)
    }

    /// Every call is void, because the queues are replaced.
    pub(super) fn take_calls(&mut self) -> impl Iterator<Item = CallInFlight> {
        mem::take(&mut self.calls).into_values()
    }

    fn put_back(&mut self, now: Instant, item: &QueueKey) {
        if !Mutant::ForgetVoidCalls.is_active() {
            self.finish(now, item, Finish::PutBack, EarlyWake::default());
        }
    }

    /// The reconcile of an item has ended, in a decision or in a failure of its call. None
    /// if its queue is gone.
    pub(super) fn finish(
        &mut self,
        now: Instant,
        item: &QueueKey,
        finish: Finish,
        wake: EarlyWake,
    ) -> Option<FinishedItem> {
        let trigger = match self.take(item) {
            // The call failed: all pages of its decision are decided again.
            WorkItemState::InCall(CallPurpose::Decision(trigger))
            | WorkItemState::Answered(CallPurpose::Decision(trigger)) => trigger,
            _ => wake.trigger,
        };
        if trigger.is_some() {
            self.set(item, WorkItemState::Queued(trigger));
        }
        self.await_writes(item, wake.observed);
        self.queues.done(now, &item.queue, &item.key, finish)
    }

    /// Starts the execution of a page. Returns the execution with the outcomes of the
    /// former pages. [`Self::execute`], [`Self::wait_for_page`] or [`Self::finish`] returns
    /// the item.
    pub(super) fn decided(&mut self, item: &QueueKey, page: ItemExecution) -> Box<ItemExecution> {
        match self.take(item) {
            WorkItemState::Answered(CallPurpose::Page(mut execution)) => {
                execution.continue_with(page);
                execution
            }
            _ => Box::new(page),
        }
    }

    /// Removes the execution of an item. [`Self::execute`], [`Self::wait_for_page`] or
    /// [`Self::finish`] returns the item.
    pub(super) fn take_execution(&mut self, item: &QueueKey) -> Option<Box<ItemExecution>> {
        match self.take(item) {
            WorkItemState::Executing(execution) => Some(execution),
            other => {
                self.set(item, other);
                None
            }
        }
    }

    /// Whether plans of an item can go to the gate now.
    pub(super) fn has_unruled(&self) -> bool {
        !self.unruled.is_empty()
    }

    /// Removes the execution of an item of which plans can go to the gate now, as
    /// [`Self::take_execution`] does.
    pub(super) fn next_unruled(&mut self) -> Option<(QueueKey, Box<ItemExecution>)> {
        loop {
            let item = self.unruled.pop_front()?;
            // The execution may have ended, and another one may have started.
            if let Some(mut execution) = self.take_execution(&item) {
                execution.is_listed = false;
                return Some((item, execution));
            }
        }
    }

    /// Plans of an item are being executed, or can go to the gate.
    pub(super) fn execute(&mut self, item: &QueueKey, mut execution: Box<ItemExecution>) {
        if execution.has_unruled() && !execution.is_listed {
            execution.is_listed = true;
            self.unruled.push_back(item.clone());
        }
        self.set(item, WorkItemState::Executing(execution));
    }

    /// The plans of an item have ended, and another page follows.
    pub(super) fn wait_for_page(
        &mut self,
        item: &QueueKey,
        execution: Box<ItemExecution>,
        page: WorkItem,
    ) {
        self.pages.push_back(item.clone());
        self.set(item, WorkItemState::WaitingForPage { execution, page });
    }

    /// The decided plans that the gate has not ruled on yet.
    pub(super) fn plans(&self) -> impl Iterator<Item = (&QueueKey, &Arc<Plan>)> {
        self.lives.iter().flat_map(|(item, life)| {
            let plans = match &life.state {
                WorkItemState::Executing(execution) => Some(execution.plans.iter()),
                _ => None,
            };
            plans.into_iter().flatten().map(move |plan| (item, plan))
        })
    }

    /// Whether an item waits until the cache has observed an object.
    pub(super) fn awaits(&self, object: &Uid) -> bool {
        self.waiting.contains_key(object)
    }

    /// Every object for whose writes an item waits.
    pub(super) fn awaited(&self) -> Vec<Uid> {
        self.waiting.keys().cloned().collect()
    }

    /// The cache has observed an object: items that wait for no other are enqueued.
    pub(super) fn observed(&mut self, now: Instant, object: &Uid) {
        for item in self.waiting.remove(object).into_iter().flatten() {
            let Some(life) = self.lives.get_mut(&item) else {
                continue;
            };
            life.awaits.remove(object);
            if !life.awaits.is_empty() {
                continue;
            }
            if life.is_over() {
                self.lives.remove(&item);
            }
            let source = Source {
                origin: Origin::Fresh,
                reason: EnqueueReason::Observed,
            };
            // A swap may have taken the queue away while the item was not in it.
            self.queues.add(now, &item.queue, &item.key, source).ok();
        }
    }

    /// A resync starts: items that wait for it become due. Items in execution are decided
    /// again when they have ended.
    pub(super) fn resync(&mut self, now: Instant) {
        for life in self.lives.values_mut() {
            if let Some(execution) = life.state.execution_mut() {
                execution.resync();
            }
        }
        self.trigger(now, Trigger::Resync);
    }

    /// The mapping changed: items that wait for it become due.
    pub(super) fn mapping_changed(&mut self, now: Instant) {
        self.trigger(now, Trigger::Mapping);
    }

    fn trigger(&mut self, now: Instant, by: Trigger) {
        let mut triggered = Vec::new();
        self.lives.retain(|item, life| {
            let trigger = life.state.trigger_mut();
            let is_triggered = trigger.is_some_and(|one| one.take_if(|it| *it == by).is_some());
            if is_triggered && matches!(life.state, WorkItemState::Queued(_)) {
                triggered.push(item.clone());
            }
            !life.is_over()
        });
        self.queues.hasten(now, triggered);
    }

    fn await_writes(&mut self, item: &QueueKey, objects: BTreeSet<Uid>) {
        if objects.is_empty() {
            return;
        }
        for uid in &objects {
            let items = self.waiting.entry(uid.clone()).or_default();
            items.insert(item.clone());
        }
        let life = self.lives.entry(item.clone()).or_default();
        life.awaits.extend(objects);
    }

    /// Removes the state of an item, which [`Self::set`] replaces.
    fn take(&mut self, item: &QueueKey) -> WorkItemState {
        let Some(life) = self.lives.get_mut(item) else {
            return WorkItemState::Queued(None);
        };
        let state = mem::replace(&mut life.state, WorkItemState::Queued(None));
        if life.is_over() {
            self.lives.remove(item);
        }
        state
    }

    fn set(&mut self, item: &QueueKey, state: WorkItemState) {
        if let Some(life) = self.lives.get_mut(item) {
            life.state = state;
        } else {
            let awaits = BTreeSet::new();
            self.lives.insert(item.clone(), Life { state, awaits });
        }
    }
}

impl WorkItemState {
    /// Whether no decision about the item, or about its next page, is executed.
    const fn is_undecided(&self) -> bool {
        match self {
            Self::InCall(_) | Self::Answered(_) | Self::WaitingForPage { .. } => true,
            Self::Queued(_) | Self::Executing(_) => false,
        }
    }

    fn execution_mut(&mut self) -> Option<&mut ItemExecution> {
        match self {
            Self::Executing(execution)
            | Self::WaitingForPage { execution, .. }
            | Self::InCall(CallPurpose::Page(execution))
            | Self::Answered(CallPurpose::Page(execution)) => Some(execution),
            Self::Queued(_)
            | Self::InCall(CallPurpose::Decision(_))
            | Self::Answered(CallPurpose::Decision(_)) => None,
        }
    }

    const fn trigger_mut(&mut self) -> Option<&mut Option<Trigger>> {
        match self {
            Self::Queued(trigger)
            | Self::InCall(CallPurpose::Decision(trigger))
            | Self::Answered(CallPurpose::Decision(trigger)) => Some(trigger),
            _ => None,
        }
    }
}

impl Life {
    /// Whether the entry in the queue is all that is known of the item.
    fn is_over(&self) -> bool {
        matches!(self.state, WorkItemState::Queued(None)) && self.awaits.is_empty()
    }

    const fn trigger(&self) -> Option<Trigger> {
        match self.state {
            WorkItemState::Queued(trigger)
            | WorkItemState::InCall(CallPurpose::Decision(trigger))
            | WorkItemState::Answered(CallPurpose::Decision(trigger)) => trigger,
            _ => None,
        }
    }
}

impl Default for Life {
    fn default() -> Self {
        Self {
            state: WorkItemState::Queued(None),
            awaits: BTreeSet::new(),
        }
    }
}

/// The decisions about the items of a call, in their order. A page is alone.
pub(super) fn decisions_of(
    call: CallId,
    continues: Option<DecisionId>,
) -> impl Iterator<Item = DecisionId> {
    let own = move |position| DecisionId { call, position };
    (0..).map(move |position| continues.unwrap_or_else(|| own(position)))
}

/// The queue and key of a work item.
pub(super) fn key(item: &WorkItem) -> QueueKey {
    QueueKey {
        queue: item.queue.clone(),
        key: item.key.clone(),
    }
}
