//! Random draws from one seed.

use std::ops::Range;
use std::time::Duration;

use davit_sim::Rng;

/// A seeded generator with the draws that a simulation needs.
#[derive(Clone, Debug)]
pub struct Dice(Option<Rng>);

impl Dice {
    /// The same seed gives the same draws.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Some(Rng::new(seed)))
    }

    /// Draws nothing by chance: every draw is the lowest, and events of the same time
    /// happen in the order in which they were scheduled.
    #[must_use]
    pub fn calm() -> Self {
        Self(None)
    }

    /// Another generator, whose draws do not change the draws of this one.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        match &mut self.0 {
            Some(rng) => Self(Some(Rng::new(rng.next_u64()))),
            None => Self(None),
        }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.as_mut().map_or(0, Rng::next_u64)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits().checked_rem(bound).unwrap_or(0)
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        let rng = self.0.as_mut();
        rng.is_some_and(|rng| rng.chance(probability))
    }

    /// A duration of the range, in whole microseconds.
    pub fn duration(&mut self, range: &Range<Duration>) -> Duration {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let spread = micros(range.end.saturating_sub(range.start));
        range.start + Duration::from_micros(self.below(spread))
    }

    /// One of the items; none if there are none.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(all.len()).unwrap_or(u64::MAX);
        all.get(usize::try_from(self.below(count)).unwrap_or(0))
    }

    /// One of the items, of which there is at least one.
    ///
    /// # Panics
    ///
    /// Panics if there are no items.
    pub fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        match self.pick(all) {
            Some(one) => one.clone(),
            None => unreachable!("there is something to pick from"),
        }
    }
}
