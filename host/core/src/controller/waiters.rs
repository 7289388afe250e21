//! Items that wait until the cache has observed writes to some objects.

use std::collections::BTreeMap;

use crate::object::Uid;
use crate::plan::QueueKey;

/// The items by the objects that they wait for. The last object releases an item.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    by_uid: BTreeMap<Uid, Vec<QueueKey>>,
    left: BTreeMap<QueueKey, usize>,
}

impl Waiters {
    /// The item waits for these objects too.
    pub(super) fn wait(&mut self, item: &QueueKey, objects: Vec<Uid>) {
        for uid in objects {
            let waiting = self.by_uid.entry(uid).or_default();
            if !waiting.contains(item) {
                waiting.push(item.clone());
                *self.left.entry(item.clone()).or_default() += 1;
            }
        }
    }

    /// Whether an item waits for the object.
    pub(super) fn waits_for(&self, uid: &Uid) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// Every object that an item waits for.
    pub(super) fn objects(&self) -> Vec<Uid> {
        self.by_uid.keys().cloned().collect()
    }

    /// The item does not wait any more.
    pub(super) fn forget(&mut self, item: &QueueKey) {
        if self.left.remove(item).is_none() {
            return;
        }
        self.by_uid.retain(|_, waiting| {
            waiting.retain(|other| other != item);
            !waiting.is_empty()
        });
    }

    /// No item needs to wait for the object any more. Returns the items that wait for
    /// no other object.
    pub(super) fn release(&mut self, uid: &Uid) -> Vec<QueueKey> {
        let mut released = self.by_uid.remove(uid).unwrap_or_default();
        released.retain(|item| {
            let Some(left) = self.left.get_mut(item) else {
                return false;
            };
            *left -= 1;
            let last = *left == 0;
            if last {
                self.left.remove(item);
            }
            last
        });
        released
    }
}
