//! The only place where the host reads a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use davit_core::time::{Instant, Now, Wall};

/// The host's two clocks. Every part of the host has a copy of one and the
/// same, so that their instants can be compared.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: tokio::time::Instant,
}

impl Clock {
    /// Starts the monotonic clock. Under tokio's paused time it is paused too.
    #[must_use]
    pub fn start() -> Self {
        Self {
            start: tokio::time::Instant::now(),
        }
    }

    /// Both clocks, read at once.
    #[must_use]
    pub fn now(&self) -> Now {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            instant: self.instant(),
            wall: Wall(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)),
        }
    }

    /// The monotonic clock.
    #[must_use]
    pub fn instant(&self) -> Instant {
        Instant::ZERO.after(self.start.elapsed())
    }

    /// Where tokio's timers have to be set for an instant. What is too far off
    /// to be written down is thirty years off.
    #[must_use]
    pub fn deadline(&self, instant: Instant) -> tokio::time::Instant {
        const THIRTY_YEARS: Duration = Duration::from_hours(24 * 365 * 30);
        let delay = instant.since(Instant::ZERO).min(THIRTY_YEARS);
        self.start + delay
    }
}
