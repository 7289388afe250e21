//! The life of a work item.
//!
//! ```text
//!            ┌──────────────── requeued, done ───────────────┐
//!            ▼                                               │
//! queue ── Queued ── InCall ── Executing ─────────────────── ┘
//!                       ▲          │ a page is left
//!                       └── WaitingForPage
//! ```
//!
//! The queues decide when an item is due. This module has the rest of its life.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::exchange::DecisionId;
use super::execution::ItemExecution;
use super::waiters::Waiters;
use crate::object::Uid;
use crate::plan::{Plan, QueueKey, WorkItem};

/// The state of a work item. Items that only wait in their queue have no entry.
#[derive(Debug)]
enum WorkItemState {
    /// The item is in its queue. The trigger makes it due before its time.
    Queued(Trigger),
    /// The item is in a call.
    InCall {
        /// The execution of the earlier pages of its decision.
        execution: Option<Box<ItemExecution>>,
        /// The trigger that the item had when it was dequeued. The item keeps it if the
        /// call fails.
        trigger: Option<Trigger>,
    },
    /// Plans of the item are being executed, or wait for room.
    Executing(Box<ItemExecution>),
    /// The plans of this page have ended; the next page has to be called for.
    WaitingForPage {
        execution: Box<ItemExecution>,
        /// The item with the cursor of the page.
        page: WorkItem,
    },
}

/// What makes an item due before its time. An item may also wait for objects to be
/// observed, whatever its state: see [`Waiters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// A resync. The item waits for an operator, or until this revision owns its
    /// targets, and no trigger may ever enqueue it again.
    Resync,
    /// A change of the mapping. The item has a plan for an object whose kind is not
    /// served.
    Mapping,
}

/// The work items of a revision that have more state than their entry in a queue.
#[derive(Debug, Default)]
pub(super) struct WorkItems {
    states: BTreeMap<QueueKey, WorkItemState>,
    /// The items that wait for a page, in their order.
    pages: VecDeque<QueueKey>,
    /// The items in execution with plans that can go to the gate now, in their order.
    unruled: VecDeque<QueueKey>,
    waiters: Waiters,
}

impl WorkItems {
    /// A copy for another revision. Items that are being reconciled here are pending
    /// there.
    pub(super) fn fork(&self) -> Self {
        let states = self.states.iter().filter_map(|(item, state)| {
            let trigger = match state {
                WorkItemState::Queued(trigger) => Some(*trigger),
                WorkItemState::InCall { trigger, .. } => *trigger,
                WorkItemState::Executing(_) | WorkItemState::WaitingForPage { .. } => None,
            };
            Some((item.clone(), WorkItemState::Queued(trigger?)))
        });
        Self {
            states: states.collect(),
            ..Self::default()
        }
    }

    /// The queues of these items are gone, and with them what the items waited for.
    /// Executions continue to their end.
    pub(super) fn forget(&mut self, items: &[QueueKey]) {
        for item in items {
            self.waiters.forget(item);
            if let Some(WorkItemState::Queued(_)) = self.states.get(item) {
                self.states.remove(item);
            }
        }
    }

    /// The queues are replaced: only executions are left, which continue to their end.
    /// Plans that the gate has not ruled on are dropped. Returns their bytes.
    pub(super) fn clear(&mut self) -> usize {
        self.pages.clear();
        self.waiters = Waiters::default();
        let is_executing = |state: &WorkItemState| matches!(state, WorkItemState::Executing(_));
        self.states.retain(|_, state| is_executing(state));
        self.supersede()
    }

    /// The items whose plans are executed.
    pub(super) fn executing(&self) -> impl Iterator<Item = &QueueKey> {
        let is_executing = |state: &WorkItemState| matches!(state, WorkItemState::Executing(_));
        let states = self.states.iter();
        states.filter_map(move |(item, state)| is_executing(state).then_some(item))
    }

    /// Items were dequeued for a call. None of them is executing: a queue dequeues no
    /// item that is being reconciled.
    pub(super) fn enter_call(&mut self, items: &[WorkItem]) {
        for item in items {
            let item = key(item);
            let trigger = match self.states.remove(&item) {
                Some(WorkItemState::Queued(trigger)) => Some(trigger),
                _ => None,
            };
            let execution = None;
            let state = WorkItemState::InCall { execution, trigger };
            self.states.insert(item, state);
        }
    }

