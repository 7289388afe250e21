//! The guest's queues on a virtual clock.

use std::collections::BTreeMap;

use super::host::State;
use crate::{Instant, PendingItem, PlanFailure, QueueSpec, Tick, WorkItem};

/// The pending items, by queue and key.
#[derive(Default)]
pub(super) struct Queues(BTreeMap<(String, String), Entry>);

#[derive(Clone)]
struct Entry {
    created_at: Instant,
    due_at: Instant,
    attempt: u32,
    failures: Vec<PlanFailure>,
}

/// What happens to an item.
pub(super) enum Outcome {
    Done,
    /// Requeued after the back-off, and not before this pause.
    Retry(Vec<PlanFailure>, u64),
    RequeueAfter(u64),
}

impl Queues {
    pub(super) fn pending(&self, queue: &str, key: &str) -> Option<PendingItem> {
        let entry = self.0.get(&(queue.to_owned(), key.to_owned()))?;
        Some(PendingItem {
            created_at: entry.created_at,
            due_at: entry.due_at,
        })
    }

    pub(super) fn cancel(&mut self, queue: &str, key: &str) -> bool {
        let id = (queue.to_owned(), key.to_owned());
        self.0.remove(&id).is_some()
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.0.values().map(|entry| entry.due_at).min()
    }

    /// Enqueues an item. The earlier of two times applies, and the first
    /// creation time.
    fn insert(&mut self, queue: &str, key: &str, new: Entry) {
        let id = (queue.to_owned(), key.to_owned());
        match self.0.get_mut(&id) {
            None => drop(self.0.insert(id, new)),
            Some(entry) => {
                entry.due_at = entry.due_at.min(new.due_at);
                entry.created_at = entry.created_at.min(new.created_at);
                entry.attempt = entry.attempt.max(new.attempt);
                entry.failures.extend(new.failures);
            }
        }
    }

    /// The items of one queue that are due, the oldest first.
    fn take(&mut self, now: Instant, spec: &QueueSpec) -> Vec<WorkItem> {
        let mut due: Vec<_> = self
            .0
            .iter()
            .filter(|((queue, _), entry)| *queue == spec.name && entry.due_at <= now)
            .map(|(id, entry)| (entry.due_at, id.clone()))
            .collect();
        due.sort();
        due.truncate(spec.batch as usize);
        due.into_iter()
            .filter_map(|(_, id)| self.0.remove_entry(&id))
            .map(|((queue, key), entry)| WorkItem {
                queue,
                key,
                attempt: entry.attempt,
                created_at: entry.created_at,
                due_at: entry.due_at,
                failures: entry.failures,
                cursor: String::new(),
            })
            .collect()
    }
}

impl State {
    /// Makes every tick due.
    pub(super) fn start_ticks(&mut self) {
        for Tick { queue, key, .. } in self.manifest.ticks.clone() {
            self.add(&queue, &key, self.now, None);
        }
    }

    /// Enqueues an item; created now by default.
    pub(super) fn add(
        &mut self,
        queue: &str,
        key: &str,
        due_at: Instant,
        created_at: Option<Instant>,
    ) {
        self.queue_exists(queue);
        let entry = Entry {
            created_at: created_at.unwrap_or(self.now),
            due_at,
            attempt: 0,
            failures: Vec::new(),
        };
        self.queues.insert(queue, key, entry);
    }

    /// The items of the next call: of the queue with the highest priority that
    /// has any.
    pub(super) fn take_due(&mut self) -> Vec<WorkItem> {
        let mut specs: Vec<&QueueSpec> = self.manifest.queues.iter().collect();
        specs.sort_by_key(|spec| std::cmp::Reverse(spec.priority));
        let mut batches = specs
            .into_iter()
            .map(|spec| self.queues.take(self.now, spec));
        batches.find(|items| !items.is_empty()).unwrap_or_default()
    }

    pub(super) fn finish(&mut self, item: &WorkItem, outcome: Outcome) {
        let (pause, created_at, attempt, failures) = match outcome {
            Outcome::Done => match self.period(item) {
                Some(period) => (period, None, 0, Vec::new()),
                None => return,
            },
            Outcome::RequeueAfter(pause) => (pause, Some(item.created_at), 0, Vec::new()),
            Outcome::Retry(failures, pause) => {
                let pause = pause.max(self.back_off(item));
                (pause, Some(item.created_at), item.attempt + 1, failures)
            }
        };
        let pause = i64::try_from(pause).unwrap_or(i64::MAX);
        let entry = Entry {
            created_at: created_at.unwrap_or(self.now),
            due_at: self.now.saturating_add(pause),
            attempt,
            failures,
        };
        self.queues.insert(&item.queue, &item.key, entry);
    }

    pub(super) fn queue_exists(&self, queue: &str) {
        self.spec(queue);
    }

    fn spec(&self, queue: &str) -> &QueueSpec {
        let spec = self.manifest.queues.iter().find(|it| it.name == queue);
        spec.unwrap_or_else(|| panic!("the queue {queue} is not declared"))
    }

    fn period(&self, item: &WorkItem) -> Option<u64> {
        let ticks = self.manifest.ticks.iter();
        let mut own = ticks.filter(|it| it.queue == item.queue && it.key == item.key);
        own.next().map(|it| it.period)
    }

    fn back_off(&self, item: &WorkItem) -> u64 {
        let spec = self.spec(&item.queue);
        let factor = 2_u64.saturating_pow(item.attempt);
        spec.retry_initial
            .saturating_mul(factor)
            .min(spec.retry_max)
    }
}
