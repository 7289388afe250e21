//! The counts of a candidate in its present step, across restarts of the host.

use crate::rollout::progress::StepObservation;

/// The counts of a candidate in its present step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StepCounts {
    /// Of earlier hosts.
    before: StepObservation,
    /// Of all hosts together, when the candidate was last observed.
    last: StepObservation,
}

impl StepCounts {
    /// Continues from the record of an earlier host.
    pub(super) fn since(before: StepObservation) -> Self {
        Self {
            last: before.clone(),
            before,
        }
    }

    /// Adds the counts of this host so far.
    pub(super) fn observe(&mut self, observed: &StepObservation) {
        let before = &self.before;
        self.last = StepObservation {
            counts: before.counts + observed.counts,
            failed_calls: before.failed_calls + observed.failed_calls,
            refused_writes: before.refused_writes + observed.refused_writes,
            ..observed.clone()
        };
    }

    /// The sum. It stays while the candidate is not observed.
    pub(super) fn sum(&self) -> &StepObservation {
        &self.last
    }
}

#[cfg(test)]
mod tests {
    use crate::rollout::compare::Counts;

    use super::*;

    fn observed(agree: u64, failed_calls: u64) -> StepObservation {
        StepObservation {
            counts: Counts {
                agree,
                ..Counts::default()
            },
            failed_calls,
            refused_writes: 1,
            last_failure: "it traps".into(),
            ..StepObservation::default()
        }
    }

    #[test]
    fn the_counts_stay_while_the_candidate_is_not_observed() {
        let mut counts = StepCounts::since(observed(10, 2));
        assert_eq!(*counts.sum(), observed(10, 2));
        counts.observe(&observed(5, 1));
        let both = StepObservation {
            refused_writes: 2,
            ..observed(15, 3)
        };
        // The sum is the same however often it is read, and whether or not there were
        // observations since.
        assert_eq!(*counts.sum(), both);
        assert_eq!(*counts.sum(), both);
        counts.observe(&observed(6, 1));
        assert_eq!(counts.sum().counts.agree, 16, "nothing counts twice");
    }
}