    /// Whether an item waits for a page.
    pub(super) fn has_page(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Starts the call for the next page, of this decision.
    pub(super) fn enter_page(&mut self) -> Option<(WorkItem, DecisionId)> {
        let item = self.pages.pop_front()?;
        let WorkItemState::WaitingForPage { execution, page } = self.states.remove(&item)? else {
            return None;
        };
        let decision = execution.decision;
        let state = WorkItemState::InCall {
            execution: Some(execution),
            trigger: None,
        };
        self.states.insert(item, state);
        Some((page, decision))
    }

    /// A call failed: the item returns to its queue, and all pages of its decision are
    /// decided again.
    pub(super) fn leave_call(&mut self, item: &QueueKey) {
        if let Some(WorkItemState::InCall {
            trigger: Some(trigger),
            ..
        }) = self.states.remove(item)
        {
            let state = WorkItemState::Queued(trigger);
            self.states.insert(item.clone(), state);
        }
    }

    /// All items that wait for a page return to their queues.
    pub(super) fn drop_pages(&mut self) -> Vec<QueueKey> {
        let pages: Vec<QueueKey> = self.pages.drain(..).collect();
        for item in &pages {
            self.states.remove(item);
        }
        pages
    }

    /// Starts the execution of a page. Returns the execution with the outcomes of the
    /// former pages.
    pub(super) fn decided(&mut self, item: &QueueKey, page: ItemExecution) -> Box<ItemExecution> {
        match self.states.remove(item) {
            Some(WorkItemState::InCall {
                execution: Some(mut execution),
                ..
            }) => {
                execution.continue_with(page);
                execution
            }
            _ => Box::new(page),
        }
    }

    /// Removes the execution of an item. [`Self::execute`] returns it, unless it has
    /// ended.
    pub(super) fn take_execution(&mut self, item: &QueueKey) -> Option<Box<ItemExecution>> {
        match self.states.remove(item)? {
            WorkItemState::Executing(execution) => Some(execution),
            other => {
                self.states.insert(item.clone(), other);
                None
            }
        }
    }

    /// Whether plans of an item can go to the gate now.
    pub(super) fn has_unruled(&self) -> bool {
        !self.unruled.is_empty()
    }

    /// Removes the execution of an item of which plans can go to the gate now.
    /// [`Self::execute`] returns it, unless it has ended.
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
        let state = WorkItemState::Executing(execution);
        self.states.insert(item.clone(), state);
    }

    /// The plans of an item have ended, and another page follows.
    pub(super) fn wait_for_page(
        &mut self,
        item: &QueueKey,
        execution: Box<ItemExecution>,
        page: WorkItem,
    ) {
        self.pages.push_back(item.clone());
        let state = WorkItemState::WaitingForPage { execution, page };
        self.states.insert(item.clone(), state);
    }

    /// An item is requeued with a trigger that makes it due before its time.
    pub(super) fn wait_for(&mut self, item: &QueueKey, trigger: Trigger) {
        let state = WorkItemState::Queued(trigger);
        self.states.insert(item.clone(), state);
    }

    /// An item becomes due when the cache has observed the writes to these objects.
    pub(super) fn wait_to_observe(&mut self, item: &QueueKey, objects: BTreeSet<Uid>) {
        self.waiters.wait(item, objects);
    }

    /// Whether an item waits until the cache has observed an object.
    pub(super) fn awaits(&self, object: &Uid) -> bool {
        self.waiters.waits_for(object)
    }

    /// Every object for whose writes an item waits.
    pub(super) fn awaited(&self) -> Vec<Uid> {
        self.waiters.objects()
    }

    /// The cache has observed an object. Returns the items that wait for no other.
    pub(super) fn observed(&mut self, object: &Uid) -> Vec<QueueKey> {
        self.waiters.release(object)
    }

    /// A resync starts. Returns the items that become due; items in execution are
    /// decided again when they have ended.
    pub(super) fn resync(&mut self) -> Vec<QueueKey> {
        for state in self.states.values_mut() {
            match state {
                WorkItemState::Executing(execution)
                | WorkItemState::WaitingForPage { execution, .. }
                | WorkItemState::InCall {
                    execution: Some(execution),
                    ..
                } => execution.resync(),
                WorkItemState::Queued(_) | WorkItemState::InCall { .. } => {}
            }
        }
        self.triggered(Trigger::Resync)
    }

    /// The mapping changed. Returns the items that become due.
    pub(super) fn mapping_changed(&mut self) -> Vec<QueueKey> {
        self.triggered(Trigger::Mapping)
    }

    fn triggered(&mut self, by: Trigger) -> Vec<QueueKey> {
        for state in self.states.values_mut() {
            if let WorkItemState::InCall { trigger, .. } = state {
                trigger.take_if(|trigger| *trigger == by);
            }
        }
        let is_due =
            |state: &WorkItemState| matches!(state, WorkItemState::Queued(it) if *it == by);
        let due = self.states.extract_if(.., |_, state| is_due(state));
        due.map(|(item, _)| item).collect()
    }

    /// A swap replaces the revision: plans that the gate has not ruled on are dropped.
    /// Returns their bytes.
    pub(super) fn supersede(&mut self) -> usize {
        let mut bytes = 0;
        for state in self.states.values_mut() {
            if let WorkItemState::Executing(execution) = state {
                bytes += execution.supersede();
            }
        }
        bytes
    }

    /// The decided plans that the gate has not ruled on yet.
    pub(super) fn plans(&self) -> impl Iterator<Item = (&QueueKey, &Arc<Plan>)> {
        self.states.iter().flat_map(|(item, state)| {
            let plans = match state {
                WorkItemState::Executing(execution) => Some(execution.plans.iter()),
                _ => None,
            };
            plans.into_iter().flatten().map(move |plan| (item, plan))
        })
    }
}

/// The queue and key of a work item.
pub(super) fn key(item: &WorkItem) -> QueueKey {
    QueueKey {
        queue: item.queue.clone(),
        key: item.key.clone(),
    }
}
