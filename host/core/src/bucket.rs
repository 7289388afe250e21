//! A token bucket, in whole nanoseconds: the time of the next token is exact.

use std::time::Duration;

use crate::manifest::Rate;
use crate::time::Instant;

/// The tokens of one group of items, requests or events.
///
/// The state is the time at which the bucket is full again. Each token that is taken
/// moves that time one interval further. There is a token as long as that time is less
/// than a whole bucket away.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// None admits everything: no number means the same.
    rate: Option<Rate>,
    full_at: Instant,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub const fn full(rate: Option<Rate>) -> Self {
        Self {
            rate,
            full_at: Instant::ZERO,
        }
    }

    /// Its rate; none for no limit.
    #[must_use]
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Whether it has no rate.
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        self.rate.is_none()
    }

    /// Whether it holds all the tokens it can hold.
    #[must_use]
    pub fn is_full(&self, now: Instant) -> bool {
        self.tokens(now).is_none()
    }

    /// When the next token is available; [`Instant::FAR_FUTURE`] for never.
    #[must_use]
    pub fn next_token(&self) -> Instant {
        match self.rate {
            None => Instant::ZERO,
            Some(rate) => match interval(rate) {
                None => Instant::FAR_FUTURE,
                Some(interval) => {
                    let reserve = interval.saturating_mul(u64::from(rate.burst.saturating_sub(1)));
                    Instant::from_nanos(self.full_at.as_nanos().saturating_sub(reserve))
                }
            },
        }
    }

    /// Takes a token. [`Self::next_token`] must have passed.
    pub fn take(&mut self, now: Instant) {
        if let Some(interval) = self.rate.and_then(interval) {
            self.full_at = self.full_at.max(now).after(Duration::from_nanos(interval));
        }
    }

    /// Changes the rate. A full bucket stays full. Any other keeps its tokens, up to
    /// the new burst; a bucket with rate 0 starts empty. So a change of rate grants no
    /// fresh burst. The same rate again changes nothing.
    pub fn change(&mut self, now: Instant, rate: Option<Rate>) {
        if self.rate == rate {
            return;
        }
        let tokens = self.tokens(now);
        self.rate = rate;
        self.full_at = match (tokens, rate.and_then(interval)) {
            (Some((held, per_token)), Some(interval)) => {
                let carried = u128::from(held) * u128::from(interval) / u128::from(per_token);
                let carried = u64::try_from(carried).unwrap_or(u64::MAX);
                let missing = capacity(rate, interval).saturating_sub(carried);
                now.after(Duration::from_nanos(missing))
            }
            _ => Instant::ZERO,
        };
    }

    /// The content of a bucket that is not full: the nanoseconds of filling, and how
    /// many of them make a token. None for a full or an unlimited bucket.
    fn tokens(&self, now: Instant) -> Option<(u64, u64)> {
        let Some(interval) = interval(self.rate?) else {
            return Some((0, 1));
        };
        let missing = self.full_at.as_nanos().saturating_sub(now.as_nanos());
        let held = capacity(self.rate, interval).saturating_sub(missing);
        (missing > 0).then_some((held, interval))
    }
}

/// Nanoseconds between two tokens, rounded up so that the rate is never exceeded; none
/// if there are no tokens.
fn interval(rate: Rate) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the quotient is positive, and a cast from a float saturates"
    )]
    (rate.per_second > 0.0).then(|| ((1e9 / rate.per_second).ceil() as u64).max(1))
}

/// Nanoseconds from an empty to a full bucket.
fn capacity(rate: Option<Rate>, interval: u64) -> u64 {
    let burst = rate.map_or(0, |rate| u64::from(rate.burst));
    interval.saturating_mul(burst)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn rate(per_second: f64, burst: u32) -> Rate {
        Rate { per_second, burst }
    }

    fn full(rate: Rate) -> Bucket {
        Bucket::full(Some(rate))
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * SECOND)
    }

    /// Takes all available tokens.
    fn drain(bucket: &mut Bucket, now: Instant) -> usize {
        (0..100)
            .take_while(|_| {
                let there = bucket.next_token() <= now;
                if there {
                    bucket.take(now);
                }
                there
            })
            .count()
    }

    #[test]
    fn gives_its_burst_and_then_one_token_an_interval() {
        let mut bucket = full(rate(0.5, 3));
        assert_eq!(drain(&mut bucket, at(100)), 3);
        assert_eq!(bucket.next_token(), at(102));
        assert_eq!(drain(&mut bucket, at(105)), 2);
        assert_eq!(bucket.next_token(), at(106));
        assert!(!bucket.is_full(at(109)));
        assert!(bucket.is_full(at(110)));
        assert_eq!(drain(&mut bucket, at(1000)), 3);
    }

    #[test]
    fn zero_lets_nothing_through_and_no_limit_everything() {
        let stopped = full(rate(0.0, 5));
        assert_eq!(stopped.next_token(), Instant::FAR_FUTURE);
        let mut unlimited = Bucket::full(None);
        assert_eq!(drain(&mut unlimited, at(0)), 100);
    }

    #[test]
    fn the_same_rate_again_changes_nothing() {
        let mut bucket = full(rate(1.0, 2));
        drain(&mut bucket, at(10));
        bucket.change(at(10), Some(rate(1.0, 2)));
        assert_eq!(bucket.next_token(), at(11));
    }

    #[test]
    fn one_a_second_is_not_the_stopped_rate() {
        let mut bucket = full(rate(0.0, 1));
        bucket.change(at(10), Some(rate(1.0, 1)));
        assert_eq!(bucket.next_token(), at(11));
    }

    #[test]
    fn a_change_of_rate_gives_an_empty_bucket_no_fresh_burst() {
        for burst in [1, 10] {
            let mut bucket = full(rate(0.1, 1));
            drain(&mut bucket, at(100));
            bucket.change(at(100), Some(rate(0.01, burst)));
            assert_eq!(drain(&mut bucket, at(100)), 0, "burst {burst}");
            assert_eq!(bucket.next_token(), at(200), "burst {burst}");
        }
    }

    #[test]
    fn a_change_of_rate_keeps_tokens_and_their_parts() {
        let mut bucket = full(rate(1.0, 4));
        drain(&mut bucket, at(100));
        // The bucket has 2.5 tokens.
        let now = Instant::from_nanos(102 * SECOND + SECOND / 2);
        bucket.change(now, Some(rate(0.1, 4)));
        assert_eq!(drain(&mut bucket, now), 2);
        assert_eq!(bucket.next_token(), now.after(Duration::from_secs(5)));
        bucket.change(at(1000), Some(rate(0.2, 2)));
        assert_eq!(drain(&mut bucket, at(1000)), 2, "a full one stays full");
    }

    #[test]
    fn leaving_the_stopped_rate_starts_empty() {
        let mut bucket = full(rate(0.1, 1));
        bucket.change(at(100), Some(rate(0.0, 1)));
        bucket.change(at(200), Some(rate(0.1, 1)));
        assert_eq!(bucket.next_token(), at(210));
    }

    #[test]
    fn extreme_rates_saturate() {
        let mut fast = full(rate(1e300, u32::MAX));
        assert_eq!(drain(&mut fast, at(1)), 100);
        let mut slow = full(rate(1e-300, 1));
        assert_eq!(drain(&mut slow, at(1)), 1);
        assert_eq!(slow.next_token(), Instant::FAR_FUTURE);
        slow.change(at(2), Some(rate(1e-300, u32::MAX)));
        slow.change(at(2), Some(rate(1e300, u32::MAX)));
    }
}
