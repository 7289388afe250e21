//! The two clocks: the monotonic clock for every duration, the wall clock for people
//! and guests.

use std::time::Duration;

/// A point on the host's monotonic clock: nanoseconds since the host started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);
    /// Later than any event.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this point; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This point moved into the future, never past [`Self::FAR_FUTURE`].
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// This point moved into the past, never before [`Self::ZERO`].
    #[must_use]
    pub fn before(self, time: Duration) -> Self {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }
}

/// A point on the wall clock: milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub i64);

/// Both clocks, read at the same moment.
///
/// The host stores times as [`Instant`]s, and converts them to wall-clock time relative
/// to one reading of both. So a jump of the wall clock moves no timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock.
    pub instant: Instant,
    /// The wall clock.
    pub wall: Wall,
}

impl Now {
    /// The wall-clock time at `instant`.
    #[must_use]
    pub fn wall_at(self, instant: Instant) -> Wall {
        let ahead = instant.since(self.instant).as_millis();
        let behind = self.instant.since(instant).as_millis();
        let ahead = i64::try_from(ahead).unwrap_or(i64::MAX);
        let behind = i64::try_from(behind).unwrap_or(i64::MAX);
        Wall(self.wall.0.saturating_add(ahead).saturating_sub(behind))
    }

    /// The monotonic time of a wall-clock time; the start of the monotonic
    /// clock for anything before it.
    #[must_use]
    pub fn instant_at(self, wall: Wall) -> Instant {
        let millis = wall.0.saturating_sub(self.wall.0);
        let distance = Duration::from_millis(millis.unsigned_abs());
        if millis >= 0 {
            self.instant.after(distance)
        } else {
            let nanos = u64::try_from(distance.as_nanos()).unwrap_or(u64::MAX);
            Instant(self.instant.0.saturating_sub(nanos))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Now {
        Now {
            instant: Instant::from_nanos(5_000_000_000),
            wall: Wall(1_700_000_000_000),
        }
    }

    #[test]
    fn wall_time_is_relative_to_one_reading() {
        let now = now();
        let later = now.instant.after(Duration::from_millis(1500));
        assert_eq!(now.wall_at(later), Wall(1_700_000_001_500));
        assert_eq!(now.wall_at(Instant::ZERO), Wall(1_699_999_995_000));
        assert_eq!(now.instant_at(Wall(1_700_000_001_500)), later);
        assert_eq!(now.instant_at(Wall(0)), Instant::ZERO);
    }

    #[test]
    fn far_times_saturate() {
        let now = now();
        assert_eq!(now.instant.after(Duration::MAX), Instant::FAR_FUTURE);
        assert_eq!(now.instant_at(Wall(i64::MAX)), Instant::FAR_FUTURE);
        assert!(now.wall_at(Instant::FAR_FUTURE) > now.wall);
    }
}
