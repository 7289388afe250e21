//! Points in time on the host's clock.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time on the cluster's wall clock, in milliseconds since the Unix epoch.
///
/// Two instants of one call can be compared, also if somebody set the clock in between:
/// the host measures durations on a monotonic clock. Do not keep an instant in a note. To
/// keep a time, use the creation time of an item in a queue.
///
/// ```
/// use std::time::Duration;
/// use davit_guest::Instant;
///
/// let start = Instant::from_millis(1_000);
/// let end = start + Duration::from_secs(5);
/// assert_eq!(end - start, Duration::from_secs(5));
/// // An earlier time is no time ago.
/// assert_eq!(start - end, Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    millis: i64,
}

impl Instant {
    /// The instant so many milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self { millis }
    }

    /// The milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.millis
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// The instant that much later; the last one that can be written for a longer
    /// duration.
    fn add(self, duration: Duration) -> Self {
        Self {
            millis: self.millis.saturating_add(millis(duration)),
        }
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// The instant that much earlier.
    fn sub(self, duration: Duration) -> Self {
        Self {
            millis: self.millis.saturating_sub(millis(duration)),
        }
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// The time from `earlier` to this instant; zero if `earlier` is later.
    fn sub(self, earlier: Self) -> Duration {
        let millis = self.millis.saturating_sub(earlier.millis);
        Duration::from_millis(u64::try_from(millis).unwrap_or_default())
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_two_instants_is_never_negative() {
        let (one, other) = (Instant::from_millis(-500), Instant::from_millis(1_500));
        assert_eq!(other - one, Duration::from_secs(2));
        assert_eq!(one - other, Duration::ZERO);
        assert_eq!(one + Duration::from_secs(2), other);
        assert_eq!(other - Duration::from_secs(2), one);
        assert!(one < other);
    }

    #[test]
    fn an_instant_beyond_the_calendar_is_the_last_one() {
        let last = Instant::from_millis(i64::MAX);
        assert_eq!(Instant::from_millis(0) + Duration::MAX, last);
        assert_eq!(
            Instant::from_millis(-5) - Duration::MAX,
            Instant::from_millis(i64::MIN)
        );
    }
}
