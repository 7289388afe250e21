//! What a revision did since the counting began, for the analysis of a rollout.

use std::collections::VecDeque;
use std::time::Duration;

use crate::failure::FailureClass;

/// How many calls the latency is told from.
const MOST_CALLS: usize = 256;

/// What a revision did.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Calls that failed.
    pub failed_calls: u64,
    /// How the last of them did.
    pub last_failure: String,
    /// Plans that were refused: by the gate, or by the API server as forbidden
    /// or invalid.
    pub refused_writes: u64,
    /// Why the last of them was.
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

    pub(super) fn refused(&mut self, why: String) {
        self.refused_writes += 1;
        self.last_refusal = why;
    }

    pub(super) fn write_failed(&mut self, class: FailureClass, why: &str) {
        if matches!(class, FailureClass::Forbidden | FailureClass::Invalid) {
            self.refused(format!("{class}: {why}"));
        }
    }

    /// The time that 95 of 100 of its last 256 calls took at most; none without
    /// calls.
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
