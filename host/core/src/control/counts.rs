//! The counts of a candidate in its present step, across restarts of the host.

use crate::rollout::progress::StepObservation;
use crate::time::Instant;

/// The counts of a candidate in its present step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StepCounts {
    /// Of earlier hosts, and of this one until the candidate last started again.
    before: StepObservation,
    /// Since when this host counts; none before the candidate is observed.
    since: Option<Instant>,
    /// Of all hosts together, when the candidate was last observed.
    last: StepObservation,
    /// What this host had counted in the dark when it took over: the former leader has
    /// recorded the same.
    dark: UncountedSteps,
}

/// The counts that do not count.
#[derive(Clone, Debug, Default, PartialEq)]
enum UncountedSteps {
    /// None.
    #[default]
    Nothing,
    /// Those of the next observation.
    Next,
    /// These.
    These(StepObservation),
}

impl StepCounts {
    /// Continues from the record of an earlier host.
    pub(super) fn since(before: StepObservation) -> Self {
        Self {
            last: before.clone(),
            before,
            since: None,
            dark: UncountedSteps::Nothing,
        }
    }

    /// This host takes over from the one that recorded the counts, and has counted beside
    /// it.
    pub(super) fn take_over(&mut self) {
        self.dark = UncountedSteps::Next;
    }

    /// The candidate is not observed: what this host counts later does count.
    pub(super) fn note_absence(&mut self) {
        if self.dark == UncountedSteps::Next {
            self.dark = UncountedSteps::Nothing;
        }
    }

    /// Adds the counts of this host since then. If that is another time than before, the candidate
    /// has started again, and counts from 0.
    pub(super) fn observe(&mut self, observed: &StepObservation, since: Instant) {
        if self
            .since
            .replace(since)
            .is_some_and(|known| known != since)
        {
            self.before = self.last.clone();
            self.dark = UncountedSteps::Nothing;
        }
        if self.dark == UncountedSteps::Next {
            self.dark = UncountedSteps::These(observed.clone());
        }
        let nothing = StepObservation::default();
        let dark = match &self.dark {
            UncountedSteps::These(dark) => dark,
            UncountedSteps::Nothing | UncountedSteps::Next => &nothing,
        };
        let since = |all: u64, dark: u64| all.saturating_sub(dark);
        let before = &self.before;
        self.last = StepObservation {
            counts: before.counts + observed.counts.since(dark.counts),
            failed_calls: before.failed_calls + since(observed.failed_calls, dark.failed_calls),
            refused_writes: before.refused_writes
                + since(observed.refused_writes, dark.refused_writes),
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
    use std::time::Duration;

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
        counts.observe(&observed(5, 1), Instant::ZERO);
        let both = StepObservation {
            refused_writes: 2,
            ..observed(15, 3)
        };
        // The sum is the same however often it is read, and whether or not there were
        // observations since.
        assert_eq!(*counts.sum(), both);
        assert_eq!(*counts.sum(), both);
        counts.observe(&observed(6, 1), Instant::ZERO);
        assert_eq!(counts.sum().counts.agree, 16, "nothing counts twice");
    }

    /// Its account or its grant was away for a while.
    #[test]
    fn what_a_candidate_counted_before_it_started_again_counts() {
        let mut counts = StepCounts::since(observed(10, 2));
        for (second, seen, expected) in [
            (1, observed(5, 3), (15, 5)),
            (2, observed(1, 0), (16, 5)),
            (2, observed(4, 2), (19, 7)),
            // It is as far again when it is next observed.
            (3, observed(4, 2), (23, 9)),
        ] {
            let since = Instant::ZERO.after(Duration::from_secs(second));
            counts.observe(&seen, since);
            let sum = counts.sum();
            assert_eq!((sum.counts.agree, sum.failed_calls), expected, "{seen:?}");
        }
    }

    /// The former leader has recorded ten; this host had counted eight of them.
    #[test]
    fn what_was_counted_in_the_dark_does_not_count_twice() {
        let mut counts = StepCounts::since(observed(10, 2));
        counts.take_over();
        counts.observe(&observed(8, 1), Instant::ZERO);
        assert_eq!(
            (counts.sum().counts.agree, counts.sum().failed_calls),
            (10, 2)
        );
        counts.observe(&observed(11, 3), Instant::ZERO);
        assert_eq!(
            (counts.sum().counts.agree, counts.sum().failed_calls),
            (13, 4)
        );
        // It starts again.
        counts.observe(&observed(1, 0), Instant::FAR_FUTURE);
        assert_eq!(
            (counts.sum().counts.agree, counts.sum().failed_calls),
            (14, 4)
        );
        let mut counts = StepCounts::since(observed(10, 2));
        counts.take_over();
        counts.note_absence();
        counts.observe(&observed(3, 1), Instant::ZERO);
        assert_eq!(counts.sum().counts.agree, 13, "it starts only now");
    }
}
