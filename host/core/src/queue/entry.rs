//! One item: its state, and how two requests for it merge.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;

use crate::plan::{PlanFailure, QueueKey};
use crate::time::Instant;

/// The source of an item, which determines the lane of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A change, or a timer that was due.
    Fresh,
    /// A list of everything (a start, or a watch that had to list again): a
    /// flood that fresh items overtake.
    Relist,
}

/// What made an item due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnqueueReason {
    /// The declared fields of a watch changed.
    Change {
        /// The name of the watch.
        watch: Arc<str>,
    },
    /// A watch had to list again.
    List,
    /// A resync, or a change of the resources that the API server serves.
    Resync,
    /// Its tick.
    Tick,
    /// A command of a decision.
    Command,
    /// Its back-off ended.
    Retry,
    /// The pause that its decision asked for ended.
    Requeue,
    /// The cache has observed the writes that it waited for.
    Observed,
}

impl EnqueueReason {
    /// In a word.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Change { .. } => "change",
            Self::List => "list",
            Self::Resync => "resync",
            Self::Tick => "tick",
            Self::Command => "command",
            Self::Retry => "retry",
            Self::Requeue => "requeue",
            Self::Observed => "observed",
        }
    }
}

/// The lane of an item, and the reason for it.
#[derive(Clone, Debug)]
pub struct Source {
    /// Determines the lane.
    pub origin: Origin,
    /// What made the item due.
    pub reason: EnqueueReason,
}

/// A change of a watch without a name, or a list.
impl From<Origin> for Source {
    fn from(origin: Origin) -> Self {
        let reason = match origin {
            Origin::Fresh => EnqueueReason::Change {
                watch: Arc::default(),
            },
            Origin::Relist => EnqueueReason::List,
        };
        Self { origin, reason }
    }
}

/// First due, first out; for the same time, first added first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    pub(super) due_at: Instant,
    pub(super) serial: u64,
}

/// The place of an item in its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) group: Arc<str>,
    pub(super) lane: Origin,
    pub(super) order: Order,
}

/// The most attempts that count after something else than its back-off has made an item due.
/// After an outage of an hour, an item of a queue that starts at 5 ms and now fails in another way
/// waits for a second, not for a quarter of an hour.
const MOST_CARRIED: u32 = 8;

/// An item.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) place: Place,
    /// What makes it due at its time.
    pub(super) reason: EnqueueReason,
    pub(super) created_at: Instant,
    pub(super) attempt: u32,
    pub(super) failures: Arc<[PlanFailure]>,
    /// Whether it is pending only because it is a tick.
    pub(super) armed: bool,
    /// Whether it is dequeued alone.
    pub(super) alone: bool,
}

impl Entry {
    pub(super) fn new(place: Place, reason: EnqueueReason, created_at: Instant) -> Self {
        Self {
            place,
            reason,
            created_at,
            attempt: 0,
            failures: Arc::default(),
            armed: false,
            alone: false,
        }
    }

    /// Merges another request for the same item, and returns whether anything changed.
    /// The earlier due time applies. An item that is due already keeps its place. If
    /// both a fresh event and a list enqueue it, the item is fresh. A named group
    /// replaces the item's. What makes an item due before its back-off ends may also have ended
    /// what it failed for: few of its attempts count from then on.
    pub(super) fn join(&mut self, now: Instant, wish: &Self) -> bool {
        let before = (self.place.clone(), self.armed);
        let mine = self.place.order.due_at;
        let theirs = wish.place.order.due_at;
        if mine > now && theirs < mine {
            self.place.order = wish.place.order;
            self.place.lane = wish.place.lane;
            self.reason = wish.reason.clone();
            self.attempt = self.attempt.min(MOST_CARRIED);
        } else if theirs <= mine.max(now) {
            self.place.lane = self.place.lane.min(wish.place.lane);
        }
        if !wish.place.group.is_empty() {
            self.place.group = Arc::clone(&wish.place.group);
        }
        self.armed &= wish.armed;
        (&before.0, before.1) != (&self.place, self.armed)
    }

    /// The bytes of the item that has this key.
    pub(super) fn bytes(&self, key: &str) -> usize {
        let failures = self.failures.iter().map(PlanFailure::bytes);
        key.len() + self.place.group.len() + failures.sum::<usize>()
    }

    const fn waiting(&self) -> PendingItem {
        PendingItem {
            created_at: self.created_at,
            due_at: self.place.order.due_at,
        }
    }
}

/// The pending items of one queue, in a persistent map: a copy is a reference,
/// and does not change.
pub(super) type Entries = OrdMap<Arc<str>, Entry>;

/// An item that is in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingItem {
    /// When it was first enqueued.
    pub created_at: Instant,
    /// When it is due, if its group's rate and the queue's workers allow it; in
    /// the past if it is due already.
    pub due_at: Instant,
}

/// The pending items of the queues at one moment: what a guest reads during a
/// call.
///
/// While a call reconciles an item, the item is in it only if it was enqueued
/// again. Cloning costs a reference count.
#[derive(Clone, Debug, Default)]
pub struct PendingSnapshot {
    pub(super) queues: Arc<BTreeMap<Arc<str>, Entries>>,
}

impl PendingSnapshot {
    /// A snapshot of these items alone.
    #[must_use]
    pub fn of(items: impl IntoIterator<Item = (QueueKey, PendingItem)>) -> Self {
        let mut queues: BTreeMap<Arc<str>, Entries> = BTreeMap::new();
        for (QueueKey { queue, key }, item) in items {
            let place = Place {
                group: Arc::default(),
                lane: Origin::Fresh,
                order: Order {
                    due_at: item.due_at,
                    serial: 0,
                },
            };
            let entry = Entry::new(place, EnqueueReason::Command, item.created_at);
            queues
                .entry(queue.into())
                .or_default()
                .insert(key.into(), entry);
        }
        Self {
            queues: Arc::new(queues),
        }
    }

    /// The item, if it is pending.
    #[must_use]
    pub fn get(&self, queue: &str, key: &str) -> Option<PendingItem> {
        Some(self.queues.get(queue)?.get(key)?.waiting())
    }
}
