//! Spreads actions that would otherwise happen at the same time, reproducibly for a
//! seed.

use std::ops::Range;
use std::time::Duration;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore as _, SeedableRng as _};

/// A seeded generator of pauses.
#[derive(Clone, Debug)]
pub struct Jitter(SplitMix64);

impl Jitter {
    /// A generator with this seed: the same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// A duration in the range, to the millisecond; the start of the range if it is
    /// empty.
    pub fn within(&mut self, range: Range<Duration>) -> Duration {
        let width = range.end.saturating_sub(range.start).as_millis();
        let width = u64::try_from(width).unwrap_or(u64::MAX).max(1);
        range.start + Duration::from_millis(self.0.next_u64() % width)
    }

    /// The duration, plus or minus up to a half.
    pub fn around(&mut self, duration: Duration) -> Duration {
        self.within(duration / 2..duration.saturating_mul(3) / 2)
    }
}
