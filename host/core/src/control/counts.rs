//! What is counted of a candidate in its present step, by one host after the
//! other.

use crate::rollout::progress::Observed;

/// What is counted of a candidate in its present step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StepCounts {
    /// By hosts before this one.
    before: Observed,
    /// By all of them together, when the candidate was last observed.
    last: Observed,
}

impl StepCounts {
    /// Continues from what an earlier host recorded.
    pub(super) fn since(before: Observed) -> Self {
        Self {
            last: before.clone(),
            before,
        }
    }

    /// Adds what this host has counted so far.
    pub(super) fn observe(&mut self, observed: &Observed) {
        let before = &self.before;
        self.last = Observed {
            counts: before.counts + observed.counts,
            failed_calls: before.failed_calls + observed.failed_calls,
            refused_writes: before.refused_writes + observed.refused_writes,
            ..observed.clone()
        };
    }

    /// The sum. A candidate that is not observed for a while has done what it did.
    pub(super) fn sum(&self) -> &Observed {
        &self.last
    }
}

#[cfg(test)]
mod tests {
    use crate::rollout::compare::Counts;

    use super::*;

    fn observed(agree: u64, failed_calls: u64) -> Observed {
        Observed {
            counts: Counts {
                agree,
                ..Counts::default()
            },
            failed_calls,
            refused_writes: 1,
            last_failure: "it traps".into(),
            ..Observed::default()
        }
    }

    #[test]
    fn what_a_candidate_did_is_not_forgotten_while_it_is_not_observed() {
        let mut counts = StepCounts::since(observed(10, 2));
        assert_eq!(*counts.sum(), observed(10, 2));
        counts.observe(&observed(5, 1));
        let both = Observed {
            refused_writes: 2,
            ..observed(15, 3)
        };
        // However often it is asked, and whether or not it was observed since.
        assert_eq!(*counts.sum(), both);
        assert_eq!(*counts.sum(), both);
        counts.observe(&observed(6, 1));
        assert_eq!(counts.sum().counts.agree, 16, "nothing counts twice");
    }
}
