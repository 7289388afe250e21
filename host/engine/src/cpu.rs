//! The processor time of a call.
//!
//! It is counted by the clock of the thread that the call runs on. So a guest pays for
//! what it makes the host do, in host functions and for its answer, but not for the time
//! that it waits, or that other processes have the processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::limits::LimitExceeded;

/// The processor time that is left of a call.
#[derive(Debug)]
pub(crate) struct Cpu {
    left: Duration,
    /// The thread's time, in nanoseconds, up to which the call has paid.
    paid: Arc<AtomicU64>,
}

impl Cpu {
    /// Starts to count on this thread.
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            left: limit,
            paid: Arc::new(AtomicU64::new(thread_time())),
        }
    }

    /// Charges the time since the last charge. The limit is exceeded once nothing is
    /// left.
    pub(crate) fn charge(&mut self) -> Result<(), LimitExceeded> {
        let now = thread_time();
        let used = now.saturating_sub(self.paid.swap(now, Ordering::Relaxed));
        self.left = self.left.saturating_sub(Duration::from_nanos(used));
        if self.left.is_zero() {
            return Err(LimitExceeded::Cpu);
        }
        Ok(())
    }

    /// The call continues after a wait, perhaps on another thread.
    pub(crate) fn resume(&self) {
        self.paid.store(thread_time(), Ordering::Relaxed);
    }

    /// Lets other tasks of the thread have their turn.
    pub(crate) fn pause(&self) -> impl Future<Output = ()> + Send + use<> {
        let paid = Arc::clone(&self.paid);
        async move {
            tokio::task::yield_now().await;
            paid.store(thread_time(), Ordering::Relaxed);
        }
    }
}

/// The processor time of this thread, in nanoseconds.
fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(50);

    /// Uses this much processor time.
    fn work(time: Duration) {
        let begun = thread_time();
        while Duration::from_nanos(thread_time() - begun) < time {}
    }

    #[test]
    fn work_of_the_host_counts() {
        let mut cpu = Cpu::new(LIMIT);
        work(LIMIT / 2);
        assert_eq!(cpu.charge(), Ok(()));
        work(LIMIT / 2);
        assert_eq!(cpu.charge(), Err(LimitExceeded::Cpu));
    }

    #[test]
    fn a_wait_costs_nothing() {
        let mut cpu = Cpu::new(LIMIT);
        thread::sleep(2 * LIMIT);
        assert_eq!(cpu.charge(), Ok(()));
    }

    #[tokio::test]
    async fn what_others_do_meanwhile_costs_nothing() {
        let mut cpu = Cpu::new(LIMIT);
        let other = async { work(2 * LIMIT) };
        tokio::join!(cpu.pause(), other);
        assert_eq!(cpu.charge(), Ok(()));
        work(2 * LIMIT);
        cpu.resume();
        assert_eq!(cpu.charge(), Ok(()));
    }
}
