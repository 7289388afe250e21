//! A map with LRU eviction.

use std::collections::BTreeMap;

/// A map of bounded size.
#[derive(Debug)]
pub(super) struct Lru<K, V> {
    capacity: usize,
    uses: u64,
    values: BTreeMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
}

impl<K: Clone + Ord, V: Default> Lru<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            uses: 0,
            values: BTreeMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    /// The value of a key, which becomes the most recently used one. A missing key gets
    /// the default value.
    pub(super) fn entry(&mut self, key: K) -> &mut V {
        self.uses += 1;
        let used = self.uses;
        if let Some((before, _)) = self.values.get(&key) {
            self.by_use.remove(before);
        } else if self.values.len() >= self.capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.values.remove(&oldest);
        }
        self.by_use.insert(used, key.clone());
        let (last, value) = self.values.entry(key).or_default();
        *last = used;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_dropped() {
        let mut map = Lru::new(2);
        *map.entry("a") = 1;
        *map.entry("b") = 2;
        assert_eq!(*map.entry("a"), 1);
        *map.entry("c") = 3;
        assert_eq!(*map.entry("a"), 1);
        assert_eq!(*map.entry("b"), 0);
        assert_eq!(map.values.len(), 2);
        assert_eq!(map.by_use.len(), 2);
    }
}
