//! The progress of a candidate in its step, for `davit diff` and `davit get`.

use std::time::Duration;

use super::state::{Candidate, step_of};
use crate::api::ControllerSpec;

/// The progress of a candidate in its step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepProgress {
    /// The candidate's name.
    pub revision: String,
    /// The step, counted from 1.
    pub number: u32,
    /// The number of steps.
    pub of: u32,
    /// The step as the spec writes it.
    pub text: String,
    /// The time in the step.
    pub elapsed: Duration,
    /// The time left; none if the step lasts until a promotion.
    pub left: Option<Duration>,
    /// Why the candidate stays in the step.
    pub waits_for: String,
    /// The targets compared in the step.
    pub compared: u64,
    /// The number that the step needs to end without an operator.
    pub min_decisions: u64,
}

impl StepProgress {
    pub(super) fn of(candidate: &Candidate, spec: &ControllerSpec) -> Self {
        let step = step_of(&spec.rollout.steps, candidate.number);
        let lasts = step.and_then(|step| step.0.lasts);
        Self {
            revision: candidate.revision.revision.clone(),
            number: candidate.number,
            of: candidate.of,
            text: candidate
                .step
                .map(|step| step.to_string())
                .unwrap_or_default(),
            elapsed: candidate.elapsed,
            left: lasts.map(|lasts| lasts.saturating_sub(candidate.elapsed)),
            waits_for: candidate.wait.to_string(),
            compared: candidate.counts.sum().counts.compared(),
            min_decisions: spec.rollout.analysis.min_decisions,
        }
    }
}
