//! The client-side rate limit: one line in which every request waits.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use davit_core::manifest::Rate;
use tokio::time::{Instant, sleep};

/// Lets requests through at a rate, and not at all while paused.
pub(crate) struct Limiter {
    /// Who holds it is the first in line. The lock is fair, so requests go out
    /// in the order in which they came.
    bucket: tokio::sync::Mutex<Bucket>,
    paused_until: Mutex<Option<Instant>>,
}

impl Limiter {
    /// Without a rate everything is let through at once.
    pub(crate) fn new(rate: Option<Rate>) -> Self {
        let tokens = rate.map_or(0.0, |rate| f64::from(rate.burst));
        Self {
            bucket: tokio::sync::Mutex::new(Bucket {
                rate,
                tokens,
                filled_at: Instant::now(),
            }),
            paused_until: Mutex::new(None),
        }
    }

    /// Waits for the request's turn.
    pub(crate) async fn acquire(&self) {
        let mut bucket = self.bucket.lock().await;
        loop {
            let now = Instant::now();
            let pause = self.pause_left(now);
            if pause.is_zero() {
                match bucket.take(now) {
                    Ok(()) => return,
                    Err(wait) => sleep(wait).await,
                }
            } else {
                sleep(pause).await;
            }
        }
    }

    /// Lets nothing through for that long from now on.
    pub(crate) fn pause(&self, duration: Duration) {
        let until = Instant::now() + duration;
        let mut paused = self.paused_until();
        *paused = Some(paused.map_or(until, |before| before.max(until)));
    }

    fn pause_left(&self, now: Instant) -> Duration {
        self.paused_until()
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    fn paused_until(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.paused_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

struct Bucket {
    rate: Option<Rate>,
    tokens: f64,
    filled_at: Instant,
}

impl Bucket {
    /// Takes a token, or says how long it takes until there is one.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        const NEVER: Duration = Duration::from_hours(1);
        let Some(rate) = self.rate else {
            return Ok(());
        };
        let filled = now.saturating_duration_since(self.filled_at).as_secs_f64() * rate.per_second;
        self.tokens = (self.tokens + filled).min(f64::from(rate.burst));
        self.filled_at = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        // A rate of 0 lets nothing through until the process is restarted with
        // another; looking again every hour costs nothing.
        let wait = Duration::try_from_secs_f64((1.0 - self.tokens) / rate.per_second);
        // A timer is exact to the millisecond: a shorter wait would spin.
        Err(wait.unwrap_or(NEVER).clamp(Duration::from_millis(1), NEVER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn times(limiter: &Limiter, count: u32) -> Vec<u128> {
        let start = Instant::now();
        let mut times = Vec::new();
        for _ in 0..count {
            limiter.acquire().await;
            times.push(start.elapsed().as_millis());
        }
        times
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_then_the_rate_holds() {
        let limiter = Limiter::new(Some(Rate {
            per_second: 10.0,
            burst: 2,
        }));
        let times = times(&limiter, 4).await;
        assert_eq!(times[..2], [0, 0]);
        assert!((99..=103).contains(&times[2]), "{times:?}");
        assert!((199..=205).contains(&times[3]), "{times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_rate_is_no_limit_but_a_pause_still_holds() {
        let limiter = Limiter::new(None);
        assert_eq!(times(&limiter, 3).await, [0, 0, 0]);
        limiter.pause(Duration::from_secs(2));
        limiter.pause(Duration::from_secs(1));
        let times = times(&limiter, 2).await;
        assert!((2000..=2002).contains(&times[0]), "{times:?}");
        assert_eq!(times[0], times[1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_also_holds_those_who_wait_already() {
        let limiter = Limiter::new(Some(Rate {
            per_second: 1.0,
            burst: 1,
        }));
        limiter.acquire().await;
        let start = Instant::now();
        let pause = async {
            sleep(Duration::from_millis(500)).await;
            limiter.pause(Duration::from_secs(5));
        };
        tokio::join!(limiter.acquire(), pause);
        assert!(start.elapsed() >= Duration::from_millis(5500));
    }
}
