//! Items that wait until the cache has observed writes to some objects.

use std::collections::{BTreeMap, BTreeSet};

use crate::object::Uid;
use crate::plan::QueueKey;

/// The items by the objects that they wait for. The last object releases an item.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    items: BTreeMap<Uid, BTreeSet<QueueKey>>,
    objects: BTreeMap<QueueKey, BTreeSet<Uid>>,
}

impl Waiters {
    /// The item waits for these objects too.
    pub(super) fn wait(&mut self, item: &QueueKey, objects: BTreeSet<Uid>) {
        for uid in &objects {
            let items = self.items.entry(uid.clone()).or_default();
            items.insert(item.clone());
        }
        if !objects.is_empty() {
            let waits_for = self.objects.entry(item.clone()).or_default();
            waits_for.extend(objects);
        }
    }

    /// Whether an item waits for the object.
    pub(super) fn waits_for(&self, uid: &Uid) -> bool {
        self.items.contains_key(uid)
    }

    /// Every object that an item waits for.
    pub(super) fn objects(&self) -> Vec<Uid> {
        self.items.keys().cloned().collect()
    }

    /// The item does not wait any more.
    pub(super) fn forget(&mut self, item: &QueueKey) {
        for uid in self.objects.remove(item).into_iter().flatten() {
            if let Some(items) = self.items.get_mut(&uid) {
                items.remove(item);
                if items.is_empty() {
                    self.items.remove(&uid);
                }
            }
        }
    }

    /// No item needs to wait for the object any more. Returns the items that wait for
    /// no other object.
    pub(super) fn release(&mut self, uid: &Uid) -> Vec<QueueKey> {
        let items = self.items.remove(uid).unwrap_or_default();
        let is_released = |item: &QueueKey| {
            let Some(waits_for) = self.objects.get_mut(item) else {
                return false;
            };
            waits_for.remove(uid);
            let is_last = waits_for.is_empty();
            if is_last {
                self.objects.remove(item);
            }
            is_last
        };
        items.into_iter().filter(is_released).collect()
    }
}
