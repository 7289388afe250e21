//! The items when their revision or their queues are replaced.

use std::mem;

use super::{WorkItemState, WorkItems};
use crate::manifest::{QueueSpec, TickSpec};
use crate::plan::QueueKey;
use crate::queue::Queues;
use crate::time::Instant;

impl WorkItems {
    /// A copy for another revision. Items that are being reconciled here are pending
    /// there.
    pub(in crate::controller) fn fork(
        &self,
        now: Instant,
        queues: &[QueueSpec],
        ticks: &[TickSpec],
    ) -> Self {
        let mut fork = Self::new(self.queues.fork(now));
        for (item, life) in &self.lives {
            if let Some(trigger) = life.trigger() {
                fork.set(item, WorkItemState::Queued(Some(trigger)));
            }
        }
        let gone = fork.queues.reconfigure(now, queues, ticks);
        fork.forget(&gone);
        fork
    }

    /// A swap replaces the revision: what is not executed yet is decided again. Calls in
    /// flight are void. Returns the bytes of the dropped plans.
    pub(in crate::controller) fn reconfigure(
        &mut self,
        now: Instant,
        queues: &[QueueSpec],
        ticks: &[TickSpec],
    ) -> usize {
        self.calls.clear();
        self.pages.clear();
        let lives = self.lives.iter();
        let undecided = lives.filter(|(_, life)| life.state.is_undecided());
        let undecided: Vec<QueueKey> = undecided.map(|(item, _)| item.clone()).collect();
        for item in undecided {
            self.put_back(now, &item);
        }
        let dropped = self.supersede();
        let gone = self.queues.reconfigure(now, queues, ticks);
        self.forget(&gone);
        // A queue that was gone may be declared again while plans of its items are executed.
        self.resume(now);
        dropped
    }

    /// Replaces the queues: only executions are left, which continue to their end. Plans
    /// that the gate has not ruled on are dropped. Returns their bytes.
    pub(in crate::controller) fn replace_queues(&mut self, now: Instant, queues: Queues) -> usize {
        self.queues = queues;
        self.calls.clear();
        self.pages.clear();
        self.waiting.clear();
        self.lives.retain(|_, life| {
            life.awaits.clear();
            matches!(life.state, WorkItemState::Executing(_))
        });
        let dropped = self.supersede();
        self.resume(now);
        dropped
    }

    /// Drops the plans that the gate has not ruled on. Returns their bytes.
    fn supersede(&mut self) -> usize {
        let mut bytes = 0;
        for life in self.lives.values_mut() {
            if let WorkItemState::Executing(execution) = &mut life.state {
                bytes += execution.supersede();
            }
        }
        bytes
    }

    /// The queues of these items are gone, and with them what the items waited for.
    /// Executions continue to their end.
    fn forget(&mut self, items: &[QueueKey]) {
        for item in items {
            let Some(life) = self.lives.get_mut(item) else {
                continue;
            };
            for uid in mem::take(&mut life.awaits) {
                if let Some(items) = self.waiting.get_mut(&uid) {
                    items.remove(item);
                    if items.is_empty() {
                        self.waiting.remove(&uid);
                    }
                }
            }
            if let WorkItemState::Queued(_) = life.state {
                self.lives.remove(item);
            }
        }
    }

    /// The queues are not those that the items in execution were dequeued from: a key is
    /// reconciled at most once at a time all the same.
    fn resume(&mut self, now: Instant) {
        for (item, life) in &self.lives {
            if let WorkItemState::Executing(_) = life.state {
                self.queues.resume(now, item);
            }
        }
    }
}
