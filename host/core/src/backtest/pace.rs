//! How often a policy is called: a backtest ends, also if the policy would go on forever.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::refusal::Refusal;
use crate::machine::Call;
use crate::plan::WorkItem;
use crate::time::{Instant, Now};
use crate::times;

/// How many effects there are at one moment before the policy counts as one that never waits.
const MOST_EFFECTS: u64 = 20_000_000;
/// How many calls there are between two entries of the journal at most.
const MOST_CALLS: u64 = 2_000_000;
/// How often an item is reconciled in a minute at most: a hundred times a second.
const MOST_A_MINUTE: u32 = 6_000;
const MINUTE_NANOS: u64 = 60_000_000_000;

/// The calls so far, as far as the limits need them.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The effects since the time last passed, or the last entry.
    effects: u64,
    /// The calls since the last entry.
    calls: u64,
    minute: u64,
    /// The calls of each item in this minute, by the hash of its queue and key: most calls are
    /// about other items, whose names need not be kept.
    items: BTreeMap<u64, u32>,
    last: LastCall,
}

/// The controller and the item of the last call.
#[derive(Debug, Default)]
struct LastCall {
    controller: String,
    queue: String,
    key: String,
}

impl Pace {
    /// Time has passed.
    pub(super) const fn pass(&mut self) {
        self.effects = 0;
    }

    /// The next entry of the journal is due.
    pub(super) const fn entry(&mut self) {
        self.effects = 0;
        self.calls = 0;
    }

    /// The machine has an effect.
    pub(super) fn effect(&mut self, now: Now) -> Result<(), Refusal> {
        self.effects += 1;
        if self.effects > MOST_EFFECTS {
            return Err(self.refusal(now, "without a pause"));
        }
        Ok(())
    }

    /// The guest is called.
    pub(super) fn call<G>(&mut self, call: &Call<G>, now: Now) -> Result<(), Refusal> {
        self.note(&call.controller, &call.items, now)
    }

    fn note(&mut self, controller: &str, items: &[WorkItem], now: Now) -> Result<(), Refusal> {
        self.calls += 1;
        let minute = minute(now.instant);
        if minute != self.minute {
            self.minute = minute;
            self.items.clear();
        }
        for item in items {
            let calls = self.items.entry(hash(item)).or_default();
            *calls += 1;
            let is_too_often = *calls > MOST_A_MINUTE;
            controller.clone_into(&mut self.last.controller);
            item.queue.clone_into(&mut self.last.queue);
            item.key.clone_into(&mut self.last.key);
            if is_too_often {
                let what = format!("more than {MOST_A_MINUTE} times within a minute");
                return Err(self.refusal(now, &what));
            }
        }
        if self.calls > MOST_CALLS {
            let what = format!("more than {MOST_CALLS} times between two entries of the journal");
            return Err(self.refusal(now, &what));
        }
        Ok(())
    }

    fn refusal(&self, now: Now, what: &str) -> Refusal {
        Refusal::Restless {
            controller: self.last.controller.clone(),
            item: format!("{} {}", self.last.queue, self.last.key),
            what: what.to_owned(),
            at: times::precise_time(now.wall),
        }
    }
}

/// The same in every process.
fn hash(item: &WorkItem) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&item.queue, &item.key).hash(&mut hasher);
    hasher.finish()
}

const fn minute(at: Instant) -> u64 {
    at.as_nanos() / MINUTE_NANOS
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn item(key: &str) -> WorkItem {
        WorkItem::new("pods", key, Instant::ZERO)
    }

    #[test]
    fn the_calls_between_two_entries_have_a_limit() {
        let mut pace = Pace::default();
        // A second between two calls: no item is called too often.
        let at = |second: u64| Now {
            instant: Instant::ZERO.after(Duration::from_secs(second)),
            ..Now::default()
        };
        for second in 0..MOST_CALLS {
            assert_eq!(pace.note("podgc", &[item("a")], at(second)), Ok(()));
        }
        let error = pace.note("podgc", &[item("a")], at(MOST_CALLS));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("between two entries"), "{error}");
        pace.entry();
        assert_eq!(pace.note("podgc", &[item("a")], at(MOST_CALLS)), Ok(()));
    }
}
