//! The counts of a revision for the analysis of a rollout.

use std::collections::VecDeque;
use std::time::Duration;

use crate::bounds::text::MESSAGE;
use crate::failure::FailureClass;
use crate::untrusted::shorten;

/// The number of calls that the latency is computed from.
const MOST_CALLS: usize = 256;

/// The counts of a revision since they were last restarted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Calls that failed.
    pub failed_calls: u64,
    /// The last failure.
    pub last_failure: String,
    /// Plans that the gate refused, or that the API server refused as forbidden or
    /// invalid.
    pub refused_writes: u64,
    /// The last refusal.
    pub last_refusal: String,
    took: VecDeque<Duration>,
}

impl Tally {
    pub(super) fn call_took(&mut self, took: Duration) {
        if self.took.len() == MOST_CALLS {
            self.took.pop_front();
        }
        self.took.push_back(took);
    }

    pub(super) fn call_failed(&mut self, how: &str) {
        self.failed_calls += 1;
        how.clone_into(&mut self.last_failure);
    }

    /// The reason has names that the guest chose.
    pub(super) fn refused(&mut self, mut why: String) {
        self.refused_writes += 1;
        shorten(&mut why, MESSAGE);
        self.last_refusal = why;
    }

    pub(super) fn write_failed(&mut self, class: FailureClass, why: &str) {
        if matches!(class, FailureClass::Forbidden | FailureClass::Invalid) {
            self.refused(format!("{class}: {why}"));
        }
    }

    /// The 95th percentile of the duration of the last 256 calls; none without calls.
    #[must_use]
    pub fn call_latency(&self) -> Option<Duration> {
        let mut took: Vec<Duration> = self.took.iter().copied().collect();
        took.sort_unstable();
        took.get((took.len() * 95).div_ceil(100).checked_sub(1)?)
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_leaves_out_five_of_a_hundred() {
        let mut tally = Tally::default();
        assert_eq!(tally.call_latency(), None);
        for millis in 1..=100 {
            tally.call_took(Duration::from_millis(millis));
        }
        assert_eq!(tally.call_latency(), Some(Duration::from_millis(95)));
        for _ in 0..MOST_CALLS {
            tally.call_took(Duration::from_millis(7));
        }
        assert_eq!(tally.call_latency(), Some(Duration::from_millis(7)));
    }
}
