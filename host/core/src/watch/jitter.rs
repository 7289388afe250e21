//! Spreads what would otherwise happen at once, the same way for the same seed.

use std::ops::Range;
use std::time::Duration;

/// A small generator of numbers (`SplitMix64`); not for secrets.
#[derive(Clone, Debug)]
pub struct Jitter(u64);

impl Jitter {
    /// The same seed gives the same numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A duration of the range, to the millisecond; its start if it is empty.
    pub fn within(&mut self, range: Range<Duration>) -> Duration {
        let width = range.end.saturating_sub(range.start).as_millis();
        let width = u64::try_from(width).unwrap_or(u64::MAX).max(1);
        range.start + Duration::from_millis(self.next_u64() % width)
    }

    /// The duration, give or take a half.
    pub fn around(&mut self, duration: Duration) -> Duration {
        self.within(duration / 2..duration.saturating_mul(3) / 2)
    }
}
