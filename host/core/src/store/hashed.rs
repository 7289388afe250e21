//! Slots by the hash of something that an object has.

use imbl::{OrdMap, OrdSet};

use super::slots::Slot;

/// A persistent map from hashes to slots. Nearly every hash has one slot, and a lookup walks the tree
/// once; the range of a set, which starts with a cursor, takes three times as long.
#[derive(Clone, Debug, Default)]
pub(super) struct HashedSlots {
    one: OrdMap<u32, Slot>,
    /// Further slots of hashes that `one` has.
    others: OrdSet<(u32, Slot)>,
}

impl HashedSlots {
    pub(super) fn insert(&mut self, hash: u32, slot: Slot) {
        match self.one.get(&hash) {
            Some(one) if *one == slot => {}
            Some(_) => drop(self.others.insert((hash, slot))),
            None => drop(self.one.insert(hash, slot)),
        }
    }

    pub(super) fn remove(&mut self, hash: u32, slot: Slot) {
        if self.one.get(&hash) != Some(&slot) {
            self.others.remove(&(hash, slot));
            return;
        }
        let other = self.others_with(hash).next();
        if let Some(other) = other {
            self.others.remove(&(hash, other));
            self.one.insert(hash, other);
        } else {
            self.one.remove(&hash);
        }
    }

    /// The slots with a hash.
    pub(super) fn with_hash(&self, hash: u32) -> impl Iterator<Item = Slot> {
        let one = self.one.get(&hash).copied();
        // They are looked for only if the one is not what the caller wants.
        let others = one.into_iter().flat_map(move |_| self.others_with(hash));
        one.into_iter().chain(others)
    }

    fn others_with(&self, hash: u32) -> impl Iterator<Item = Slot> {
        let others = (!self.others.is_empty()).then(|| self.others.range((hash, Slot::MIN)..));
        let others = others.into_iter().flatten();
        let others = others.take_while(move |(other, _)| *other == hash);
        others.map(|(_, slot)| *slot)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.one.is_empty() && self.others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set_of_pairs(changes in prop::collection::vec((any::<bool>(), 0..4_u32, 0..6_u32), 0..60)) {
            let (mut hashed, mut model) = (HashedSlots::default(), BTreeSet::new());
            for (is_inserted, hash, slot) in changes {
                if is_inserted {
                    hashed.insert(hash, slot);
                    model.insert((hash, slot));
                } else {
                    hashed.remove(hash, slot);
                    model.remove(&(hash, slot));
                }
                for hash in 0..4 {
                    let found: Vec<Slot> = hashed.with_hash(hash).collect();
                    let set: BTreeSet<Slot> = found.iter().copied().collect();
                    prop_assert_eq!(set.len(), found.len());
                    let expected = model.iter().filter(|(other, _)| *other == hash);
                    prop_assert_eq!(set, expected.map(|(_, slot)| *slot).collect());
                }
                prop_assert_eq!(hashed.is_empty(), model.is_empty());
            }
        }
    }
}
