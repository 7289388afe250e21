//! The objects that left history last.

use std::collections::{BTreeSet, VecDeque};

use crate::object::Uid;

/// How many uids are kept: the memory of a backtest does not grow with its journal.
const MOST: usize = 100_000;

/// The uids of the objects that left history last, up to [`MOST`]. An object may return: it
/// matches a selector again, or a host lists again.
#[derive(Debug, Default)]
pub(super) struct RecentUids {
    uids: BTreeSet<Uid>,
    order: VecDeque<Uid>,
}

impl RecentUids {
    /// Adds a uid. Returns the one that is not kept any more.
    pub(super) fn insert(&mut self, uid: &Uid) -> Option<Uid> {
        if !self.uids.insert(uid.clone()) {
            return None;
        }
        self.order.push_back(uid.clone());
        let oldest = self.order.pop_front_if(|_| self.uids.len() > MOST)?;
        self.uids.remove(&oldest);
        Some(oldest)
    }

    pub(super) fn contains(&self, uid: &Uid) -> bool {
        self.uids.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_uids_are_not_kept() {
        let mut recent = RecentUids::default();
        let uid = |number: usize| Uid::new(&number.to_string());
        for number in 0..MOST {
            assert_eq!(recent.insert(&uid(number)), None);
        }
        assert_eq!(recent.insert(&uid(3)), None, "it is known");
        assert_eq!(recent.insert(&uid(MOST)), Some(uid(0)));
        assert!(!recent.contains(&uid(0)) && recent.contains(&uid(MOST)));
    }
}
