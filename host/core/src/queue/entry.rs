//! One item: what is known of it, and how two wishes for it become one.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;

use crate::plan::PlanFailure;
use crate::time::Instant;

/// Where an item comes from, and so which lane of its queue it waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// Something changed, or a timer ran out.
    Fresh,
    /// A list of everything (a start, a watch that had to start over): a flood
    /// that fresh items overtake.
    Relist,
}

/// First due, first out; of those due at the same time, first added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    pub(super) due_at: Instant,
    pub(super) serial: u64,
}

/// Where an item stands in its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) group: Arc<str>,
    pub(super) lane: Origin,
    pub(super) order: Order,
}

/// An item.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) created_at: Instant,
    pub(super) attempt: u32,
    pub(super) failures: Arc<[PlanFailure]>,
    /// Whether it waits only because it is a tick.
    pub(super) armed: bool,
    /// Whether it is handed out by itself.
    pub(super) alone: bool,
}

impl Entry {
    pub(super) fn new(place: Place, created_at: Instant) -> Self {
        Self {
            place,
            created_at,
            attempt: 0,
            failures: Arc::default(),
            armed: false,
            alone: false,
        }
    }

    /// Takes in another wish for the same item, and says whether it changed
    /// anything. The earlier due time wins; what is due already keeps its
    /// place in the line; what is wanted as much by a fresh event as by a list
    /// is fresh; a named group replaces the item's.
    pub(super) fn join(&mut self, now: Instant, wish: &Self) -> bool {
        let before = (self.place.clone(), self.armed);
        let mine = self.place.order.due_at;
        let theirs = wish.place.order.due_at;
        if mine > now && theirs < mine {
            self.place.order = wish.place.order;
            self.place.lane = wish.place.lane;
        } else if theirs <= mine.max(now) {
            self.place.lane = self.place.lane.min(wish.place.lane);
        }
        if !wish.place.group.is_empty() {
            self.place.group = Arc::clone(&wish.place.group);
        }
        self.armed &= wish.armed;
        (&before.0, before.1) != (&self.place, self.armed)
    }

    const fn waiting(&self) -> PendingItem {
        PendingItem {
            created_at: self.created_at,
            due_at: self.place.order.due_at,
        }
    }
}

/// The items of one queue that wait, in a persistent map: a copy of it is a
/// reference, and stays as it is.
pub(super) type Entries = OrdMap<Arc<str>, Entry>;

/// An item that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingItem {
    /// When it was first added.
    pub created_at: Instant,
    /// When it comes, if its group's rate and the queue's workers allow it;
    /// in the past if it is due.
    pub due_at: Instant,
}

/// What waited in the queues at one moment: what a guest sees during a call.
///
/// An item that is being worked on is not in it, unless it was added again
/// meanwhile. Cloning costs a reference count.
#[derive(Clone, Debug, Default)]
pub struct PendingSnapshot {
    pub(super) queues: Arc<BTreeMap<Arc<str>, Entries>>,
}

impl PendingSnapshot {
    /// The item, if it waits.
    #[must_use]
    pub fn get(&self, queue: &str, key: &str) -> Option<PendingItem> {
        Some(self.queues.get(queue)?.get(key)?.waiting())
    }
}
