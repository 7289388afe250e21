//! Decisions, and values that take effect only once their decision is recorded.

use crate::api::{ControllerStatus, RejectedStatus, RevisionStatus};
use crate::mutant::Mutant;

/// A decision: which revisions run, and in which step. A status holds exactly one
/// decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    generation: Option<i64>,
    stable: Option<RevisionStatus>,
    /// The candidate, the number of its step, and its weight.
    candidate: Option<(String, String, u32, u8)>,
    rejected: Option<RejectedStatus>,
}

impl Decision {
    /// The decision that a status holds.
    pub(super) fn of(status: &ControllerStatus) -> Self {
        let candidate = status.candidate.as_ref().map(|one| {
            let (revision, since) = (one.revision.clone(), one.since.clone());
            (revision, since, one.step, one.weight)
        });
        Self {
            generation: status.observed_generation,
            stable: status.stable.clone(),
            candidate,
            rejected: status.rejected.clone(),
        }
    }

    /// Whether a status holds this decision.
    pub(super) fn is_of(&self, status: &ControllerStatus) -> bool {
        let Self {
            generation,
            stable,
            candidate,
            rejected,
        } = self;
        let is_same = match (candidate, &status.candidate) {
            (Some((revision, since, step, weight)), Some(one)) => {
                *revision == one.revision
                    && *since == one.since
                    && *step == one.step
                    && *weight == one.weight
            }
            (None, None) => true,
            _ => false,
        };
        is_same
            && *generation == status.observed_generation
            && *stable == status.stable
            && *rejected == status.rejected
    }

    /// The weight that this decision gives to a candidate that runs: 0 if it names another
    /// one. None for a candidate that it has promoted.
    pub(super) fn weight_of(&self, running: &str) -> Option<u8> {
        match &self.candidate {
            Some((revision, _, _, weight)) if revision == running => Some(*weight),
            _ if self
                .stable
                .as_ref()
                .is_some_and(|one| one.revision == running) =>
            {
                None
            }
            _ => Some(0),
        }
    }

    /// Whether this is the same decision, perhaps for another generation of the spec.
    fn decides(&self, other: &Self) -> bool {
        let Self {
            generation: _,
            stable,
            candidate,
            rejected,
        } = other;
        self.stable == *stable && self.candidate == *candidate && self.rejected == *rejected
    }
}

/// A value that follows from a decision. It must not take effect until the decision is
/// recorded: a host that crashes in between continues from the record.
#[derive(Clone, Debug)]
pub(super) struct PendingDecision<T> {
    decision: Decision,
    value: T,
}

impl<T> PendingDecision<T> {
    pub(super) fn new(decision: Decision, value: T) -> Self {
        Self { decision, value }
    }

    /// The value, if the record holds the decision. The record may be of an earlier
    /// generation: a spec that changes nothing about the revisions delays nothing.
    pub(super) fn recorded(self, recorded: Option<&Decision>) -> Option<T> {
        let is_recorded = recorded.is_some_and(|recorded| recorded.decides(&self.decision));
        (is_recorded || Mutant::ActUnrecorded.is_active()).then_some(self.value)
    }

    /// The value for effects that must not wait for the record: the withdrawal of a
    /// candidate, and an operator's settings.
    pub(super) fn ahead_of_record(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::CandidateStatus;

    #[test]
    fn a_value_waits_for_the_record_of_its_own_decision() {
        let in_step = |step| ControllerStatus {
            candidate: Some(CandidateStatus {
                step,
                ..CandidateStatus::default()
            }),
            ..ControllerStatus::default()
        };
        let decision = |step| Decision::of(&in_step(step));
        let second = PendingDecision::new(decision(2), "half of the cohorts");
        assert_eq!(second.clone().recorded(None), None);
        assert_eq!(second.clone().recorded(Some(&decision(1))), None);
        let recorded = second.recorded(Some(&decision(2)));
        assert_eq!(recorded, Some("half of the cohorts"));
    }

    /// Otherwise what the record has ended runs until the next write.
    #[test]
    fn a_record_of_an_earlier_generation_suffices() {
        let of = |generation| {
            Decision::of(&ControllerStatus {
                observed_generation: Some(generation),
                ..ControllerStatus::default()
            })
        };
        let value = PendingDecision::new(of(2), "no candidate");
        assert_eq!(value.recorded(Some(&of(1))), Some("no candidate"));
        assert_ne!(of(1), of(2), "the new one is recorded soon");
    }

    #[test]
    fn a_status_holds_its_own_decision_and_no_other() {
        let none = ControllerStatus::default;
        let candidate = |revision: &str, step| {
            Some(CandidateStatus {
                revision: revision.to_owned(),
                step,
                ..CandidateStatus::default()
            })
        };
        let with_candidate = |candidate| ControllerStatus {
            candidate,
            ..none()
        };
        let statuses = [
            none(),
            with_candidate(candidate("a", 1)),
            with_candidate(candidate("a", 2)),
            with_candidate(candidate("b", 1)),
            ControllerStatus {
                observed_generation: Some(1),
                ..none()
            },
            ControllerStatus {
                stable: Some(RevisionStatus::default()),
                ..none()
            },
            ControllerStatus {
                rejected: Some(RejectedStatus::default()),
                ..none()
            },
        ];
        for (of, one) in statuses.iter().enumerate() {
            for (other_of, other) in statuses.iter().enumerate() {
                assert_eq!(Decision::of(one).is_of(other), of == other_of, "{one:?}");
            }
        }
    }

    /// Counts are not a decision: nothing waits for them.
    #[test]
    fn counts_are_not_a_decision() {
        let counted = |failed_calls| ControllerStatus {
            summary: format!("{failed_calls} calls failed"),
            candidate: Some(CandidateStatus {
                failed_calls,
                elapsed_seconds: failed_calls,
                ..CandidateStatus::default()
            }),
            ..ControllerStatus::default()
        };
        assert_eq!(Decision::of(&counted(1)), Decision::of(&counted(2)));
        assert!(Decision::of(&counted(1)).is_of(&counted(2)));
    }
}
