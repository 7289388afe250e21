//! Events and their times. The seed draws the order of events of the same time.

use std::collections::BTreeMap;

use davit_core::time::Instant;

use crate::dice::Dice;

/// Events and their times.
#[derive(Debug)]
pub struct Schedule<T> {
    due: BTreeMap<(Instant, u64, u64), T>,
    count: u64,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            count: 0,
        }
    }
}

impl<T> Schedule<T> {
    /// Adds an event.
    pub fn add(&mut self, at: Instant, what: T, dice: &mut Dice) {
        self.count += 1;
        self.due.insert((at, dice.bits(), self.count), what);
    }

    /// The time of the next event.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.due.keys().next().map(|(at, _, _)| *at)
    }

    /// Takes the next event, if it is due by `until`.
    pub fn take(&mut self, until: Instant) -> Option<(Instant, T)> {
        let first = self.due.first_entry()?;
        if first.key().0 > until {
            return None;
        }
        let ((at, _, _), what) = first.remove_entry();
        Some((at, what))
    }

    /// Drops the events that do not satisfy the predicate.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.due.retain(|_, what| keep(what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_draws_the_order_of_events_of_the_same_time() {
        let order = |seed| {
            let (mut schedule, mut dice) = (Schedule::default(), Dice::new(seed));
            for number in 0..8 {
                schedule.add(Instant::from_nanos(5), number, &mut dice);
            }
            schedule.add(Instant::from_nanos(4), 8, &mut dice);
            assert_eq!(schedule.take(Instant::from_nanos(3)), None);
            let taken = std::iter::from_fn(|| schedule.take(Instant::from_nanos(5)));
            taken.map(|(_, number)| number).collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert_eq!(order(1)[0], 8);
    }
}
