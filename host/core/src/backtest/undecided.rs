//! Items that the policy cannot decide, because the journal has no answer to a live read.

use std::collections::BTreeSet;

use super::report::UndecidedReport;
use crate::plan::WorkItem;

/// How many items are distinguished.
const MOST_ITEMS: usize = 100_000;

/// The items that the policy could not decide.
#[derive(Debug, Default)]
pub(super) struct Undecided {
    /// Those whose last call had a live read without an answer, by queue and key.
    items: BTreeSet<(String, String)>,
    /// The items of the call under way.
    called: Vec<(String, String)>,
    /// Whether a live read of the call under way has no answer.
    is_short: bool,
    reads: u64,
    first: Vec<String>,
}

impl Undecided {
    /// The guest is called.
    pub(super) fn call(&mut self, items: &[WorkItem]) {
        let keys = items.iter();
        let keys = keys.map(|item| (item.queue.clone(), item.key.clone()));
        self.called = keys.collect();
        self.is_short = false;
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
            if !self.is_short {
                self.items.remove(&item);
            } else if self.items.len() < MOST_ITEMS {
                self.items.insert(item);
            }
        }
    }

    pub(super) fn report(self) -> UndecidedReport {
        UndecidedReport {
            items: self.items.len() as u64,
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
        WorkItem {
            queue: "pods".into(),
            key: key.into(),
            attempt: 0,
            created_at: Instant::ZERO,
            due_at: Instant::ZERO,
            failures: vec![],
            cursor: String::new(),
        }
    }

    #[test]
    fn an_item_that_is_decided_later_does_not_count() {
        let mut undecided = Undecided::default();
        for (key, is_short) in [("a", true), ("b", true), ("c", false), ("a", false)] {
            undecided.call(&[item(key)]);
            if is_short {
                undecided.read("v1 Pod ns/x");
            }
            undecided.answer();
        }
        let report = undecided.report();
        assert_eq!((report.items, report.reads), (1, 2));
        assert_eq!(report.first_reads, ["v1 Pod ns/x"]);
    }
}
