//! Items that the policy cannot decide, because the journal has no answer to a live read.

use std::collections::BTreeMap;

use super::report::UndecidedReport;
use crate::plan::WorkItem;

/// How many items are distinguished.
const MOST_ITEMS: usize = 100_000;

/// An item: its queue and its key.
type Item = (String, String);

/// The items that the policy could not decide.
#[derive(Debug)]
pub(super) struct Undecided {
    /// Those whose last call had a live read without an answer, and how far each is.
    items: BTreeMap<Item, State>,
    most_items: usize,
    /// The items of the call under way.
    called: Vec<Item>,
    /// The live reads of the call under way.
    asked: u64,
    /// Whether one of them has no answer.
    is_short: bool,
    late: u64,
    /// Whether there were more items than are distinguished.
    is_cut: bool,
    reads: u64,
    first: Vec<String>,
}

/// How far an item is that could not be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its last call had a live read without an answer.
    Open,
    /// Its last call read nothing live: what was to be decided is over, for instance because the
    /// object is gone.
    Moot,
}

impl Default for Undecided {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            most_items: MOST_ITEMS,
            called: Vec::new(),
            asked: 0,
            is_short: false,
            late: 0,
            is_cut: false,
            reads: 0,
            first: Vec::new(),
        }
    }
}

impl Undecided {
    /// The guest is called.
    pub(super) fn call(&mut self, items: &[WorkItem]) {
        let keys = items.iter();
        let keys = keys.map(|item| (item.queue.clone(), item.key.clone()));
        self.called = keys.collect();
        self.asked = 0;
        self.is_short = false;
    }

    /// The guest reads live.
    pub(super) const fn ask(&mut self) {
        self.asked += 1;
    }

    /// The journal has no answer to a live read of the call.
    pub(super) fn read(&mut self, what: &str) {
        self.is_short = true;
        self.reads += 1;
        let is_new = !self.first.iter().any(|known| known == what);
        if is_new && self.first.len() < UndecidedReport::MOST_READS {
            self.first.push(what.to_owned());
        }
    }

    /// The call has ended.
    pub(super) fn answer(&mut self) {
        for item in std::mem::take(&mut self.called) {
            if self.is_short {
                self.open(item);
            } else if self.asked > 0 {
                self.late += u64::from(self.items.remove(&item).is_some());
            } else if let Some(state) = self.items.get_mut(&item) {
                *state = State::Moot;
            }
        }
    }

    fn open(&mut self, item: Item) {
        if self.items.len() < self.most_items || self.items.contains_key(&item) {
            self.items.insert(item, State::Open);
        } else {
            self.is_cut = true;
        }
    }

    pub(super) fn report(self) -> UndecidedReport {
        let states = self.items.values();
        let moot = states.filter(|state| **state == State::Moot).count();
        UndecidedReport {
            items: self.items.len() as u64,
            moot_items: moot as u64,
            late_items: self.late,
            is_cut: self.is_cut,
            reads: self.reads,
            first_reads: self.first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    fn item(key: &str) -> WorkItem {
        WorkItem::new("pods", key, Instant::ZERO)
    }

    /// A call about an item: how many live reads it has, and how many have no answer.
    fn call(undecided: &mut Undecided, key: &str, reads: u64, short: u64) {
        undecided.call(&[item(key)]);
        (0..reads).for_each(|_| undecided.ask());
        (0..short).for_each(|_| undecided.read("v1 Pod ns/x"));
        undecided.answer();
    }

    #[test]
    fn an_item_that_is_decided_later_is_not_undecided_at_the_end() {
        let mut undecided = Undecided::default();
        for (key, reads, short) in [("a", 2, 1), ("b", 1, 1), ("c", 1, 0), ("a", 2, 0)] {
            call(&mut undecided, key, reads, short);
        }
        let report = undecided.report();
        assert_eq!(
            (report.items, report.moot_items, report.late_items),
            (1, 0, 1)
        );
        assert_eq!(report.reads, 2);
        assert_eq!(report.first_reads, ["v1 Pod ns/x"]);
    }

    /// Its object is gone when the guest is called again: nobody knows what would have been
    /// decided before.
    #[test]
    fn an_item_that_becomes_moot_stays_undecided() {
        let mut undecided = Undecided::default();
        for (key, reads, short) in [("a", 1, 1), ("a", 0, 0), ("b", 1, 1), ("c", 0, 0)] {
            call(&mut undecided, key, reads, short);
        }
        let report = undecided.report();
        assert_eq!(
            (report.items, report.moot_items, report.late_items),
            (2, 1, 0)
        );
    }

    #[test]
    fn the_report_says_that_there_were_more_items_than_are_distinguished() {
        for (most_items, is_cut) in [(2, true), (3, false)] {
            let mut undecided = Undecided {
                most_items,
                ..Undecided::default()
            };
            for key in ["a", "b", "a", "c"] {
                call(&mut undecided, key, 1, 1);
            }
            let report = undecided.report();
            assert_eq!((report.items, report.is_cut), (most_items as u64, is_cut));
        }
    }
}
