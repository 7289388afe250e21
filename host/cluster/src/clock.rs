//! The only place where the host reads a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use davit_core::time::{Instant, Now, Wall};

/// The host's two clocks. All parts of the host have copies of one value, so that their
/// instants can be compared.
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

    /// Both clocks, read at the same time.
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

    /// The deadline of tokio's timers for an instant; at most thirty years from now.
    #[must_use]
    pub fn deadline(&self, instant: Instant) -> tokio::time::Instant {
        const THIRTY_YEARS: Duration = Duration::from_hours(24 * 365 * 30);
        let delay = instant.since(Instant::ZERO).min(THIRTY_YEARS);
        self.start + delay
    }
}
