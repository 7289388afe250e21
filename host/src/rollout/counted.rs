//! What is counted of a candidate in its present step, by one host after the
//! other.

use davit_core::rollout::progress::Observed;

/// What is counted of a candidate in its present step.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    /// By hosts before this one.
    before: Observed,
    /// By all of them together, when it was last seen.
    last: Observed,
}

impl Counted {
    /// Goes on from what an earlier host has written down.
    pub(super) fn since(before: Observed) -> Self {
        Self {
            last: before.clone(),
            before,
        }
    }

    /// Takes what this host has counted so far.
    pub(super) fn see(&mut self, seen: &Observed) {
        let before = &self.before;
        self.last = Observed {
            counts: before.counts + seen.counts,
            failed_calls: before.failed_calls + seen.failed_calls,
            refused_writes: before.refused_writes + seen.refused_writes,
            ..seen.clone()
        };
    }

    /// What it came to. A candidate that is not seen for a while has done what
    /// it did.
    pub(super) fn sum(&self) -> Observed {
        self.last.clone()
    }
}

#[cfg(test)]
mod tests {
    use davit_core::rollout::compare::Counts;

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
    fn what_a_candidate_did_is_not_forgotten_while_it_is_not_seen() {
        let mut counted = Counted::since(observed(10, 2));
        assert_eq!(counted.sum(), observed(10, 2));
        counted.see(&observed(5, 1));
        let both = Observed {
            refused_writes: 2,
            ..observed(15, 3)
        };
        // However often it is asked, and whether or not it was seen since.
        assert_eq!(counted.sum(), both);
        assert_eq!(counted.sum(), both);
        counted.see(&observed(6, 1));
        assert_eq!(counted.sum().counts.agree, 16, "nothing counts twice");
    }
}
