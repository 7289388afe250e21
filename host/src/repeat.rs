//! Lines of the log that may repeat, outside of the core: the first of a cause is written,
//! then one after each growing pause, with the number of the suppressed ones.

use std::sync::{Mutex, OnceLock, PoisonError};

use davit_cluster::clock::Clock;
use davit_core::throttle::{SuppressedCount, Throttle, cause_of};

/// The lines of one place in the program.
#[derive(Debug)]
pub(crate) struct RepeatedLine {
    causes: Mutex<Throttle<String>>,
    clock: OnceLock<Clock>,
}

impl RepeatedLine {
    pub(crate) const fn new() -> Self {
        Self {
            causes: Mutex::new(Throttle::new()),
            clock: OnceLock::new(),
        }
    }

    /// `Some` if the line should be written. Numbers do not distinguish causes.
    pub(crate) fn admit(&self, cause: &str) -> Option<SuppressedCount> {
        let now = self.clock.get_or_init(Clock::start).instant();
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        causes.admit(cause_of(cause), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_written_once_whatever_its_numbers() {
        static LINE: RepeatedLine = RepeatedLine::new();
        let written = (0..1_000).filter(|number| {
            let cause = format!("cannot accept a connection: attempt {number}");
            LINE.admit(&cause).is_some()
        });
        assert_eq!(written.count(), 1);
        assert!(LINE.admit("another cause").is_some());
    }
}
