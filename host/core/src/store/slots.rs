//! Sets of slots.

use std::ops::Bound;

use imbl::OrdMap;

/// The place of an object in the slab. It is reused after the object is gone.
pub type Slot = u32;

/// Numbered sets of slots, as a persistent map of bitmaps. Objects that were listed one
/// after the other have neighbouring slots, and up to 64 neighbours of a set take the
/// memory of one.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotSets {
    /// From a set's number and the high bits of the slots to a bitmap of their low
    /// bits.
    blocks: OrdMap<(u32, u32), u64>,
}

const BITS: u32 = u64::BITS.trailing_zeros();

impl SlotSets {
    pub(super) fn insert(&mut self, set: u32, slot: Slot) {
        let (block, bit) = place(slot);
        *self.blocks.entry((set, block)).or_default() |= bit;
    }

    pub(super) fn remove(&mut self, set: u32, slot: Slot) {
        let (block, bit) = place(slot);
        let Some(bits) = self.blocks.get_mut(&(set, block)) else {
            return;
        };
        *bits &= !bit;
        if *bits == 0 {
            self.blocks.remove(&(set, block));
        }
    }

    /// The slots of a set in order, starting at one.
    pub(super) fn iter(&self, set: u32, from: Slot) -> impl Iterator<Item = Slot> {
        let (first, bit) = place(from);
        let end = Bound::Included((set, u32::MAX));
        self.blocks
            .range((Bound::Included((set, first)), end))
            .flat_map(move |((_, block), bits)| {
                let before = if *block == first { bit - 1 } else { 0 };
                slots(*block, *bits & !before)
            })
    }
}

fn place(slot: Slot) -> (u32, u64) {
    (slot >> BITS, 1 << (slot % u64::BITS))
}

fn slots(block: u32, mut bits: u64) -> impl Iterator<Item = Slot> {
    std::iter::from_fn(move || {
        let low = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(block << BITS | low)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_keep_apart_and_in_order() {
        let mut sets = SlotSets::default();
        let slots = [0, 1, 63, 64, 127, 128, 5_000, u32::MAX];
        for slot in slots.iter().rev() {
            sets.insert(7, *slot);
            sets.insert(8, *slot / 2);
        }
        for (position, from) in slots.iter().enumerate() {
            let rest: Vec<Slot> = sets.iter(7, *from).collect();
            assert_eq!(rest, slots[position..], "from {from}");
        }
        sets.remove(7, 63);
        sets.remove(7, 2);
        sets.remove(9, 0);
        assert_eq!(sets.iter(7, 2).next(), Some(64));
        assert_eq!(sets.iter(6, 0).count(), 0);
        for slot in slots {
            sets.remove(7, slot);
        }
        assert_eq!(sets.iter(7, 0).count(), 0);
        assert_eq!(sets.iter(8, 0).count(), 7);
    }
}
